# SPDX-License-Identifier: Apache-2.0
"""Editions 3 and 4 of build.toml, as differences to edition 5.

Neither has the key ``edition``. Edition 4 is upgraded whenever it is read; edition 3 only by
``kernforge migrate``, because a license and a framework must not be guessed silently. Editions 1 and
2 are not supported. Source: the migrations of kernel-builder 0.17.2.

These functions take the plain data of ``tomllib``, valid or not.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, TypeAlias

Data: TypeAlias = dict[str, Any]


class Edition(IntEnum):
    """The supported editions."""

    V3 = 3
    V4 = 4
    V5 = 5


_FRAMEWORKS = ("torch", "torch-noarch", "tvm-ffi")
_STABLE_ABI = ("torch", "stable-abi")
# Each key or table with its first edition.
_SINCE = {
    ("general", "source"): Edition.V4,
    ("torch", "cxx-flags"): Edition.V4,
    _STABLE_ABI: Edition.V4,
    ("torch-noarch",): Edition.V4,
    ("tvm-ffi", "cxx-flags"): Edition.V4,
    ("general", "kernel-depends"): Edition.V5,
    ("general", "cuda", "kernel-depends"): Edition.V5,
    ("general", "neuron", "kernel-depends"): Edition.V5,
    ("general", "xpu", "kernel-depends"): Edition.V5,
    ("general", "tpu"): Edition.V5,
}


def newer_keys(data: Data, edition: Edition) -> dict[tuple[str, ...], Edition]:
    """The paths in a file of this edition that need a later edition, with that edition.

    ``[torch] stable-abi`` is of edition 4 as text, and of edition 5 as a table.
    """
    newer = {path: since for path, since in _SINCE.items() if since > edition and _has(data, path)}
    if _has(data, _STABLE_ABI) and isinstance(data["torch"]["stable-abi"], dict):
        newer[_STABLE_ABI] = Edition.V5
    return newer


def lacking(data: Data) -> tuple[str, ...]:
    """Messages about the keys that edition 4 requires, edition 3 does not, and the file lacks."""
    keys = [key for key in ("version", "license") if not _has(data, ("general", key))]
    texts = [f"[general] has no '{key}'" for key in keys]
    return (*texts, *([] if has_framework(data) else ["there is no framework table"]))


def has_framework(data: Data) -> bool:
    """Whether the file has any of the three framework tables."""
    return any(name in data for name in _FRAMEWORKS)


def upgraded(data: Data, edition: Edition) -> Data:
    """The same file as edition 5; the argument is not changed.

    From 4, only the key ``edition`` is new. From 3, a missing version becomes 1 and a missing
    framework table ``[torch-noarch]``. A missing license stays missing: it cannot be guessed.
    """
    result = dict(data)
    if edition == Edition.V3 and not has_framework(data):
        result["torch-noarch"] = {}
    if isinstance(data.get("general"), dict):
        defaults = {"version": 1} if edition == Edition.V3 else {}
        result["general"] = {**defaults, **data["general"], "edition": int(Edition.V5)}
    return result


def _has(data: Data, path: tuple[str, ...]) -> bool:
    node: Any = data
    for key in path:
        if not isinstance(node, dict) or key not in node:
            return False
        node = node[key]
    return True
