# SPDX-License-Identifier: Apache-2.0
"""Machines by description: what to download for another than this one.

A short name such as ``torch2.11-cu130-x86_64-linux`` says what decides in nearly every case; a JSON
document, as ``kernforge platform --json`` prints it on that machine, says everything.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import Any

from kernforge.artifact.variant import Backend
from kernforge.artifact.version import Version2
from kernforge.errors import UsageError
from kernforge.loader.host import Host
from kernforge.loader.resolve import METAL_MACOS

_NAME = re.compile(
    r"(?:torch(?P<major>[0-9]+)\.(?P<minor>[0-9]+)-)?(?P<backend>[a-z]+[0-9]*)"
    r"-(?P<cpu>x86_64|aarch64)-(?P<os>linux|darwin|windows)"
)
_HINT = (
    "write it like torch2.11-cu130-x86_64-linux, or name a file that holds what "
    "`kernforge platform --json` printed there"
)
_PAIRS = {"torch", "tvm_ffi", "python", "macos", "capability"}


def parse(name: str) -> Host:
    """A machine by its short name; its torch is one of today's, with the new C++ ABI.

    Raises:
        UsageError: it is no such name.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise UsageError(f"{name!r} is no platform", hint=_HINT)
    system = match["os"]
    return Host(
        cpu=match["cpu"],
        os=system,
        backend=Backend.parse(match["backend"]),
        torch=Version2(int(match["major"]), int(match["minor"])) if match["major"] else None,
        cxx11=True if match["major"] and system == "linux" else None,
        macos=METAL_MACOS if system == "darwin" else None,
    )


def name(host: Host) -> str:
    """The short name of a machine."""
    torch = f"torch{host.torch}-" if host.torch else ""
    return f"{torch}{host.backend}-{host.cpu}-{host.os}"


def describe(host: Host) -> dict[str, Any]:
    """A machine as a JSON document."""
    found = {field.name: getattr(host, field.name) for field in fields(host)}
    return {**found, "backend": str(host.backend)}


def read(text: str, *, source: str) -> Host:
    """The machine that a JSON document describes.

    Raises:
        UsageError: it is none.
    """
    try:
        document = json.loads(text)
        known = {field.name for field in fields(Host)}
        if not isinstance(document, dict) or not {"cpu", "os", "backend"} <= set(document) <= known:
            raise UsageError(f"{source} describes no platform", hint=_HINT)
        found = {**document, "backend": Backend.parse(document["backend"])}
        for key in _PAIRS & {key for key in found if found[key] is not None}:
            major, minor = found[key]
            found[key] = Version2(int(major), int(minor))
        return Host(**found)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{source} describes no platform: {error}", hint=_HINT) from None
