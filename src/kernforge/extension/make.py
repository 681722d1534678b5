# SPDX-License-Identifier: Apache-2.0
"""Compile extensions into the store, and report the compilers' errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kernforge.builder import action as execute_action, executor
from kernforge.builder.action import ActionContext, Failure
from kernforge.builder.executor import Outcome
from kernforge.builder.graph import Plan
from kernforge.builder.results import STORE_KIND
from kernforge.errors import BuildError
from kernforge.extension import machine
from kernforge.extension.device import nvcc_stages, swap
from kernforge.extension.device.units import DeviceSession
from kernforge.extension.plan import Extension, ExtensionMachine, plan_extensions
from kernforge.source import compiler_advice
from kernforge.store import eviction
from kernforge.store.local import Store
from kernforge.system.console import Console
from kernforge.system.environment import Environment
from kernforge.system.process import run


def compile_extensions(
    extensions: Sequence[Extension],
    toolchain: ExtensionMachine,
    console: Console,
    *,
    environment: Environment,
    restore: Callable[[str], str],
    namespaces: Mapping[str, str] | None = None,
    device: DeviceSession | None = None,
) -> tuple[tuple[Path, ...], Outcome]:
    """Compile extensions into the store.

    Args:
        restore: puts the user's paths into the compilers' output.
        namespaces: what each op namespace of the sources is called in this process.
        device: history of the one extension of a process, which waits: of its edits, only the
            device code is compiled where only that is new.

    Returns:
        Paths of the shared objects in the store, and how the actions ended.
    """
    store = Store(environment.store)
    context = ActionContext(
        store=store,
        trees=toolchain.paths,
        runner=nvcc_stages.run_stages if device else run,
        jobs=machine.jobs(environment),
        keeps_failed=device is None,
        refusal=toolchain.refusal,
        library_path=toolchain.library_path,
        whole_headers=device.whole_headers[extensions[0].name] if device else set(),
    )
    planned = made = plan_extensions(extensions, toolchain, namespaces)
    if device and not toolchain.refusal:
        made = (swap.swap_device_code(device, planned[0], context),)
    outcome = executor.run_actions(made[0].plan, context, console)
    if outcome.failures:
        raise compile_error(outcome.failures, restore)
    if device:
        device.remember(planned[0], store)
    _show_logs(made[0].plan, store, console, restore)
    if store.made:
        eviction.keep(store, eviction.limit(environment))
    links = (module.link for module in made)
    return tuple(store.path(STORE_KIND, link.key) / link.outputs[0] for link in links), outcome


# -- messages ------------------------------------------------------------------------------


def _show_logs(plan: Plan, store: Store, console: Console, restore: Callable[[str], str]) -> None:
    """Show the warnings of a plan's compilers, with the user's paths."""
    for action in plan.actions:
        log = store.path(STORE_KIND, action.key) / execute_action.LOG
        if log.is_file():
            console.note(restore(log.read_text(errors="replace").rstrip()))


def compile_error(failures: Sequence[Failure], restore: Callable[[str], str]) -> BuildError:
    """The compilers' output as one error, with how to repeat what failed."""
    texts = [restore(each.output) for each in failures]
    what = {
        f"{each.action.outputs[0]} cannot be linked"
        if each.action.kind == "link"
        else f"{each.action.title} cannot be compiled"
        for each in failures
    }
    hints = [compiler_advice.advice("\n".join(texts))]
    if repeats := [each.repeat for each in failures if each.repeat]:
        hints += ["repeat it by hand:", *repeats]
    message = "\n".join((", ".join(sorted(what)), *texts))
    return BuildError(message, hint="\n".join(filter(None, hints)))
