# SPDX-License-Identifier: Apache-2.0
"""Get extensions into the store.

First with torch's headers cut to what each source uses, then with the headers as they are.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from kernforge.builder import action as execute_action
from kernforge.builder import executor, results
from kernforge.builder.action import ActionContext, Failure
from kernforge.builder.executor import Events
from kernforge.builder.graph import Action, Plan
from kernforge.builder.results import STORE_KIND
from kernforge.errors import BuildError, page
from kernforge.extension import machine, torch_headers
from kernforge.extension.device import nvcc_stages, swap
from kernforge.extension.device.units import ExtensionUnit, ModulePlan
from kernforge.extension.plan import Extension, ExtensionToolchain, plan_extensions
from kernforge.extension.session import JitSession
from kernforge.source import compiler_advice, diagnostics
from kernforge.store import eviction
from kernforge.store.local import Store
from kernforge.system import digest, files
from kernforge.system.console import Console
from kernforge.system.environment import Environment

_log = logging.getLogger("kernforge")
_MARK = "whole"
_LONG_S = 3.0
# Of torch's C++ API, which takes long to compile.
_SLOW_HEADER = re.compile(
    r"torch/(?!csrc/stable/|headeronly/|csrc/inductor/aoti_torch/c/)|(?:ATen|c10|pybind11)/"
)

Modules: TypeAlias = tuple[ModulePlan, ...]


def with_slim_headers(
    extensions: Sequence[Extension],
    toolchain: ExtensionToolchain,
    plan: Callable[[Sequence[Extension]], Modules],
    run: Callable[[Modules], tuple[Modules, tuple[Failure, ...]]],
    *,
    environment: Environment,
    whole: set[str],
    note: Callable[[Sequence[Failure]], None],
) -> tuple[Modules, tuple[Failure, ...]]:
    """Plan and compile extensions: with torch's headers cut for each source, else as they are.

    Which sources need them as they are is remembered in the store.

    Args:
        run: compiles what is planned; returns the plans that were carried out, and what failed.
        whole: paths of sources that need torch's headers as they are; is added to.
        note: says that sources are compiled again.
    """
    store, torch = toolchain.store, toolchain.trees.get(toolchain.machine.torch_tree.name)
    before = frozenset(whole)

    def slim(extension: Extension) -> Extension:
        if environment.kernforge_jit_slim == "0" or torch is None:
            return extension
        read = functools.partial(torch_headers.read_header, torch)
        units = (
            unit if unit.path in whole else torch_headers.cut_unit(unit, read) or unit
            for unit in extension.units
        )
        return replace(extension, units=tuple(units))

    while True:
        planned = plan([slim(each) for each in extensions])
        cut = {each.key: each for each in planned[0].plan.actions if _is_cut(each)}
        if known := {a.source for a in cut.values() if store.has(STORE_KIND, _mark(a))}:
            whole |= known
            continue
        planned, failures = run(planned)
        short = [
            each
            for each in failures
            if torch and each.action.key in cut and _fell_short(each, extensions, toolchain, torch)
        ]
        if not short or len(short) < len(failures):
            # The headers as they are did not help: a mistake, which the next edit corrects.
            whole -= {each.action.source for each in failures} - before
            return planned, failures
        note(short)
        for failure in short:
            store.tree(
                STORE_KIND, _mark(failure.action), lambda tree: files.write_new(tree / _MARK, "")
            )
            whole.add(failure.action.source)


def _is_cut(action: Action) -> bool:
    return any(file.path == torch_headers.PATH for file in action.inputs)


def _fell_short(
    failure: Failure, extensions: Sequence[Extension], toolchain: ExtensionToolchain, torch: str
) -> bool:
    """Whether a source that failed may compile with torch's headers as they are."""
    units = [u for each in extensions for u in each.units if u.path == failure.action.source]
    texts = {path: text for unit in units for path, text in unit.texts.items()}
    return torch_headers.fell_short(failure.output, texts, toolchain.machine.torch_tree.name, torch)


def _mark(action: Action) -> str:
    """Key of the note that a source does not compile with cut headers."""
    return digest.key("needs-whole-headers", action=action.key)


# -- in this process -----------------------------------------------------------------------


def make_module(
    session: JitSession,
    module: Extension,
    namespaces: Mapping[str, str],
    toolchain: ExtensionToolchain,
    console: Console,
    *,
    restore: Callable[[str], str],
) -> Path:
    """Get a module into the store; returns the path of the shared object or of the program.

    Args:
        namespaces: what its op namespaces are called in this process.
        restore: puts the user's paths into what compilers wrote.

    Raises:
        BuildError: a compiler failed; the message is what it wrote, with the user's paths.
        StorageError: the disk is full or read-only.
    """
    store, machine = toolchain.store, toolchain.machine
    environment = session.environment

    def note(failures: Sequence[Failure]) -> None:
        error = compile_error(failures, restore)
        Console().note(retry_notice(error.message))
        _log.info("%s is compiled with torch's headers as they are: %s", module.name, error)

    def run(modules: Modules) -> tuple[Modules, tuple[Failure, ...]]:
        (made,) = modules
        kept = store.use(STORE_KIND, made.link.key)
        edited, failures = made, tuple[Failure, ...]()
        if not kept or not results.read_history(kept).is_of_here:
            run_plan = functools.partial(_run_plan, session, toolchain)
            edited = swap.swap_device_code(session.device, made, toolchain, run_plan)
            failures = run_plan(edited.plan, events=console)
        if not failures:
            session.device.remember(made, store)
        return (edited,), failures

    plan = functools.partial(plan_extensions, machine=machine, namespaces=namespaces)
    whole = session.whole.setdefault(module.name, set())
    (made,), failures = with_slim_headers(
        [module], toolchain, plan, run, environment=environment, whole=whole, note=note
    )
    if failures:
        raise compile_error(failures, restore)
    if store.made:
        eviction.keep(store, eviction.limit(environment))
    show_logs(made.plan, store, console, restore)
    return store.path(STORE_KIND, made.link.key) / made.link.outputs[0]


def _run_plan(
    session: JitSession,
    toolchain: ExtensionToolchain,
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


def show_logs(plan: Plan, store: Store, console: Console, restore: Callable[[str], str]) -> None:
    """Show what the compilers of a plan wrote, in the user's words."""
    for action in plan.actions:
        log = store.path(STORE_KIND, action.key) / execute_action.LOG
        if log.is_file():
            console.note(restore(log.read_text(errors="replace").rstrip()))


def compile_error(failures: Sequence[Failure], restore: Callable[[str], str]) -> BuildError:
    """An error that says what the compilers wrote.

    Args:
        restore: puts the user's paths into it.
    """
    texts = [restore(compiler_advice.shortened(each.output)) for each in failures]
    what = {
        f"{each.action.outputs[0]} cannot be linked"
        if each.action.kind == "link"
        else f"{each.action.title} cannot be compiled"
        for each in failures
    }
    hint = compiler_advice.advice("\n".join(texts))
    return BuildError("\n".join((", ".join(sorted(what)), *texts)), hint=hint)


def slow_hint(units: Iterable[ExtensionUnit], seconds: float) -> str:
    """One line on what made a build long; empty if it was not the choice of the sources."""
    if seconds < _LONG_S:
        return ""
    for unit in units:
        header = next(filter(_SLOW_HEADER.match, unit.closure.foreign), "")
        if header:
            file = (unit.title or unit.path).rpartition("/")[2]
            return (
                f"{file} includes <{header}>, and compiling took {seconds:.0f} s. Kernels on raw "
                "pointers in a .cu without torch's headers and a binding on torch's stable ABI "
                f"compile in a few: {page('how-to/author/use-the-jit')}"
            )
    return ""


def retry_notice(output: str) -> str:
    """One line on why a source is compiled again, by what the compilers wrote the first time."""
    errors = diagnostics.errors(diagnostics.parse(output))
    why = f"{diagnostics.title(errors[0])}; " if errors else ""
    return f"{why}compiling again with all of torch's headers, which takes longer"
