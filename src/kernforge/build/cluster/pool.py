# SPDX-License-Identifier: Apache-2.0
"""Run the actions of a build on the workers of a Dask scheduler.

An action travels with everything that it reads: the text of its sources, the lock, and the results
that it needs unless the shared store has them. When a worker dies, the scheduler gives its actions
to others.
"""

from __future__ import annotations

import concurrent.futures
import functools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.build.cluster import client as cluster_client
from kernforge.build.cluster import task
from kernforge.build.cluster.task import (
    IDENTITY,
    ActionResult,
    ActionTask,
    LostResultError,
    NullProgress,
)
from kernforge.build.cluster.worker import work
from kernforge.build.execute.outcome import Done, Failure
from kernforge.build.execute.results import STORE_KIND
from kernforge.errors import NetworkError, ToolchainError
from kernforge.project.units import Sources
from kernforge.store.local import Store
from kernforge.toolchain.index.index import Index
from kernforge.toolchain.index.wheels import Wheels

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kernforge.build.api import PlannedBuild
    from kernforge.build.execute.action import ActionContext
    from kernforge.build.execute.cost import Estimate
    from kernforge.build.plan.graph import Action
    from kernforge.build.workspace import Workspace

MEMORY = "MEMORY"
"""The Dask resource, in bytes, that workers may offer and actions then ask for."""

_WORKERS_S = 60
_THREADS = 8


class DaskPool:
    """The workers of a Dask scheduler.

    Args:
        address: the scheduler's, as ``tcp://farm:8786``.
        context: what actions are run with; workers isolate them as far as each can.
        note: called with what the workers have to say.

    Raises:
        NetworkError: no scheduler answers there, or it has no workers.
        ToolchainError: a worker has another kernforge, or none.
    """

    patience: float | None = None

    def __init__(
        self,
        address: str,
        workspace: Workspace,
        planned: PlannedBuild,
        context: ActionContext,
        *,
        note: Callable[[str], None],
    ) -> None:
        self._workspace, self._plan, self._note = workspace, planned.plan, note
        self._noted: set[str] = set()
        self._client = _connect(address)
        self._executor = self._client.get_executor(pure=False)
        self._threads = concurrent.futures.ThreadPoolExecutor(_THREADS)
        self._links = {artifact.extension for artifact in planned.plan.artifacts}
        self._distance: dict[str, float] = {}
        self._lock = planned.lock.to_json()
        nothing = Sources(digests={}, texts={}, bundled={})
        self._sent_workspace = replace(
            workspace,
            project=replace(workspace.project, files={}),
            sources=nothing,
            candidates=(),
            store=Store(Path()),
            local_parts=replace(workspace.local_parts, redist=None),
            wheels=Wheels(functools.partial(Index.from_environment, {}), Path(), NullProgress()),
            search_path="",
        )
        self._sent_context = replace(context, store=Store(Path()))

    def choose(
        self,
        waiting: Sequence[Action],
        _expected: Mapping[str, Estimate],
        distance: Mapping[str, float],
        _alone: Collection[str],
    ) -> tuple[Action, ...]:
        """Everything at once: the cluster's scheduler decides, by memory and by distance."""
        self._distance.update({action.key: distance[action.key] for action in waiting})
        return tuple(sorted(waiting, key=lambda action: -distance[action.key]))

    def submit(
        self,
        action: Action,
        expected: Estimate,
        *,
        alone: bool,
        work: Callable[[Action, int], Done],  # noqa: ARG002 - a worker does it
    ) -> concurrent.futures.Future[Done]:
        """Send an action to the cluster."""
        outer: concurrent.futures.Future[Done] = concurrent.futures.Future()
        self._send(action, None if alone else expected.memory, outer, inline=False)
        return outer

    def usage(self) -> Mapping[str, int]:
        """Nothing: the workers know."""
        return {}

    def close(self) -> None:
        """Leave the cluster."""
        self._threads.shutdown()
        self._client.close()

    def kill(self) -> None:
        """Leave the cluster; what its workers have begun they finish, for their own stores."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._executor.shutdown(wait=False)
        self._client.close()

    def _send(
        self,
        action: Action,
        memory: int | None,
        outer: concurrent.futures.Future[Done],
        *,
        inline: bool,
    ) -> None:
        options: dict[str, Any] = {"priority": int(self._distance.get(action.key, 0))}
        if (largest := _largest(self._client)) > 0:
            options["resources"] = {MEMORY: largest if memory is None else min(memory, largest)}
        inner = self._executor.submit(work, self._task(action, inline=inline), **options)

        def come_back(future: concurrent.futures.Future[ActionResult]) -> None:
            try:
                outer.set_result(self._receive(action, future.result()))
            except LostResultError:
                if inline:
                    outer.set_exception(_lost(action))
                else:
                    self._send(action, memory, outer, inline=True)
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                if type(error).__name__ == "KilledWorker":
                    outer.set_result(_workers_died(action, error))
                else:
                    outer.set_exception(error)

        def arrived(future: concurrent.futures.Future[ActionResult]) -> None:
            if not future.cancelled():
                self._threads.submit(come_back, future)

        inner.add_done_callback(arrived)

    def _receive(self, action: Action, result: ActionResult) -> Done:
        for text in result.notes:
            if text not in self._noted:
                self._noted.add(text)
                self._note(f"{result.done.where}: {text}")
        store = self._workspace.store
        if result.packed is not None:
            task.unpack_result(store, action.key, result.packed, shared=True)
        elif (
            action.key in self._links
            and not result.done.failure
            and not store.pull(STORE_KIND, action.key)
        ):
            raise _lost(action)
        return result.done

    def _task(self, action: Action, *, inline: bool) -> ActionTask:
        store = self._workspace.store
        names: dict[str, list[str]] = {"project": [], "text": [], "action": []}
        for file in action.inputs:
            names[file.origin].append(file.name)
        results = {}
        for key in {name.partition("/")[0] for name in names["action"]}:
            known = store.shared is not None and not inline and store.shared.has(STORE_KIND, key)
            if not known and store.pull(STORE_KIND, key):
                results[key] = task.pack_result(store, key)
        return ActionTask(
            kernforge=IDENTITY,
            action=action,
            texts={name: self._plan.texts[name] for name in names["text"]},
            sources={n: self._workspace.project.files[n].read_bytes() for n in names["project"]},
            results=results,
            workspace=self._sent_workspace,
            context=self._sent_context,
            lock=self._lock,
            shared=store.shared.url if store.shared else None,
            redist=self._workspace.local_parts.redist.base
            if self._workspace.local_parts.redist
            else None,
        )


def _connect(address: str) -> Any:
    """A client of a scheduler whose workers can run actions."""
    client = cluster_client.connect(address)
    try:
        client.wait_for_workers(1, timeout=_WORKERS_S)
        cluster_client.require_same_kernforge(client, list(cluster_client.offers(client)))
    except TimeoutError as error:
        client.close()
        raise NetworkError(
            f"the Dask scheduler at {address} has no workers",
            hint=f"start some: `dask worker {address} --resources '{MEMORY}=32e9'`",
        ) from error
    except ToolchainError:
        client.close()
        raise
    return client


def _largest(client: Any) -> int:
    """Most memory that a worker offers as a resource; 0 when none says."""
    offered = cluster_client.offers(client).values()
    return int(max((resources.get(MEMORY, 0) for resources in offered), default=0))


def _lost(action: Action) -> NetworkError:
    return NetworkError(
        f"the result of {action.title} was stored by a worker, and cannot be read back",
        hint="check that the URL of the shared store means the same store here and on the workers",
    )


def _workers_died(action: Action, error: BaseException) -> Done:
    """The scheduler gave up: each worker that was given the action died."""
    failure = Failure(
        action=action,
        returncode=-9,
        output=f"{error}\nout of memory? Give the workers more, and say so: "
        f"`dask worker --resources '{MEMORY}=BYTES'`",
        repeat="kernforge build, without --scheduler",
    )
    return Done(origin="failed", failure=failure)
