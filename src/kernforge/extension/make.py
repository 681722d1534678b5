# SPDX-License-Identifier: Apache-2.0
"""Get a requested module into the store.

First with torch's headers cut to what its sources use, then with the headers as they are.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path

from kernforge.builder.execute import action as execute_action
from kernforge.builder.execute import executor, results
from kernforge.builder.execute.action import ActionContext, Failure
from kernforge.builder.execute.executor import Events
from kernforge.builder.execute.results import STORE_KIND
from kernforge.builder.plan.graph import Plan
from kernforge.errors import BuildError
from kernforge.extension import advice, machine, torch_headers
from kernforge.extension.device import nvcc_stages, swap
from kernforge.extension.device.units import ModulePlan
from kernforge.extension.plan import TORCH, JitToolchain, ModuleRequest, plan_module
from kernforge.extension.session import JitSession
from kernforge.extension.torch_headers import ReadHeader
from kernforge.source import compiler_advice
from kernforge.source.message_names import MessageNames
from kernforge.store import eviction
from kernforge.store.local import Store
from kernforge.system import digest, files
from kernforge.system.console import Console

_log = logging.getLogger("kernforge")
_MARK = "whole"
_LINK = "link "
"""The store is not held to its limit more often: that takes longer than an edit."""


class _CompileError(BuildError):
    """Compilers failed.

    Attributes:
        failures: the actions.
    """

    failures: tuple[Failure, ...] = ()


def make_module(
    session: JitSession,
    request: ModuleRequest,
    toolchain: JitToolchain,
    console: Console,
    names: MessageNames,
) -> tuple[ModulePlan, Path]:
    """Get a requested module into the store.

    Args:
        session: the process's; the module's op namespaces are taken in it.
        names: what the user calls the sources.

    Returns:
        The plan that made it, and the path of the shared object or of the program.

    Raises:
        BuildError: a compiler failed; the message is what it wrote, with the user's paths.
        StorageError: the disk is full or read-only.
    """
    compile_module = functools.partial(
        _compile, session, toolchain=toolchain, console=console, names=names
    )
    if slim := _cut_headers(session, request, toolchain):
        with session.planned(slim, toolchain.machine) as (planned, module):
            if toolchain.store.has(STORE_KIND, _mark(module)):
                session.release(module)
            else:
                try:
                    return module, compile_module(planned, module)
                except _CompileError as error:
                    if not _fell_short(error.failures, planned, toolchain):
                        raise
                    session.release(module)
                    _note_whole(session, request, toolchain.store, _mark(module), error)
    # Not within the except: a reader wants the last error, and not that of the attempt before it.
    with session.planned(request, toolchain.machine) as (planned, module):
        return module, compile_module(planned, module)


def _fell_short(
    failures: tuple[Failure, ...], request: ModuleRequest, toolchain: JitToolchain
) -> bool:
    """Whether a module that failed may compile with torch's headers as they are."""
    texts = {path: text for unit in request.units for path, text in unit.texts.items()}
    directory = toolchain.trees[TORCH]
    return all(
        # A linker misses no header.
        "-c" in each.action.argv and torch_headers.fell_short(each.output, texts, TORCH, directory)
        for each in failures
    )


def _cut_headers(
    session: JitSession, request: ModuleRequest, toolchain: JitToolchain
) -> ModuleRequest | None:
    """The request with torch's headers cut; None if it is known to need them, or they cannot be."""
    if session.environment.kernforge_jit_slim == "0" or _name(request) in session.whole:
        return None
    include = str(Path(toolchain.trees[TORCH]) / "include")
    known = session.torch_headers.setdefault(include, {})
    return torch_headers.cut(request, header_reader(Path(include), known))


def header_reader(directory: Path, known: dict[str, str | None]) -> ReadHeader:
    """A function that reads headers below a directory, each once."""

    def read(name: str) -> str | None:
        if name not in known:
            path = directory / name
            known[name] = path.read_text(encoding="utf-8") if path.is_file() else None
        return known[name]

    return read


def _note_whole(
    session: JitSession, request: ModuleRequest, store: Store, mark: str, error: BuildError
) -> None:
    """Note, for other processes too, that a module needs torch's headers as they are."""
    if session.environment.kernforge_jit_hint != "0":
        Console().note(advice.retry_notice(error.message))
    _log.info("%s is compiled with torch's headers as they are: %s", request.name, error)
    session.whole.add(_name(request))
    note_whole(store, mark)


def note_whole(store: Store, mark: str) -> None:
    """Keep in the store that a source needs torch's headers as they are."""
    store.tree(STORE_KIND, mark, lambda tree: files.write_new(tree / _MARK, ""))


def _name(request: ModuleRequest) -> tuple[str, tuple[str, ...]]:
    return request.name, tuple(unit.path for unit in request.units)


def _mark(module: ModulePlan) -> str:
    """Key of the note that a module did not compile with cut headers."""
    return digest.key("jit-whole", link=module.link.key)


# -- compiling -----------------------------------------------------------------------------


def _compile(
    session: JitSession,
    request: ModuleRequest,
    module: ModulePlan,
    toolchain: JitToolchain,
    console: Console,
    *,
    names: MessageNames,
) -> Path:
    """Get a planned module into the store; returns its path."""
    store = toolchain.store
    if (made := store.use(STORE_KIND, module.link.key)) and results.read_history(made).is_of_here:
        session.device.remember(module)
        return _show_warnings(module, store, console, names)
    run_plan = functools.partial(_run_plan, session, toolchain)
    replan = functools.partial(plan_module, request, toolchain.machine)
    edited = swap.swap_device_code(session.device, module, toolchain, run_plan, replan)
    if failures := run_plan((edited or module).plan, events=console):
        raise _compile_error(failures, names)
    if not edited:
        swap.learn_objects(session.device, module, toolchain)
    if store.made:
        eviction.keep(store, eviction.limit(session.environment))
    return _show_warnings(edited or module, store, console, names)


def _run_plan(
    session: JitSession,
    toolchain: JitToolchain,
    plan: Plan,
    *,
    events: Events | None = None,
) -> tuple[Failure, ...]:
    context = ActionContext(
        store=toolchain.store,
        trees=toolchain.trees,
        runner=nvcc_stages.run_stages,
        jobs=machine.jobs(session.environment),
        keeps_failed=False,
        compiles=session.environment.may_compile,
    )
    events = events or Console(quiet=True, failures=False)
    return executor.run_actions(plan, context, events).failures


# -- what the compilers wrote --------------------------------------------------------------


def _show_warnings(module: ModulePlan, store: Store, console: Console, names: MessageNames) -> Path:
    """Show what the compilers wrote of a module; returns its path."""
    show_logs(module.plan, store, console, names.restore)
    return store.path(STORE_KIND, module.link.key) / module.link.outputs[0]


def show_logs(plan: Plan, store: Store, console: Console, restore: Callable[[str], str]) -> None:
    """Show what the compilers of a plan wrote, in the user's words."""
    for action in plan.actions:
        log = store.path(STORE_KIND, action.key) / execute_action.LOG
        if log.is_file():
            console.note(restore(log.read_text(errors="replace").rstrip()))


def _compile_error(failures: tuple[Failure, ...], names: MessageNames) -> _CompileError:
    """An error that says what the compilers wrote."""
    texts = [names.restore(compiler_advice.shortened(each.output)) for each in failures]
    title = ", ".join(sorted(what_failed(f.action.title, names.title) for f in failures))
    error = _CompileError("\n".join((title, *texts)), hint=compiler_advice.advice("\n".join(texts)))
    error.failures = failures
    return error


def what_failed(title: str, restore: Callable[[str], str] = str) -> str:
    """In words that an action of this title failed; the title of a source is restored."""
    if title.startswith(_LINK):
        return f"{title.removeprefix(_LINK)} cannot be linked"
    return f"{restore(title)} cannot be compiled"
