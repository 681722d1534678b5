# SPDX-License-Identifier: Apache-2.0
"""Run the actions of a build on the workers of a Dask scheduler.

Scheduler and workers are Dask's own; ``dask worker ADDRESS --preload kernforge.builder.farm``
offers its memory, so that Dask gives a worker what fits. TLS is that of Dask's configuration
(``distributed.comm.tls``). An action travels with everything that it reads; its result comes back,
or goes through the shared store. A worker that dies costs a retry. distributed is imported here
alone.
"""

from __future__ import annotations

import contextlib
import io
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from kernforge._version import __version__
from kernforge.builder import action as execute_action, results, sandbox
from kernforge.builder.action import ActionContext, Done, Failure
from kernforge.builder.api import PlannedBuild
from kernforge.builder.graph import Action, Plan
from kernforge.builder.pool import Job, LocalPool
from kernforge.builder.results import STORE_KIND
from kernforge.builder.sandbox import Mode
from kernforge.builder.workspace import Workspace, lock_difference, open_workspace, tree_paths
from kernforge.errors import KernforgeError, NetworkError, ToolchainError, UsageError
from kernforge.project.api import Project
from kernforge.store import tree_archive
from kernforge.store.local import Store
from kernforge.store.remote import SharedStore
from kernforge.system import files
from kernforge.system.environment import Environment
from kernforge.system.machine import total_memory
from kernforge.system.process import run
from kernforge.system.progress import Progress
from kernforge.toolchain import lockfile
from kernforge.toolchain.local_parts import LocalParts
from kernforge.toolchain.lockfile import Lock
from kernforge.trust.signing import read_builders

MEMORY = "MEMORY"
"""The Dask resource, in bytes, that workers offer and actions ask for."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_CONNECT_S = 10
_WORKERS_S = 60
_RETRIES = 1
# Threads that wait for workers: Dask's scheduler chooses among this many actions.
_SENT = 512


def dask_setup(worker: Any) -> None:
    """Offer a worker's memory; Dask calls this where ``--preload`` names the module."""
    refuse_plain((worker.address, worker.scheduler.address))
    offered = worker.memory_manager.memory_limit or total_memory()
    for resources in (worker.state.total_resources, worker.state.available_resources):
        resources.setdefault(MEMORY, offered)


def refuse_plain(addresses: Iterable[str]) -> None:
    """Refuse plain connections that leave this machine: a task is code."""
    for address in addresses:
        parts = urlsplit(address)
        if parts.scheme not in {"tls", "wss", "inproc"} and parts.hostname not in _LOOPBACK:
            raise UsageError(
                f"{address} is not encrypted: each host that reaches it can run programs there",
                hint="use tls://; Dask reads the certificates from its configuration, "
                "distributed.comm.tls",
            )


def connect(address: str) -> Any:
    """Connect to a scheduler with workers, such as ``tls://farm:8786``.

    Returns:
        A ``distributed.Client``.
    """
    if "://" not in address:
        address = f"tls://{address}"
    refuse_plain([address])
    from distributed import Client  # noqa: PLC0415 - only a farm needs it

    with contextlib.ExitStack() as stack:
        try:
            client = Client(address, timeout=_CONNECT_S, set_as_default=False, name="kernforge")
            stack.callback(client.close)
            client.wait_for_workers(1, timeout=_WORKERS_S)
        except (OSError, TimeoutError, ValueError, TypeError) as error:
            raise NetworkError(
                f"no Dask scheduler with workers answers at {address}: {error}",
                hint="start `dask scheduler` and `dask worker ADDRESS --preload "
                "kernforge.builder.farm`, and give the address as tls://HOST:8786; Dask reads "
                "certificates from its configuration, distributed.comm.tls",
            ) from error
        info = client.scheduler_info(n_workers=-1)
        refuse_plain((info["address"], *info["workers"]))
        stack.pop_all()
    return client


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionTask:
    """An action with its inputs, as it is sent to a worker.

    Attributes:
        plan: of the action alone, with its generated inputs.
        sources: the project's inputs by path.
        results: packed results of other actions by key, where no shared store has them.
        project: the project, without its files.
        shared: URL of the shared store.
    """

    plan: Plan
    sources: Mapping[str, bytes]
    results: Mapping[str, bytes]
    project: Project
    local_parts: LocalParts
    lock: Lock
    shared: str | None
    sandbox: Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """Result of an action on a worker.

    Attributes:
        packed: its files; None when it failed or when the shared store has them.
    """

    done: Done
    packed: bytes | None
    notes: tuple[str, ...] = ()


class FarmPool(LocalPool):
    """The workers of a Dask scheduler; a thread of this process waits for each action."""

    def __init__(
        self,
        address: str,
        workspace: Workspace,
        planned: PlannedBuild,
        context: ActionContext,
        *,
        note: Callable[[str], None],
    ) -> None:
        super().__init__(jobs=_SENT)
        self._workspace, self._planned, self._context = workspace, planned, context
        self._note, self._noted = note, set[str]()
        self._client = connect(address)
        self._executor = self._client.get_executor(pure=False, retries=_RETRIES)
        self._links = {artifact.extension for artifact in planned.plan.artifacts}

    def choose(self, waiting: Sequence[Job]) -> tuple[Job, ...]:
        """All actions: Dask's scheduler decides, by memory and critical path."""
        return tuple(sorted(waiting, key=lambda job: -job.critical_path_s))

    def submit(
        self,
        job: Job,
        work: Callable[[Job], Done],  # noqa: ARG002 - a worker does it
    ) -> Future[Done]:
        """Send an action to the workers."""
        return super().submit(job, self._send)

    def close(self) -> None:
        """Leave the farm."""
        super().close()
        self._client.close()

    def kill(self) -> None:
        """Leave the farm; workers finish running actions, for their own stores."""
        self._note("workers finish their running actions, and keep the results")
        with contextlib.suppress(Exception):
            self._executor.shutdown(wait=False)
            self._client.close()
        super().kill()

    def _send(self, job: Job) -> Done:
        """Have a worker do an action, and take its result."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        largest = max((worker["resources"].get(MEMORY, 0) for worker in workers), default=0)
        asked = largest if job.alone else min(job.estimate.memory, largest)
        options = {"resources": {MEMORY: asked}} if largest else {}
        sent = pickle.dumps(self._task(job.action))
        priority = int(job.critical_path_s)
        try:
            future = self._executor.submit(
                run_task, __version__, sent, priority=priority, **options
            )
            return self._receive(job.action, future.result())
        except BaseException as error:
            if type(error).__name__ == "KilledWorker":
                text = f"{error}\nout of memory? Let workers have more, and offer what they have"
                again = "kernforge build, without --scheduler"
                return Done(
                    failure=Failure(action=job.action, returncode=-9, output=text, repeat=again)
                )
            if isinstance(error, OSError) or "Cancelled" in type(error).__name__:
                raise NetworkError(
                    f"lost the connection to the Dask scheduler {self._client.scheduler.addr}",
                    hint="start it again and repeat the command: finished results are stored",
                ) from error
            raise

    def _receive(self, action: Action, result: ActionResult) -> Done:
        for text in result.notes:
            if text not in self._noted:
                self._noted.add(text)
                self._note(f"{result.done.where}: {text}")
        store = self._workspace.store
        if result.packed is not None:
            _unpack(store, action.key, result.packed, shared=True)
        elif not result.done.failure and action.key in self._links:
            _require(store, action.key)
        return result.done

    def _task(self, action: Action) -> ActionTask:
        workspace, plan, store = self._workspace, self._planned.plan, self._workspace.store
        given = [file for file in action.inputs if not file.action]
        texts = {f.digest: plan.texts[f.digest] for f in given if f.digest in plan.texts}
        sources = {f.path: plan.files[f.path] for f in given if f.digest not in texts}
        far = store.shared
        needs = [key for key in action.needs if not (far and far.has(STORE_KIND, key))]
        return ActionTask(
            plan=Plan(actions=(action,), artifacts=(), texts=texts, sources_id=""),
            sources={path: real.read_bytes() for path, real in sources.items()},
            results={key: _pack(store, key) for key in needs},
            project=replace(workspace.project, files={}),
            local_parts=workspace.local_parts,
            lock=self._planned.lock,
            shared=far.url if far else None,
            sandbox=self._context.sandbox.wanted,
        )


def _pack(store: Store, key: str) -> bytes:
    """Pack a result of the store."""
    out = io.BytesIO()
    tree_archive.pack(store.path(STORE_KIND, key), out)
    return out.getvalue()


def _unpack(store: Store, key: str, data: bytes, *, shared: bool) -> None:
    """Put a packed result into the store, and into the shared one if ``shared``."""
    store.tree(
        STORE_KIND, key, lambda tree: tree_archive.unpack(io.BytesIO(data), tree), shared=shared
    )


def _require(store: Store, key: str) -> None:
    """Fetch a result of another machine from the shared store."""
    if not store.bring(STORE_KIND, key):
        raise NetworkError(
            "a worker's result cannot be read from the shared store",
            hint="its URL must mean the same store here and on the workers, and each must trust "
            "the keys of the others (KERNFORGE_STORE_TRUST)",
        )


# -- on a worker -----------------------------------------------------------------------------------


def run_task(sender: str, sent: bytes) -> ActionResult:
    """Do an action on the Dask worker where this is called."""
    from distributed import get_worker  # noqa: PLC0415 - only a farm has it

    worker = get_worker()
    threads = max(1, worker.state.nthreads // max(1, len(worker.state.executing)))
    try:
        if sender != __version__:
            raise ToolchainError(
                f"it has kernforge {__version__}, the build is of {sender}",
                hint=f"install kernforge[build,cluster]=={sender} on the workers",
            )
        task: ActionTask = pickle.loads(sent)  # noqa: S301 - a task is code in any case
        return _work(task, str(worker.name), threads)
    except KernforgeError as error:
        raise type(error)(f"worker {worker.name}: {error.message}", hint=error.hint) from error


class _Notes(Progress):
    """Notes of a worker, which the build shows."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


def _work(task: ActionTask, where: str, threads: int) -> ActionResult:
    notes, environment = _Notes(), Environment.read()
    shared = (
        SharedStore(task.shared, notes.note, read_builders(environment)) if task.shared else None
    )
    workspace = open_workspace(task.project, notes, environment, shared=shared)
    workspace = replace(workspace, local_parts=task.local_parts)
    store, (action,) = workspace.store, task.plan.actions
    if task.sandbox == "required":
        store.accepts = results.is_isolated_and_valid
        for key in results.unisolated({action.key, *action.needs}, store):
            store.forget(STORE_KIND, key)
    with files.staging(store.root / "work") as scratch:
        for key, data in task.results.items():
            _unpack(store, key, data, shared=False)
        for key in action.needs:
            _require(store, key)
        if wrong := lock_difference(workspace, task.lock, action.trees):
            raise ToolchainError(
                f"{lockfile.FILE_NAME} names {wrong}",
                hint="start the workers in the same image as the build",
            )
        for path, data in task.sources.items():
            files.write_new(scratch / path, data)
        plan = replace(task.plan, files={path: scratch / path for path in task.sources})
        context = ActionContext(
            store=store,
            trees=tree_paths(workspace, action.trees, task.lock),
            runner=run,
            jobs=threads,
            sandbox=sandbox.probe(
                task.sandbox, workspace.compiler.path, run, workspace.library_path
            ),
            library_path=workspace.library_path,
        )
        done = execute_action.run_action(action, plan, context, threads=threads)
    known = done.failure or (store.shared and (STORE_KIND, action.key) in store.shared.good)
    packed = None if known else _pack(store, action.key)
    return ActionResult(done=replace(done, where=where), packed=packed, notes=tuple(notes.texts))
