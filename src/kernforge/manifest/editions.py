# SPDX-License-Identifier: Apache-2.0
"""Editions 2 to 4 and 6 of build.toml, as differences to edition 5.

Editions before 5 do not have the key ``edition``. They are upgraded in memory whenever they are
read, and rewritten by ``kernforge adopt .``. A missing value gets a default that a note names:
version 1, and the license ``unknown``. Source: the migrations of kernel-builder 0.17.2 for editions
3 and 4, and for edition 2 those of ``build2cmake``, its predecessor.

Edition 6 has two more spellings: ``language`` for a section's ``backend``, and a list for
``upstream``.

The functions take the plain data of ``tomllib``, valid or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, TypeAlias, get_args

from kernforge.manifest.model import Backend, Path

Data: TypeAlias = dict[str, Any]


class Edition(IntEnum):
    """The supported editions."""

    V2 = 2
    V3 = 3
    V4 = 4
    V5 = 5
    V6 = 6


UNKNOWN_LICENSE = "unknown"
"""The license of a file that names none; the hub has this word for it."""
RENAMED = {"cutlass_sycl": "sycl_tla"}
"""Dependencies that had another name up to edition 3."""
_UNIVERSAL = ("cpu", "cuda", "metal", "rocm", "xpu")
_UNIVERSAL_KEY = ("general", "universal")
LANGUAGES = {f"cpp-{name}": name for name in _UNIVERSAL}
"""The languages that are compiled here, each with its backend."""
_CUDA_BOUNDS = {"cuda-minver": "minver", "cuda-maxver": "maxver"}
_FRAMEWORKS = ("torch", "torch-noarch", "tvm-ffi")
_STABLE_ABI = ("torch", "stable-abi")
_UPSTREAM = ("general", "upstream")
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

    ``[torch] stable-abi`` is of edition 4 as text, and of edition 5 as a table;
    ``[general] upstream`` is of edition 6 as a list.
    """
    newer = {path: since for path, since in _SINCE.items() if since > edition and _has(data, path)}
    other_types = ((_STABLE_ABI, dict, Edition.V5), (_UPSTREAM, list, Edition.V6))
    newer |= {
        (table, key): since
        for (table, key), kind, since in other_types
        if since > edition and _has(data, (table, key)) and isinstance(data[table][key], kind)
    }
    if edition == Edition.V5:
        named = (name for name, section in _sections(data).items() if "language" in section)
        newer |= {("kernel", name, "language"): Edition.V6 for name in named}
    return newer


def with_backends(data: Data) -> Data:
    """The same file with ``backend`` for ``language``; the argument is not changed.

    Sections of a language that is not compiled here, or unknown, are left out.
    """
    if not isinstance(data.get("kernel"), dict):
        return data
    kernels = dict(data["kernel"])
    for name, section in _sections(data).items():
        if "language" not in section:
            continue
        backend = LANGUAGES.get(str(section["language"]))
        without = {key: value for key, value in section.items() if key != "language"}
        if backend or "backend" in section:
            kernels[name] = {"backend": backend, **without}
        else:
            del kernels[name]
    return {**data, "kernel": kernels}


def other_languages(data: Data) -> dict[str, str]:
    """The sections of a language that is not compiled here, such as ``rust-cpu``, by name."""
    named = {name: str(section.get("language")) for name, section in _sections(data).items()}
    known = get_args(Backend)
    return {
        name: language
        for name, language in named.items()
        if language not in LANGUAGES and language.rpartition("-")[2] in known
    }


def wrong_languages(data: Data) -> Iterator[tuple[Path, str]]:
    """The mistakes in the languages of sections: path and problem."""
    other = other_languages(data)
    for name, section in _sections(data).items():
        path = ("kernel", name, "language")
        if {"language", "backend"} <= section.keys():
            yield path, "the section has a backend, too; write one of them"
        elif "language" in section and name not in other and section["language"] not in LANGUAGES:
            yield path, f"expected one of {', '.join(LANGUAGES)}"


def is_before_4(data: Data) -> bool:
    """Whether the file lacks something that edition 4 requires and edition 3 does not."""
    keys = [("general", "version"), ("general", "license")]
    return not has_framework(data) or not all(_has(data, key) for key in keys)


def is_meant_as_4(data: Data) -> bool:
    """Whether a file that is not valid in edition 3 has a version, or no ``[general]`` at all."""
    general = data.get("general")
    return not isinstance(general, dict) or (
        "version" in general and "_" not in str(general.get("name"))
    )


def has_framework(data: Data) -> bool:
    """Whether the file has any of the three framework tables."""
    return any(name in data for name in _FRAMEWORKS)


def is_before_3(data: Data) -> bool:
    """Whether a file is of edition 2, which has no ``backends``: the sections say what is built.

    A file that has all that is new in edition 4 but for ``backends`` is of edition 4, and lacks
    them.
    """
    general = data.get("general")
    if not isinstance(general, dict) or {"edition", "backends"} & {*general}:
        return False
    if {"version", "license"} <= {*general}:
        return False
    if not {"torch", "kernel"} & {*data} and "universal" not in general:
        return False
    return not {"torch-noarch", "tvm-ffi"} & {*data}


def is_universal(data: Data) -> bool:
    """Whether a file of edition 2 says that the kernel is Python alone."""
    return _has(data, _UNIVERSAL_KEY) and data["general"]["universal"] is True


def is_noarch(data: Data) -> bool:
    """Whether the framework table of a file of edition 2 becomes ``[torch-noarch]``."""
    compiles = data.get("kernel") or (_has(data, ("torch", "src")) and data["torch"]["src"])
    return is_universal(data) and not compiles


def upgraded(data: Data, edition: Edition) -> Data:
    """The same file as edition 5; the argument is not changed.

    From 4, only the key ``edition`` is new. From 3, a missing version becomes 1, a missing license
    ``UNKNOWN_LICENSE``, a missing framework table ``[torch-noarch]``, and the underscores of a name
    dashes: the name of the Python package stays. From 2, the backends are
    those of the sections, ``universal`` means Python alone, for every backend, and the bounds of
    CUDA move to ``[general.cuda]``.
    """
    result = _from_2(data) if edition == Edition.V2 else dict(data)
    if edition == Edition.V3 and not has_framework(data):
        result["torch-noarch"] = {}
    if isinstance(data.get("general"), dict):
        defaults: Data = {}
        if edition <= Edition.V3:
            defaults = {"version": 1, "license": UNKNOWN_LICENSE}
        general = {**defaults, **result["general"], "edition": int(Edition.V5)}
        if edition <= Edition.V3 and isinstance(general.get("name"), str):
            general["name"] = general["name"].replace("_", "-")
        result["general"] = general
    if edition <= Edition.V3 and isinstance(result.get("kernel"), dict):
        result["kernel"] = {name: _renamed(s) for name, s in result["kernel"].items()}
    return result


def _renamed(section: object) -> object:
    """A section with the new names of its dependencies."""
    if not isinstance(section, dict) or not isinstance(section.get("depends"), list):
        return section
    depends = [RENAMED.get(d, d) if isinstance(d, str) else d for d in section["depends"]]
    return {**section, "depends": depends}


def _from_2(data: Data) -> Data:
    result = dict(data)
    general = dict(data["general"])
    general.pop("universal", None)
    bounds = {new: general.pop(old) for old, new in _CUDA_BOUNDS.items() if old in general}
    if bounds and isinstance(general.get("cuda", {}), dict):
        general["cuda"] = {**general.get("cuda", {}), **bounds}
    named = (section.get("backend") for section in _sections(result).values())
    by_section = sorted({name for name in named if isinstance(name, str)})
    general["backends"] = list(_UNIVERSAL) if is_universal(data) else by_section
    result["general"] = general
    if isinstance(data.get("torch"), dict):
        if is_noarch(data):
            torch = result.pop("torch")
            result["torch-noarch"] = {k: v for k, v in torch.items() if k not in {"src", "include"}}
    elif "torch" not in data and not data.get("kernel"):
        result["torch-noarch"] = {}
    return result


def _sections(data: Data) -> dict[str, Data]:
    kernels = data.get("kernel")
    tables = kernels.items() if isinstance(kernels, dict) else ()
    return {name: section for name, section in tables if isinstance(section, dict)}


def _has(data: Data, path: tuple[str, ...]) -> bool:
    node: Any = data
    for key in path:
        if not isinstance(node, dict) or key not in node:
            return False
        node = node[key]
    return True
