# SPDX-License-Identifier: Apache-2.0
"""Compile extensions into the store, with slim headers of torch first, and report the errors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kernforge.builder import action as execute_action
from kernforge.builder import executor
from kernforge.builder.action import ActionContext, Failure
from kernforge.builder.graph import Action, Plan
from kernforge.builder.results import STORE_KIND
from kernforge.builder.slim_headers import InstalledHeaders
from kernforge.errors import BuildError
from kernforge.extension import machine
from kernforge.extension.device import nvcc_stages, swap
from kernforge.extension.device.units import DeviceSession, ExtensionUnit, ModulePlan
from kernforge.extension.plan import Extension, ExtensionToolchain, plan_extensions
from kernforge.extension.session import JitSession
from kernforge.source import compiler_advice, diagnostics, torch_headers
from kernforge.source.includes import Closure
from kernforge.store import eviction
from kernforge.store.local import Store
from kernforge.system import digest, files
from kernforge.system.console import Console
from kernforge.system.environment import Environment

_MARK = "whole"


def compile_extensions(
    extensions: Sequence[Extension],
    toolchain: ExtensionToolchain,
    context: ActionContext,
    console: Console,
    *,
    environment: Environment,
    restore: Callable[[str], str],
    retry_note: Callable[[str], None],
    namespaces: Mapping[str, str] | None = None,
    device: DeviceSession | None = None,
    whole: set[str] | None = None,
) -> tuple[tuple[ModulePlan, ...], int]:
    """Compile extensions into the store: with slim headers of torch, else with all of them.

    The store remembers the sources that need all of them.

    Args:
        restore: puts the user's paths into the compilers' output.
        retry_note: reports that sources are compiled again.
        namespaces: what each op namespace of the sources is called in this process.
        device: compiles the device code alone of the one extension, where only that is new.
        whole: paths of sources that need all of torch's headers; is added to.

    Returns:
        The plans that were carried out, and how many actions ran.

    Raises:
        BuildError: a compiler failed; the message is its output, with the user's paths.
        StorageError: the disk is full or read-only.
    """
    store, ran = toolchain.store, 0
    whole = set() if whole is None else whole
    before = frozenset(whole)
    directory = None if environment.kernforge_jit_slim == "0" else toolchain.torch
    torch = None if directory is None else InstalledHeaders(directory)
    while True:
        slimmed = [slim_extension(each, torch, whole) for each in extensions]
        planned = plan_extensions(slimmed, toolchain.machine, namespaces)
        slim = {each.key: each for each in planned[0].plan.actions if _has_slim_headers(each)}
        if known := {
            a.source for a in slim.values() if store.has(STORE_KIND, _whole_headers_key(a))
        }:
            whole |= known
            continue
        made = (swap.swap_device_code(device, planned[0], context),) if device else planned
        outcome = executor.run_actions(made[0].plan, context, console)
        ran += outcome.ran
        if not (failures := outcome.failures):
            break
        error = compile_error(failures, restore)
        if not torch or not all(
            each.action.key in slim and _may_lack_header(each, extensions, toolchain, torch)
            for each in failures
        ):
            # All headers did not help: a mistake, which the next edit corrects.
            whole -= {each.action.source for each in failures} - before
            raise error
        retry_note(retry_notice(error.message))
        for failure in failures:
            key = _whole_headers_key(failure.action)
            store.tree(STORE_KIND, key, lambda tree: files.write_new(tree / _MARK, ""))
            whole.add(failure.action.source)
    if device:
        device.remember(planned[0], store)
    _show_logs(made[0].plan, store, console, restore)
    if store.made:
        eviction.keep(store, eviction.limit(environment))
    return made, ran


def module_path(module: ModulePlan, store: Store) -> Path:
    """Path in the store of a linked shared object."""
    return store.path(STORE_KIND, module.link.key) / module.link.outputs[0]


def _has_slim_headers(action: Action) -> bool:
    return any(file.path == torch_headers.PATH for file in action.inputs)


def _may_lack_header(
    failure: Failure,
    extensions: Sequence[Extension],
    toolchain: ExtensionToolchain,
    torch: InstalledHeaders,
) -> bool:
    """Whether a failed source may compile with all of torch's headers."""
    units = [u for each in extensions for u in each.units if u.path == failure.action.source]
    texts = {path: text for unit in units for path, text in unit.texts.items()}
    return torch.may_lack_header(failure.output, texts, toolchain.machine.torch_tree.name)


def _whole_headers_key(action: Action) -> str:
    """Key of the store's note that a source needs all of torch's headers."""
    return digest.key("needs-whole-headers", action=action.key)


def slim_extension(
    extension: Extension, torch: InstalledHeaders | None, whole: Collection[str]
) -> Extension:
    """An extension with slim headers in each source that compiles with them.

    Args:
        torch: None leaves the headers as they are.
        whole: paths of sources that need all headers.
    """
    if torch is None:
        return extension
    units = (u if u.path in whole else slim_unit(u, torch) or u for u in extension.units)
    return replace(extension, units=tuple(units))


def slim_unit(unit: ExtensionUnit, torch: torch_headers.TorchHeaders) -> ExtensionUnit | None:
    """A unit with slim headers; None if it uses more of torch."""
    closure = unit.closure
    slim = (
        torch_headers.slim_texts(unit.texts, torch) if torch_headers.may_be_slim(closure) else None
    )
    if slim is None:
        return None
    texts, included = slim
    others = (name for name in closure.foreign if name not in torch_headers.LARGE)
    foreign = tuple(sorted({*others, *included}))
    return replace(
        unit,
        texts=texts,
        closure=Closure(files=tuple(sorted(texts)), foreign=foreign, opaque=False),
    )


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
    """Compile a module for this process; returns the path of the shared object.

    Raises:
        BuildError: a compiler failed; the message is its output, with the user's paths.
        StorageError: the disk is full or read-only.
    """
    context = ActionContext(
        store=toolchain.store,
        trees=toolchain.trees,
        runner=nvcc_stages.run_stages,
        jobs=machine.jobs(session.environment),
        keeps_failed=False,
        compiles=session.environment.may_compile,
    )
    (made,), _ = compile_extensions(
        [module],
        toolchain,
        context,
        console,
        environment=session.environment,
        restore=restore,
        retry_note=Console().note,
        namespaces=namespaces,
        device=session.device,
        whole=session.whole_headers.setdefault(module.name, set()),
    )
    return module_path(made, toolchain.store)


# -- messages ------------------------------------------------------------------------------


def _show_logs(plan: Plan, store: Store, console: Console, restore: Callable[[str], str]) -> None:
    """Show the warnings of a plan's compilers, with the user's paths."""
    for action in plan.actions:
        log = store.path(STORE_KIND, action.key) / execute_action.LOG
        if log.is_file():
            console.note(restore(log.read_text(errors="replace").rstrip()))


def compile_error(failures: Sequence[Failure], restore: Callable[[str], str]) -> BuildError:
    """The compilers' output as one error, with how to repeat what failed."""
    texts = [restore(compiler_advice.shortened(each.output)) for each in failures]
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


def retry_notice(output: str) -> str:
    """Notice of a second compilation, with the first error of the compiler's output."""
    errors = diagnostics.errors(diagnostics.parse(output))
    why = f"{diagnostics.title(errors[0])}; " if errors else ""
    return f"{why}compiling again with all of torch's headers, which takes longer"
