# SPDX-License-Identifier: Apache-2.0
"""An action on a worker of a cluster.

The worker fetches the locked toolchain into its own store, runs the action as a local build
would, and gives the result to the shared store, or sends it back when there is none.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

from kernforge.build import api as build
from kernforge.build import locking
from kernforge.build import trees as build_trees
from kernforge.build.cluster import network
from kernforge.build.cluster import task as cluster_task
from kernforge.build.cluster.task import IDENTITY, ActionResult, LostResultError, NullProgress
from kernforge.build.execute import action as execute_action
from kernforge.build.execute import results
from kernforge.build.execute.results import STORE_KIND
from kernforge.build.plan import graph
from kernforge.build.plan.graph import Plan
from kernforge.errors import KernforgeError, ToolchainError
from kernforge.store.local import Store
from kernforge.store.remote import SharedStore
from kernforge.system import files
from kernforge.system.environment import Environment
from kernforge.system.process import run
from kernforge.toolchain import host_compiler, lockfile, tree_names
from kernforge.toolchain.index.index import Index
from kernforge.toolchain.index.wheels import Wheels
from kernforge.trust.builders import read_builders

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kernforge.build.cluster.task import ActionTask
    from kernforge.build.plan.graph import Action
    from kernforge.build.workspace import Workspace
    from kernforge.toolchain.host_compiler import Compiler
    from kernforge.toolchain.lockfile import Lock


def work(task: ActionTask) -> ActionResult:
    """Do an action on the machine where this is called.

    Raises:
        LostResultError: the shared store lacks a result that was not sent along.
        KernforgeError: this machine cannot do it; the message names the machine.
    """
    where = _here()
    try:
        return _work(task, where)
    except KernforgeError as error:
        raise type(error)(f"worker {where}: {error.message}", hint=error.hint) from error


def _work(task: ActionTask, where: str) -> ActionResult:
    cluster_task.require_same(task.kernforge, IDENTITY)
    notes: list[str] = []
    environment = Environment.read()
    network.require_private_worker(environment)
    writers = read_builders(environment) if task.shared else None
    shared = SharedStore(task.shared, notes.append, writers) if task.shared and writers else None
    variables = environment.variables
    store = Store(environment.home / "store", shared)
    store.note = notes.append
    action = task.action
    with store.lease(), files.staging(store.root / "work") as scratch:
        if task.context.sandbox.wanted == "required":
            store.accepts = results.isolated
            results.forget_unisolated({action.key, *graph.needs(action)}, store)
        _receive_results(task, store)
        project = replace(task.workspace.project, files=_write_sources(task, scratch))
        index, downloads = Index.lazily(variables), store.root / "downloads"
        workspace = replace(
            task.workspace,
            project=project,
            store=store,
            compiler=_same_compiler(task.workspace.compiler, variables),
            wheels=Wheels(index, downloads, NullProgress()),
            search_path=variables.get("PATH", ""),
        )
        plan = Plan(actions=(action,), artifacts=(), texts=task.texts, sources_id="")
        locked = lockfile.from_json(task.lock)
        _same_parts(action, workspace, locked)
        trees = build_trees.fetch_trees(workspace, plan, locked)
        isolation = build.choose_sandbox(workspace, task.context.sandbox.wanted)
        context = replace(task.context, store=store, trees=trees, sandbox=isolation)
        done = replace(
            execute_action.run_action(
                action, plan, project, context, threads=_threads(context.jobs)
            ),
            where=where,
        )
        if done.failure or (shared and (STORE_KIND, action.key) in shared.good):
            packed = None
        else:
            packed = cluster_task.pack_result(store, action.key)
    return ActionResult(done=done, packed=packed, notes=tuple(notes))


def _receive_results(task: ActionTask, store: Store) -> None:
    for key, data in task.results.items():
        cluster_task.unpack_result(store, key, data, shared=False)
    for file in task.action.inputs:
        key = file.name.partition("/")[0]
        if file.origin == "action" and not store.pull(STORE_KIND, key):
            raise LostResultError(key)


def _write_sources(task: ActionTask, scratch: Path) -> dict[str, Path]:
    found = {}
    for path, data in task.sources.items():
        files.write_new(scratch / path, data)
        found[path] = scratch / path
    return found


def _same_compiler(wanted: Compiler, env: Mapping[str, str]) -> Compiler:
    here = _compiler_here(env.get("CXX"), env.get("PATH", ""))
    if (here.identity, here.target) != (wanted.identity, wanted.target):
        raise ToolchainError(
            f"the host compiler is {here.identity!r} for {here.target}; the build is for "
            f"{wanted.identity!r} for {wanted.target}",
            hint="start the workers in the same image as the build, or name that compiler in CXX",
        )
    return here


def _same_parts(action: Action, workspace: Workspace, locked: Lock) -> None:
    if wrong := locked.compiler.difference(locking.locked_compiler(workspace)):
        raise _other_image(f"the host compiler is not the one of the build: {wrong}")
    crossing = locking.locked_cross_compilers(
        workspace,
        [cpu for cpu in locked.cross if tree_names.cross_root(cpu, "cxx") in action.trees],
    )
    if wrong := locking.other_cross_compiler(locked, crossing):
        raise _other_image(
            f"the compiler for another processor is not the one of the build: {wrong}"
        )
    if "python" in action.trees and (wrong := locking.other_python(locked)):
        raise _other_image(f"Python's headers are not those of the build: it is for {wrong}")


def _other_image(problem: str) -> ToolchainError:
    return ToolchainError(problem, hint="start the workers in the same image as the build")


@functools.cache
def _compiler_here(cxx: str | None, path: str) -> Compiler:
    return host_compiler.find({"PATH": path} | ({"CXX": cxx} if cxx else {}), run)


def _threads(wanted: int) -> int:
    """This action's share of the worker's threads."""
    worker = network.this_worker()
    if worker is None:
        return wanted
    share: int = worker.state.nthreads // max(1, len(worker.state.executing))
    return max(1, min(wanted, share))


def _here() -> str:
    worker = network.this_worker()
    return str(worker.name) if worker else "here"
