# SPDX-License-Identifier: Apache-2.0
"""Editions 1 to 4 of build.toml, as differences to edition 5.

None of them has the key ``edition``. All are upgraded in memory whenever they are read, and
rewritten by ``kernforge migrate``. What an old edition does not say gets a value that a note names:
version 1, and the license ``unknown``. Source: the migrations of kernel-builder 0.17.2 for editions
3 and 4, and for editions 1 and 2 those of ``build2cmake``, its predecessor.

These functions take the plain data of ``tomllib``, valid or not.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernforge.manifest.toml_positions import Path

Data: TypeAlias = dict[str, Any]


class Edition(IntEnum):
    """The supported editions."""

    V1 = 1
    V2 = 2
    V3 = 3
    V4 = 4
    V5 = 5


UNKNOWN_LICENSE = "unknown"
"""The license of a file that names none; the hub has this word for it."""
LANGUAGES = {"cuda": ("cuda",), "cuda-hipify": ("cuda", "rocm"), "metal": ("metal",)}
"""The values of ``language`` in edition 1, with the backends that each is built for."""
RENAMED = {"cutlass_sycl": "sycl_tla"}
"""Dependencies that had another name up to edition 3."""
_UNIVERSAL = ("cpu", "cuda", "metal", "rocm", "xpu")
_CUDA_BOUNDS = {"cuda-minver": "minver", "cuda-maxver": "maxver"}
_OTHER_ARCHS = {"cuda": ("rocm-archs",), "rocm": ("cuda-capabilities",)}
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


def is_before_4(data: Data) -> bool:
    """Whether the file lacks something that edition 4 requires and edition 3 does not."""
    keys = [("general", "version"), ("general", "license")]
    return not has_framework(data) or not all(_has(data, key) for key in keys)


def has_framework(data: Data) -> bool:
    """Whether the file has any of the three framework tables."""
    return any(name in data for name in _FRAMEWORKS)


def before_3(data: Data) -> Edition | None:
    """Edition 1 or 2 if the file is of one of them.

    They have no ``backends``: the sections, or ``universal``, say what is built. A file that has
    all that is new in edition 4 but for ``backends`` is of edition 4, and lacks them.
    """
    general = data.get("general")
    if not isinstance(general, dict) or {"edition", "backends"} & {*general}:
        return None
    if {"version", "license"} <= {*general}:
        return None
    if not {"torch", "kernel"} & {*data} and "universal" not in general:
        return None
    if {"torch-noarch", "tvm-ffi"} & {*data}:
        return None
    old = any("language" in s or "backend" not in s for s in _sections(data).values())
    return Edition.V1 if old or _has(data, ("torch", "universal")) else Edition.V2


def is_universal(data: Data) -> bool:
    """Whether a file of edition 1 or 2 says that the kernel is Python alone."""
    paths = (("general", "universal"), ("torch", "universal"))
    return any(_has(data, (table, key)) and data[table][key] is True for table, key in paths)


def is_noarch(data: Data) -> bool:
    """Whether the framework table of a file of edition 1 or 2 becomes ``[torch-noarch]``."""
    compiles = data.get("kernel") or (_has(data, ("torch", "src")) and data["torch"]["src"])
    return is_universal(data) and not compiles


def wrong_values(data: Data) -> Iterator[tuple[Path, str]]:
    """What is wrong with the keys that only editions 1 and 2 have: path and problem."""
    for path in (("general", "universal"), ("torch", "universal")):
        if _has(data, path) and not isinstance(data[path[0]][path[1]], bool):
            yield path, "expected true or false"
    for name, section in _sections(data).items():
        language = section.get("language", "cuda")
        if language not in LANGUAGES:
            yield ("kernel", name, "language"), f"expected one of {', '.join(LANGUAGES)}"
        elif "language" in section and "backend" in section:
            problem = "'backend' says it too, in a later edition; remove one of them"
            yield ("kernel", name, "language"), problem
        elif len(LANGUAGES[language]) > 1 and f"{name}_rocm" in _sections(data):
            problem = f"it makes a section {name}_rocm, and there is one already"
            yield ("kernel", name, "language"), problem


def written_path(path: Path, data: Data) -> Path:
    """Where a file of edition 1 or 2 has what is at a path of its upgrade."""
    if path[:2] == ("general", "cuda") and len(path) > 2:  # noqa: PLR2004 - a key of the table
        old = next((o for o, new in _CUDA_BOUNDS.items() if new == path[2]), "")
        return ("general", old) if _has(data, ("general", old)) else path
    if path[:1] == ("torch-noarch",) and "torch-noarch" not in data:
        return ("torch", *path[1:])
    if path[:1] == ("kernel",) and len(path) > 1 and path[1] not in _sections(data):
        return ("kernel", str(path[1]).removesuffix("_rocm"), *path[2:])
    return path


def upgraded(data: Data, edition: Edition) -> Data:
    """The same file as edition 5; the argument is not changed.

    From 4, only the key ``edition`` is new. From 3, a missing version becomes 1, a missing license
    ``UNKNOWN_LICENSE``, a missing framework table ``[torch-noarch]``, and the underscores of a name
    dashes: the name of the Python package stays. From 2, the backends are
    those of the sections, and ``universal`` means Python alone, for every backend. From 1, a
    section's backend comes from its ``language``.
    """
    result = _from_2(data) if edition <= Edition.V2 else dict(data)
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
    if isinstance(data.get("kernel"), dict):
        result["kernel"] = dict(_expanded(data))
    named = (section.get("backend") for section in _sections(result).values())
    by_section = sorted({name for name in named if isinstance(name, str)})
    general["backends"] = list(_UNIVERSAL) if is_universal(data) else by_section
    result["general"] = general
    if isinstance(data.get("torch"), dict):
        torch = {key: value for key, value in data["torch"].items() if key != "universal"}
        result["torch"] = torch
        if is_noarch(data):
            del result["torch"]
            result["torch-noarch"] = {k: v for k, v in torch.items() if k not in {"src", "include"}}
    elif "torch" not in data and not data.get("kernel"):
        result["torch-noarch"] = {}
    return result


def _expanded(data: Data) -> Iterator[tuple[str, object]]:
    """The sections by backend: ``cuda-hipify`` makes a second one."""
    for name, section in data["kernel"].items():
        if not isinstance(section, dict) or "backend" in section:
            yield name, section
            continue
        language = section.get("language", "cuda")
        rest = {key: value for key, value in section.items() if key != "language"}
        for backend in LANGUAGES.get(language if isinstance(language, str) else "", ("cuda",)):
            if backend == "rocm" and f"{name}_rocm" in data["kernel"]:
                continue
            kept = {k: v for k, v in rest.items() if k not in _OTHER_ARCHS.get(backend, ())}
            yield name + ("_rocm" if backend == "rocm" else ""), {"backend": backend, **kept}


def _sections(data: Data) -> dict[str, Data]:
    kernels = data.get("kernel")
    found = kernels.items() if isinstance(kernels, dict) else ()
    return {name: section for name, section in found if isinstance(section, dict)}


def _has(data: Data, path: tuple[str, ...]) -> bool:
    node: Any = data
    for key in path:
        if not isinstance(node, dict) or key not in node:
            return False
        node = node[key]
    return True
