# SPDX-License-Identifier: Apache-2.0
"""What a caller of ``load`` or ``load_inline`` asks for, and the request that it makes of the planner.

A question is plain values, so that the same question is known again. Reading it finds the user's files
and tells the flags and directories that are the user's from those of the machine.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.jit import ask, flags, machine, plan
from kernforge.jit.files import closure
from kernforge.source.extension_source import CUDA_SUFFIXES
from kernforge.system import digest
from kernforge.toolchain import installed

if TYPE_CHECKING:
    from kernforge.jit.files import Tree
    from kernforge.jit.plan import Request, Unit

_SYSTEM = ("/usr", "/opt/rocm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a caller asks for, as plain values."""

    name: str
    sources: tuple[str, ...]
    texts: tuple[tuple[str, str], ...] = ()
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


def read(
    question: Question, tree: Tree, taken: frozenset[str]
) -> tuple[Request, list[str], bool, bool]:
    """The request behind a question, the user's files in it, and what headers they may read.

    Args:
        question: what is asked for.
        tree: reads files, and remembers which.
        taken: op namespaces that the process has.

    Returns:
        The request; paths of the user's files; whether a unit may read headers of CUDA's libraries, and
        of Python.

    Raises:
        UsageError: a source is not there, or does not define the module.
    """
    if not question.texts:
        ask.check_sources(question.sources, question.cflags)
    cuda_home = installed.find_cuda(os.environ)
    torch = Path(machine.import_torch().__file__).parent
    toolchain_dirs = (*_SYSTEM, str(torch), *([str(cuda_home)] if cuda_home else []))
    compiled = flags.parted(question.cflags, question.here, toolchain_dirs)
    for_cuda = flags.parted(question.cuda_cflags, question.here, toolchain_dirs)
    named = [flags.absolute(path, question.here) for path in question.includes]
    search = list(dict.fromkeys((*named, *compiled.search, *for_cuda.search)))
    if question.build_directory:
        search.append(flags.absolute(question.build_directory, question.here))
    mine = tuple(d.lstrip("/") for d in search if not flags.is_below(d, toolchain_dirs))
    first = tuple(path.lstrip("/") for path in (*compiled.first, *for_cuda.first))
    apart = (d.lstrip("/") for d in (*compiled.apart, *for_cuda.apart))
    searched = tuple(dict.fromkeys((*mine, *apart)))
    units: list[Unit] = []
    for source in question.sources:
        path = source.lstrip("/")
        found = closure(path, searched, first, tree)
        texts = {one: tree.get(one) for one in found.files}
        units.append(plan.Unit(path=path, texts=texts, closure=found))
    guess = any(unit.path.endswith(CUDA_SUFFIXES) for unit in units)
    written = [text for unit in units for text in unit.texts.values()]
    ask.check_name(question.name, written)
    # A file that flags bring may be where the module is defined.
    if question.is_python_module and not (first or question.ldflags):
        ask.check_module(question.name, written)
    ldflags = flags.linker(question.ldflags, question.here)
    linked = {path: tree.watch(path) for path in flags.linked(ldflags)}
    if question.is_standalone:
        ldflags = (*ldflags, f"-Wl,-rpath,{torch / 'lib'}")
    request = plan.Request(
        name=question.name,
        units=tuple(units),
        cflags=compiled.words,
        cuda_cflags=for_cuda.words,
        ldflags=ldflags,
        linked={path: found for path, found in linked.items() if found},
        includes=mine,
        installed=tuple(d for d in search if d.lstrip("/") not in mine),
        with_cuda=guess if question.with_cuda is None else question.with_cuda,
        executable=question.is_standalone,
        taken=taken,
    )
    inline = {path for path, _ in question.texts}
    own = sorted({path for unit in units for path in unit.texts} - inline)
    libraries = any(unit.closure.reaches_cuda_libraries for unit in units)
    return request, own, libraries, any(unit.closure.reaches_python for unit in units)


def content(request: Request, *, python: bool) -> str:
    """Digest of all that makes a module, whatever names this process has taken."""
    return digest.key(
        "jit-content",
        name=request.name,
        units=[
            {path: digest.sha256(text) for path, text in u.texts.items()} for u in request.units
        ],
        order=[unit.path for unit in request.units],
        cflags=list(request.cflags),
        cuda_cflags=list(request.cuda_cflags),
        ldflags=list(request.ldflags),
        includes=[*request.includes, "", *request.installed],
        linked={path: list(found) for path, found in request.linked.items()},
        form=[request.executable, request.with_cuda, python],
        environment=[value or "" for value in machine.environment()],
    )
