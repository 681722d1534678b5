# SPDX-License-Identifier: Apache-2.0
"""What a caller of the loaders may ask: refused in words, before a compiler is started for nothing."""

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING, Any

from kernforge.errors import UsageError
from kernforge.source.extension_source import CUDA_SUFFIXES, EXTENSION_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SUFFIXES = (
    *(".cpp", ".cc", ".cxx", ".c++", ".cp", ".C", ".CPP", ".c", ".ii", ".i", ".s", ".S"),
    *CUDA_SUFFIXES,
)
_SYCL = ".sycl"
# Every way in which a source may come to be a Python module: pybind11, nanobind, Boost and by hand.
_MODULE = re.compile(rf"MODULE|PyInit|PLUGIN|{EXTENSION_NAME}")


def here() -> str:
    """The current directory.

    Raises:
        UsageError: it was removed.
    """
    try:
        return os.getcwd()  # noqa: PTH109 - a hot path
    except FileNotFoundError as error:
        raise UsageError(
            "the current directory is not there any more", hint="change to one that is"
        ) from error


def paths(given: object, what: str) -> tuple[str, ...]:
    """One path, or several, as texts.

    Args:
        given: a path, a sequence of paths, or None.
        what: the argument's name, for the error.

    Raises:
        UsageError: something else is among them.
    """
    listed: Any = [given] if isinstance(given, str | bytes | os.PathLike) else given or ()
    found = []
    for one in listed:
        path = os.fspath(one) if isinstance(one, str | os.PathLike) else one
        if not isinstance(path, str):
            raise UsageError(f"{what} has {one!r}, which is no path", hint="give str or Path")
        found.append(path)
    return tuple(found)


def refuse_sycl(given: object, wanted: bool | None) -> None:  # noqa: FBT001
    """Refuse what only torch's loader does.

    Raises:
        UsageError: there are sources or flags for SYCL.
    """
    if given or wanted:
        raise UsageError("SYCL sources are not compiled here", hint="use torch's own loader")


def refuse_with_project(given: Iterable[object]) -> None:
    """Refuse what a project's build.toml says itself.

    Raises:
        UsageError: a flag or the like is given beside a project.
    """
    if any(one is not None for one in given):
        raise UsageError(
            "no sources are given, so this is a kernel project, whose flags are in its build.toml",
            hint="name the sources, or write the flags into build.toml",
        )


def check_sources(sources: Sequence[str], flags: Iterable[str]) -> None:
    """Refuse files that a compiler would hand to the linker, or take for nothing.

    Args:
        sources: paths.
        flags: for the C++ compiler; ``-x`` among them says itself what the sources are.

    Raises:
        UsageError: there are no sources, or one is in no language that is compiled here.
    """
    if not sources:
        raise UsageError("there are no sources", hint="name at least one .cpp or .cu file")
    refuse_sycl([path for path in sources if path.endswith(_SYCL)], wanted=False)
    if any(flag.startswith("-x") for flag in flags):
        return
    for path in sources:
        if not path.endswith(_SUFFIXES) and not os.path.isdir(path):  # noqa: PTH112 - said later
            suffix = posixpath.splitext(path)[1]
            raise UsageError(
                f"{path} is no source: nothing compiles {suffix or 'a file without a suffix'}",
                hint="name .cpp (.cc, .cxx, .c) and .cu files; headers are found by their includes",
            )


def check_name(name: str, texts: Iterable[str]) -> None:
    """Refuse a name that no file, or no Python module of these sources, can have.

    Args:
        name: the module's, or the program's.
        texts: the sources, and what they include.

    Raises:
        UsageError: it cannot be had.
    """
    if not name or name in {".", ".."} or "/" in name or "\0" in name:
        raise UsageError(
            f"{name!r} cannot be the name of a module",
            hint="write a word, as my_kernel; build_directory says where it is put",
        )
    word = name.isascii() and name.isidentifier()
    if not word and any(EXTENSION_NAME in text for text in texts):
        hint = f"call it {re.sub(r'[^A-Za-z0-9_]|^(?=[0-9])', '_', name)!r}"
        raise UsageError(
            f"{name!r} is no word of C++, and {EXTENSION_NAME} in the sources stands for it",
            hint=hint,
        )


def check_module(name: str, texts: Iterable[str]) -> None:
    """Refuse sources of which no Python module can come, whatever a compiler makes of them.

    Args:
        name: the module's.
        texts: the sources, and what they include.

    Raises:
        UsageError: none of them defines one.
    """
    if not any(_MODULE.search(text) for text in texts):
        raise UsageError(
            f"no source defines the Python module {name}",
            hint=(
                f"write PYBIND11_MODULE({EXTENSION_NAME}, m), or functions=[...] with load_inline; "
                "or pass is_python_module=False for sources that only register operators"
            ),
        )
