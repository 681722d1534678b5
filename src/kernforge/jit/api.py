# SPDX-License-Identifier: Apache-2.0
"""Compile sources for this process and import them: ``load`` and ``load_inline``.

Both take the arguments of ``torch.utils.cpp_extension`` (2.13). What was compiled once, by whatever
process, comes from the store; what this process has already and has not changed costs a look at the
files. An edit gives a new module, and what was made with the old one stays valid.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from kernforge.errors import BuildError, UsageError
from kernforge.jit import advice, machine, make, mistake, plan
from kernforge.jit import ask as jit_ask
from kernforge.jit import flags as jit_flags
from kernforge.jit import modules as jit_modules
from kernforge.jit import request as jit_request
from kernforge.jit.device import swap
from kernforge.jit.files import Tree
from kernforge.jit.request import Question
from kernforge.source import extension_source as generated
from kernforge.system import files
from kernforge.system.console import Report

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kernforge.jit.files import Seen
    from kernforge.jit.machine import Shop
    from kernforge.jit.modules import Loaded
    from kernforge.jit.plan import Request


@dataclass(slots=True, kw_only=True)
class _Known:
    """The answer to a question, what it was made from, and where the caller wanted it too."""

    seen: Seen
    content: str
    loaded: Loaded
    placed: str


@dataclass(slots=True)
class _Process:
    """What this process has compiled; a program that it makes is no part of it."""

    answers: dict[Question, _Known] = field(default_factory=dict)
    modules: dict[str, Loaded] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    locks: dict[str, threading.Lock] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)


_process = _Process()


def load(  # noqa: PLR0917 - torch's signature
    name: str | os.PathLike[str],
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | os.PathLike[str] | None = None,
    verbose: bool = False,  # noqa: FBT001, FBT002 - torch's signature
    with_cuda: bool | None = None,  # noqa: FBT001
    with_sycl: bool | None = None,  # noqa: FBT001
    is_python_module: bool = True,  # noqa: FBT001, FBT002
    is_standalone: bool = False,  # noqa: FBT001, FBT002
    keep_intermediates: bool = True,  # noqa: ARG001, FBT001, FBT002 - the store keeps or drops them
) -> Any:
    """Compile sources and load what comes of them; or build and load a kernel project.

    The arguments are those of ``torch.utils.cpp_extension.load``. ``load(directory)`` builds the
    project in that directory for this process's torch and GPU.

    Args:
        name: the module's name; the directory of a project when there are no sources.
        sources: paths of C++ (``.cpp``, ``.cc``, ...) and CUDA (``.cu``) sources.
        extra_cflags: for the C++ compiler.
        extra_cuda_cflags: for nvcc.
        extra_sycl_cflags: refused: kernforge compiles no SYCL.
        extra_ldflags: for the linker.
        extra_include_paths: where headers are looked for.
        build_directory: also put the shared object here, as ``<name>.so``.
        verbose: say what is compiled, on stderr.
        with_cuda: give C++ sources CUDA's headers and link its runtime; None: if a source is CUDA.
        with_sycl: refused.
        is_python_module: False for sources that only register operators.
        is_standalone: link a program.
        keep_intermediates: accepted for torch's sake.

    Returns:
        The module; the path of the shared object if it is no Python module; that of the program.

    Raises:
        BuildError: a compiler failed, with its words.
        ToolchainError: a compiler or toolkit is missing.
        UsageError: the call asks for something impossible.
    """
    if sources is None:
        from kernforge.jit.project import load_project  # noqa: PLC0415 - only who has one

        flags = (extra_cflags, extra_cuda_cflags, extra_ldflags, extra_include_paths)
        jit_ask.refuse_with_project((*flags, build_directory, with_cuda))
        return load_project(Path(name), verbose=verbose)
    jit_ask.refuse_sycl(extra_sycl_cflags, with_sycl)
    if is_python_module and is_standalone:
        raise UsageError("is_python_module and is_standalone exclude each other")
    here = jit_ask.here()
    listed = jit_ask.paths(sources, "sources")
    question = Question(
        name=os.fspath(name),
        sources=tuple(jit_flags.absolute(source, here) for source in listed),
        cflags=jit_flags.words(extra_cflags),
        cuda_cflags=jit_flags.words(extra_cuda_cflags),
        ldflags=jit_flags.words(extra_ldflags),
        includes=jit_ask.paths(extra_include_paths, "extra_include_paths"),
        build_directory=os.fspath(build_directory or ""),
        with_cuda=with_cuda,
        is_python_module=is_python_module,
        is_standalone=is_standalone,
        here=here,
        environment=machine.environment(),
    )
    return _answer(question, verbose=verbose)


def load_inline(  # noqa: PLR0917 - torch's signature
    name: str,
    cpp_sources: str | Sequence[str],
    cuda_sources: str | Sequence[str] | None = None,
    sycl_sources: str | Sequence[str] | None = None,
    functions: str | Sequence[str] | Mapping[str, str] | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | os.PathLike[str] | None = None,
    verbose: bool = False,  # noqa: FBT001, FBT002 - torch's signature
    with_cuda: bool | None = None,  # noqa: FBT001
    with_sycl: bool | None = None,  # noqa: FBT001
    is_python_module: bool = True,  # noqa: FBT001, FBT002
    with_pytorch_error_handling: bool = True,  # noqa: FBT001, FBT002
    keep_intermediates: bool = True,  # noqa: ARG001, FBT001, FBT002 - the store keeps or drops them
    use_pch: bool = False,  # noqa: ARG001, FBT001, FBT002 - headers are compiled ahead anyway
    no_implicit_headers: bool = False,  # noqa: FBT001, FBT002
) -> Any:
    """Compile sources that are given as text; the arguments are those of torch's ``load_inline``.

    Torch's headers are put before the sources as torch does it, but not before CUDA that shows no use
    of torch nor before a binding on torch's stable ABI, which compile many times faster without.
    CUDA for which that was wrong is compiled again with them.

    Args:
        name: the module's name.
        cpp_sources: C++.
        cuda_sources: CUDA.
        sycl_sources: refused: kernforge compiles no SYCL.
        functions: names to bind with pybind11, or names and docstrings.
        extra_cflags: as for ``load``, like all that is not named here.
        extra_cuda_cflags: see ``load``.
        extra_sycl_cflags: see ``load``.
        extra_ldflags: see ``load``.
        extra_include_paths: see ``load``.
        build_directory: see ``load``.
        verbose: see ``load``.
        with_cuda: see ``load``.
        with_sycl: see ``load``.
        is_python_module: see ``load``.
        with_pytorch_error_handling: call functions through torch's translation of errors.
        keep_intermediates: accepted for torch's sake.
        use_pch: accepted for torch's sake.
        no_implicit_headers: put no header before the sources.

    Returns:
        As ``load``.

    Raises:
        BuildError: as ``load``.
        ToolchainError: as ``load``.
        UsageError: as ``load``.
    """
    jit_ask.refuse_sycl(extra_sycl_cflags or sycl_sources, with_sycl)

    def ask(*, whole: bool) -> Any:
        texts = generated.inline(
            cpp_sources,
            cuda_sources or (),
            functions,
            error_handling=with_pytorch_error_handling,
            implicit_headers=not no_implicit_headers,
            whole=whole,
        )
        question = Question(
            name=name,
            sources=tuple(f"/{path}" for path in texts),
            texts=tuple(texts.items()),
            cflags=jit_flags.words(extra_cflags),
            cuda_cflags=jit_flags.words(extra_cuda_cflags),
            ldflags=jit_flags.words(extra_ldflags),
            includes=jit_ask.paths(extra_include_paths, "extra_include_paths"),
            build_directory=os.fspath(build_directory or ""),
            with_cuda=with_cuda,
            is_python_module=is_python_module,
            here=jit_ask.here(),
            environment=machine.environment(),
        )
        return question, texts

    question, texts = ask(whole=False)
    if question in _process.answers:
        return _answer(question, verbose=verbose)
    whole, all_texts = ask(whole=True)
    if whole in _process.answers or texts == all_texts:
        return _answer(whole, verbose=verbose)
    try:
        return _answer(question, verbose=verbose)
    except BuildError as error:
        words = str(error)
        if not generated.lacks_torch(words) or _fails_too(whole, words):
            raise
    # Not within the except: a reader wants the last error, and not that of the attempt before it.
    advice.tell_again(words)
    return _answer(whole, verbose=verbose)


def _fails_too(whole: Question, words: str) -> bool:
    """Whether a question that failed with fewer headers is certain to fail with all of torch's."""
    request, _, shop = _asked(whole, Tree(dict(whole.texts)), Report(quiet=True, failures=False))
    return mistake.is_certain(plan.make(request, shop.machine), shop, words)


def _answer(question: Question, *, verbose: bool) -> Any:
    known = _process.answers.get(question)
    if not _holds(known):
        with _alone(question.name):
            known = _process.answers.get(question)
            if not _holds(known):
                known = _make(question, Report(quiet=not verbose, failures=False))
                _process.answers[question] = known
    if known.loaded.spaces:
        known.loaded.show(machine.import_torch())
    found = known.loaded
    return found.module if question.is_python_module else str(found.path)


def _holds(known: _Known | None) -> TypeGuard[_Known]:
    return (
        known is not None
        and known.seen.unchanged()
        and swap.stands(known.loaded.path)
        and (not known.placed or os.path.exists(known.placed))  # noqa: PTH110 - a hot path
    )


def _place(question: Question, path: Path) -> str:
    """Put what was made into the caller's directory, if he named one; returns where it lies."""
    if not question.build_directory:
        return ""
    target = Path(question.here, question.build_directory, path.name)
    files.copy_atomic(path, target)
    return str(target)


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """One thread at a time makes the modules of one name."""
    with _process.lock:
        lock = _process.locks.setdefault(name, threading.Lock())
    with lock:
        yield


def _asked(question: Question, tree: Tree, report: Report) -> tuple[Request, list[str], Shop]:
    """The request behind a question, the user's files in it, and what makes it."""
    request, own, libraries, python = jit_request.read(question, tree, frozenset(_process.taken))
    device = request.has_device and not request.names_arch
    cuda = request.with_cuda or request.has_device
    shop = machine.look(report, cuda=cuda, libraries=libraries, python=python, device=device)
    return request, own, shop


def _make(question: Question, report: Report) -> _Known:
    tree = Tree(dict(question.texts))
    request, own, shop = _asked(question, tree, report)
    content = jit_request.content(request, python=question.is_python_module)
    if (loaded := _process.modules.get(content)) and swap.stands(loaded.path):
        placed = _place(question, loaded.path)
        return _Known(seen=tree.seen(), content=content, loaded=loaded, placed=placed)
    start = time.monotonic()
    made, path = make.make(request, shop, report, own)
    advice.tell(request.units, time.monotonic() - start, Report())
    placed = _place(question, path)
    if question.is_standalone:
        loaded = jit_modules.Loaded(path=path, module=None, spaces={})
    else:
        torch = machine.import_torch()
        names = generated.module_names([t for u in request.units for t in u.texts.values()])
        written = {n for n in names if n != generated.EXTENSION_NAME}
        name = question.name if not written or question.name in written else min(written)
        with _process.lock:
            loaded = jit_modules.load(
                path, name, made.namespaces, torch, python=question.is_python_module
            )
            _process.taken.update(made.namespaces, made.namespaces.values())
    _process.modules[content] = loaded
    return _Known(seen=tree.seen(), content=content, loaded=loaded, placed=placed)
