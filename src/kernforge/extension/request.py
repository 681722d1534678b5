# SPDX-License-Identifier: Apache-2.0
"""Read the sources of an extension that is asked for.

What cannot succeed is refused here, before a compiler is started for it.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from kernforge.errors import BuildError, UsageError
from kernforge.extension import flags, machine
from kernforge.extension.device.units import ExtensionUnit
from kernforge.extension.files import Tree
from kernforge.extension.flags import Flags
from kernforge.extension.plan import Extension
from kernforge.source import op_schema
from kernforge.source.cpp_text import CUDA_SUFFIXES
from kernforge.source.op_namespace import EXTENSION_NAME
from kernforge.system import digest

SUFFIXES = (
    *(".cpp", ".cc", ".cxx", ".c++", ".cp", ".C", ".CPP", ".c", ".ii", ".i", ".s", ".S"),
    *CUDA_SUFFIXES,
)
"""Suffixes of the files that are compiled."""
_SYCL = ".sycl"
_TYPES = "types of a schema are Tensor, int, float, bool, str, ScalarType, Device, T? and T[]"
# Every way in which a source may become a Python module: pybind11, nanobind, Boost and by hand.
_MODULE = re.compile(rf"MODULE|PyInit|PLUGIN|{EXTENSION_NAME}")


def read_extension(request: Extension, tree: Tree) -> Extension:
    """Read the user's files, and separate the user's flags and directories from the toolchain's.

    Raises:
        UsageError: a source is not there, or in a language that is not compiled here.
    """
    if not request.texts:
        check_sources(request.sources, request.cflags)

    def parsed(words: Iterable[str]) -> Flags:
        return flags.parse_flags(map(tree.virtual, words), tree.here, tree.installed)

    cflags, cuda_cflags = parsed(request.cflags), parsed(request.cuda_cflags)
    named = [f"/{tree.path(path)}" for path in request.includes]
    search = list(dict.fromkeys((*named, *cflags.search, *cuda_cflags.search)))
    if request.build_directory:
        search.append(f"/{tree.path(request.build_directory)}")
    users = tuple(d.lstrip("/") for d in search if not tree.is_installed(d))
    apart = (d.lstrip("/") for d in (*cflags.apart, *cuda_cflags.apart))
    searched = tuple(dict.fromkeys((*users, *apart)))
    first = tuple(path.lstrip("/") for path in (*cflags.first, *cuda_cflags.first))
    units: list[ExtensionUnit] = []
    for path in map(tree.path, request.sources):
        closure = tree.closure(path, searched, first)
        texts = {each: tree.get(each) for each in closure.files}
        unit = ExtensionUnit(path=path, title=tree.title(path), texts=texts, closure=closure)
        units.append(unit)
    ldflags = flags.linker_flags(request.ldflags, request.here)
    linked = {path: tree.identity(path) for path in flags.linked_files(ldflags)}
    has_cuda = any(unit.is_cuda for unit in units)
    return replace(
        request,
        file=request.file or request.name + ("" if request.is_standalone else ".so"),
        units=tuple(units),
        cflags=cflags.words,
        cuda_cflags=cuda_cflags.words,
        dlink=None if request.dlink is None else parsed(request.dlink).words,
        ldflags=ldflags,
        linked={path: identity for path, identity in linked.items() if identity},
        includes=users,
        installed=tuple(d for d in search if d.lstrip("/") not in users),
        with_cuda=has_cuda if request.with_cuda is None else request.with_cuda,
    )


def check_module(module: Extension, restore: Callable[[str], str]) -> None:
    """Refuse what cannot succeed in this process, before a compiler is started for it.

    Args:
        restore: puts the user's paths into a message.

    Raises:
        BuildError: torch does not accept the schema of an operator.
        UsageError: a source does not define the module, or its name is none.
    """
    written = [text for unit in module.units for text in unit.texts.values()]
    check_name(module.name, written)
    check_schemas(module.units, restore)
    # A file that flags bring may define the module.
    brought = module.ldflags or "-include" in (*module.cflags, *module.cuda_cflags)
    if module.is_python_module and not brought:
        check_definition(module.name, written)


def content_key(module: Extension) -> str:
    """Digest of all that makes a module, whichever op namespaces this process has."""
    asked = replace(module, sources=(), texts=(), here="", build_directory="")
    return digest.sha256(repr(asked))


def paths(given: Any) -> tuple[str, ...]:
    """One path, or several, as texts."""
    listed = [given] if isinstance(given, str | bytes | os.PathLike) else given or ()
    return tuple(map(os.fsdecode, listed))


def refuse_sycl(given: object, wanted: bool | None) -> None:  # noqa: FBT001
    """Refuse what only torch's loader does.

    Raises:
        UsageError: there are sources or flags for SYCL.
    """
    if given or wanted:
        raise UsageError("SYCL sources are not compiled here", hint="use torch's own loader")


def check_sources(sources: Sequence[str], cflags: Iterable[str]) -> None:
    """Refuse files that a compiler would hand to the linker, or ignore, unless flags have ``-x``.

    Raises:
        UsageError: there are no sources, or one is in a language that is not compiled here.
    """
    if not sources:
        raise UsageError("there are no sources", hint="name at least one .cpp or .cu file")
    refuse_sycl([path for path in sources if path.endswith(_SYCL)], wanted=False)
    if any(flag.startswith("-x") for flag in cflags):
        return
    for path in sources:
        if not path.endswith(SUFFIXES) and not os.path.isdir(path):  # noqa: PTH112 - said later
            suffix = posixpath.splitext(path)[1]
            raise UsageError(
                f"{path} is not a source: {suffix or 'a file without a suffix'} is not compiled",
                hint="name .cpp (.cc, .cxx, .c) and .cu files; headers are found by their includes",
            )


def check_name(name: str, texts: Iterable[str]) -> None:
    """Refuse a name that no file, or no Python module of these sources, can have.

    Args:
        texts: the sources, and what they include.

    Raises:
        UsageError: it is such a name.
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
            f"{name!r} is not an identifier of C++, and {EXTENSION_NAME} in the sources stands for "
            "it",
            hint=hint,
        )


def check_schemas(units: Iterable[ExtensionUnit], restore: Callable[[str], str]) -> None:
    """Refuse operator schemas that torch does not accept: it would end the process while loading.

    Args:
        units: the sources, with what they include.
        restore: puts the user's paths into a message.

    Raises:
        BuildError: there are such schemas; the message is in the form of a compiler's.
    """
    texts = {path: text for unit in units for path, text in unit.texts.items()}
    wrong = []
    for path, text in texts.items():
        for line, schema in op_schema.schema_lines(text):
            if message := machine.schema_mistake(schema):
                wrong.append(restore(f"{path}:{line}: error: {message}"))
    if wrong:
        raise BuildError("\n".join(wrong), hint=_TYPES)


def check_definition(name: str, texts: Iterable[str]) -> None:
    """Refuse sources that cannot become a Python module, whatever a compiler makes of them.

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
