# SPDX-License-Identifier: Apache-2.0
"""Request of a caller of ``load`` or ``load_inline``, and the planner's module for it.

A request is plain values, so that the same request is known again. What cannot succeed is refused
here, before a compiler is started for it.
"""

from __future__ import annotations

import os
import posixpath
import re
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernforge.errors import BuildError, UsageError
from kernforge.extension import flags, machine
from kernforge.extension.files import Tree, find_closure
from kernforge.extension.plan import ModuleRequest, ModuleUnit
from kernforge.source import extension_source, op_schema
from kernforge.source.extension_source import CUDA_SUFFIXES, EXTENSION_NAME
from kernforge.source.message_names import MessageNames, Part
from kernforge.system import digest
from kernforge.system.environment import Environment
from kernforge.toolchain import installed

_SUFFIXES = (
    *(".cpp", ".cc", ".cxx", ".c++", ".cp", ".C", ".CPP", ".c", ".ii", ".i", ".s", ".S"),
    *CUDA_SUFFIXES,
)
_SYCL = ".sycl"
_TYPES = "types of a schema are Tensor, int, float, bool, str, ScalarType, Device, T? and T[]"
# Every way in which a source may become a Python module: pybind11, nanobind, Boost and by hand.
_MODULE = re.compile(rf"MODULE|PyInit|PLUGIN|{EXTENSION_NAME}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JitRequest:
    """What a caller requests, as plain values.

    Attributes:
        sources: absolute paths.
        texts: path and text of each source that is not on the disk.
        parts: path and the user's sources of each text that is generated.
        build_directory: where the caller wants the shared object too; empty for nowhere.
        with_cuda: whether C++ sources get CUDA's headers; None: if a source is CUDA.
        is_python_module: False for sources that only register operators.
        here: the current directory, from which relative paths start.
        environment: values of the variables that decide what is compiled with.
    """

    name: str
    sources: tuple[str, ...]
    texts: tuple[tuple[str, str], ...] = ()
    parts: tuple[tuple[str, tuple[Part, ...]], ...] = ()
    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    build_directory: str = ""
    with_cuda: bool | None = None
    is_python_module: bool = True
    is_standalone: bool = False
    here: str = ""
    environment: tuple[str | None, ...] = ()


def resolve_request(
    request: JitRequest, tree: Tree, environment: Environment
) -> tuple[ModuleRequest, MessageNames]:
    """Read the user's files, and separate the user's flags and directories from the machine's.

    Returns:
        The module to plan, and what the user calls its sources.

    Raises:
        BuildError: torch does not accept the schema of an operator.
        UsageError: a source is not there, or does not define the module.
    """
    if not request.texts:
        check_sources(request.sources, request.cflags)
    cuda_home = installed.find_cuda(environment.variables)
    torch = Path(machine.import_torch().__file__).parent
    homes = [str(cuda_home), str(cuda_home.resolve())] if cuda_home else []
    python = (sysconfig.get_path("include"), sysconfig.get_path("platinclude"))
    toolchain = (*python, str(torch), *homes)
    cflags = flags.parse_flags(request.cflags, request.here, toolchain)
    cuda_cflags = flags.parse_flags(request.cuda_cflags, request.here, toolchain)
    named = [flags.absolute(path, request.here) for path in request.includes]
    search = list(dict.fromkeys((*named, *cflags.search, *cuda_cflags.search)))
    if request.build_directory:
        search.append(flags.absolute(request.build_directory, request.here))
    users = tuple(d.lstrip("/") for d in search if not flags.is_installed(d, toolchain))
    first = tuple(path.lstrip("/") for path in (*cflags.first, *cuda_cflags.first))
    apart = (d.lstrip("/") for d in (*cflags.apart, *cuda_cflags.apart))
    searched = tuple(dict.fromkeys((*users, *apart)))
    units: list[ModuleUnit] = []
    for source in request.sources:
        path = source.lstrip("/")
        closure = find_closure(path, searched, first, tree)
        units.append(ModuleUnit(path=path, texts=tree.texts(closure), closure=closure))
    has_cuda = any(unit.path.endswith(CUDA_SUFFIXES) for unit in units)
    written = [text for unit in units for text in unit.texts.values()]
    check_name(request.name, written)
    names = MessageNames(
        files=tuple(sorted({path for u in units for path in u.texts} - dict(request.texts).keys())),
        parts=dict(request.parts),
    )
    check_schemas(units, names)
    check_registration(units, names)
    # A file that flags bring may define the module.
    if request.is_python_module and not (first or request.ldflags):
        check_module(request.name, written)
    ldflags = flags.linker_flags(request.ldflags, request.here)
    linked = {path: tree.watch(path) for path in flags.linked_files(ldflags)}
    if request.is_standalone:
        ldflags = (*ldflags, f"-Wl,-rpath,{torch / 'lib'}")
    module = ModuleRequest(
        name=request.name,
        units=tuple(units),
        cflags=cflags.words,
        cuda_cflags=cuda_cflags.words,
        ldflags=ldflags,
        linked={path: stamp for path, stamp in linked.items() if stamp},
        includes=users,
        installed=tuple(d for d in search if d.lstrip("/") not in users),
        with_cuda=has_cuda if request.with_cuda is None else request.with_cuda,
        executable=request.is_standalone,
    )
    return module, names


def content_key(request: JitRequest, module: ModuleRequest) -> str:
    """Digest of all that makes a module, whichever op namespaces this process has."""
    return digest.key(
        "jit-content",
        name=module.name,
        units=[{path: digest.sha256(text) for path, text in u.texts.items()} for u in module.units],
        order=[unit.path for unit in module.units],
        cflags=list(module.cflags),
        cuda_cflags=list(module.cuda_cflags),
        ldflags=list(module.ldflags),
        includes=[*module.includes, "", *module.installed],
        linked={path: list(stamp) for path, stamp in module.linked.items()},
        form=[module.executable, module.with_cuda, request.is_python_module],
        environment=[value or "" for value in request.environment],
    )


def current_directory() -> str:
    """The current directory.

    Raises:
        UsageError: it was removed.
    """
    try:
        return os.getcwd()  # noqa: PTH109 - a hot path
    except FileNotFoundError as error:
        raise UsageError(
            "the current directory does not exist any more", hint="change to one that does"
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
    texts = []
    for each in listed:
        path = os.fspath(each) if isinstance(each, str | os.PathLike) else each
        if not isinstance(path, str):
            raise UsageError(f"{what} has {each!r}, which is not a path", hint="give str or Path")
        texts.append(path)
    return tuple(texts)


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
        UsageError: a flag or the like is given with a project.
    """
    if any(each is not None for each in given):
        raise UsageError(
            "no sources are given, so this is a kernel project, whose flags are in its build.toml",
            hint="name the sources, or write the flags into build.toml",
        )


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
        if not path.endswith(_SUFFIXES) and not os.path.isdir(path):  # noqa: PTH112 - said later
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


def check_schemas(units: Iterable[ModuleUnit], names: MessageNames) -> None:
    """Refuse operator schemas that torch does not accept: it would end the process while loading.

    Args:
        units: the sources, with what they include.
        names: what the user calls them.

    Raises:
        BuildError: there are such schemas; the message is in the form of a compiler's.
    """
    texts = {path: text for unit in units for path, text in unit.texts.items()}
    wrong = []
    for path, text in texts.items():
        for line, schema in op_schema.schema_lines(text):
            if message := machine.schema_mistake(schema):
                wrong.append(names.restore(f"{path}:{line}: error: {message}"))
    if wrong:
        raise BuildError("\n".join(wrong), hint=_TYPES)


def check_registration(units: Iterable[ModuleUnit], names: MessageNames) -> None:
    """Refuse macros of a header that is not included: what a compiler says of them is about syntax.

    Raises:
        BuildError: there is one; the message is in the form of a compiler's.
    """
    for unit in units:
        if unit.closure.opaque:
            continue
        defined = extension_source.namespaces(list(unit.texts.values()))
        path, line, macro = extension_source.missing_macro(unit.texts, defined)
        if macro:
            raise BuildError(
                names.restore(f"{path}:{line}: error: {macro} is not defined"),
                hint=extension_source.REGISTRATION_HINT,
            )


def check_module(name: str, texts: Iterable[str]) -> None:
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
