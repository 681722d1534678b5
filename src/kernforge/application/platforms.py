# SPDX-License-Identifier: Apache-2.0
"""Platforms: descriptions of other machines, to download kernels for them.

A short name such as ``torch2.11-cu130-x86_64-linux`` is enough in nearly every case; a JSON
document, as ``kernforge doctor --platform --json`` prints it on that machine, has all properties.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from kernforge import untrusted
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
    "write it like torch2.11-cu130-x86_64-linux, or name a file with the output of "
    "`kernforge doctor --platform --json` on that machine"
)
_VERSIONS = {"torch", "tvm_ffi", "python", "macos", "capability", "driver"}


def parse(name: str) -> Host:
    """The machine of a short name; its torch is assumed to have the new C++ ABI.

    Raises:
        UsageError: the name has another form.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise UsageError(f"{name!r} is not a platform", hint=_HINT)
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
    document = {field.name: getattr(host, field.name) for field in fields(host)}
    return {**document, "backend": str(host.backend)}


def read(text: str, *, source: str) -> Host:
    """The machine that a JSON document describes.

    Raises:
        UsageError: it does not describe one.
    """
    try:
        document = untrusted.parse_json(text)
        known = {field.name for field in fields(Host)}
        if not isinstance(document, dict) or not {"cpu", "os", "backend"} <= set(document) <= known:
            raise UsageError(f"{source} does not describe a platform", hint=_HINT)
        values = {**document, "backend": Backend.parse(document["backend"])}
        for key in _VERSIONS & {key for key in values if values[key] is not None}:
            major, minor = values[key]
            if not all(type(number) is int for number in values[key]):
                raise UsageError(f"{source} has {key} {values[key]!r}", hint=_HINT)
            values[key] = Version2(major, minor)
        return Host(**values)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{source} does not describe a platform: {error}", hint=_HINT) from None
