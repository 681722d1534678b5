# SPDX-License-Identifier: Apache-2.0
"""Run the actions of a build on the workers of a Dask scheduler.

An action travels with everything that it reads: the text of its sources, the lock, and the results
that it needs unless the shared store has them. When a worker dies, the scheduler gives its actions
to others; when the last one dies, the build waits for another and says so. When the scheduler dies or
stops to answer, the build ends with an error in half a minute: this machine may lack the compilers,
the memory and the time for what the farm was to do.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.build.cluster import client as cluster_client
from kernforge.build.cluster import network, task
from kernforge.build.cluster.client import SchedulerWatch
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
from kernforge.errors import NetworkError
from kernforge.project.units import Sources
from kernforge.store.local import Store
from kernforge.system.tables import counted
from kernforge.toolchain.index.index import Index
from kernforge.toolchain.index.wheels import Wheels

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kernforge.build.api import PlannedBuild
    from kernforge.build.cluster.network import FarmAccess
    from kernforge.build.execute.action import ActionContext
    from kernforge.build.execute.cost import Estimate
    from kernforge.build.plan.graph import Action
    from kernforge.build.workspace import Workspace

MEMORY = "MEMORY"
"""The Dask resource, in bytes, that workers may offer and actions then ask for."""

_WORKERS_S, _LATER_S = 60, 5
_THREADS = 8


class DaskPool:
    """The workers of a Dask scheduler.

    Args:
        address: the scheduler's, as ``tls://farm:8786``.
        context: what actions are run with; workers isolate them as far as each can.
        note: called with what the workers have to say.

    Raises:
        NetworkError: no scheduler answers there, or it has no workers.
        ToolchainError: a worker has another kernforge, or none.
        UsageError: it is no address, or its name leads nowhere; a connection of the farm is plain
            and leaves the machine; or this machine has no certificate.
    """

    patience: float | None = None

    def __init__(
        self,
        address: str,
        farm: FarmAccess,
        workspace: Workspace,
        planned: PlannedBuild,
        context: ActionContext,
        *,
        note: Callable[[str], None],
    ) -> None:
        self._workspace, self._plan, self._note = workspace, planned.plan, note
        self._noted: set[str] = set()
        self._address = network.scheduler_address(address)
        self._client = _connect(self._address, farm, note)
        # What was sent and has not ended, with the memory that it asked for.
        self._open: dict[concurrent.futures.Future[Done], int] = {}
        self._missing = ""
        self._ended: NetworkError | None = None
        self._changing = threading.Lock()
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
            wheels=Wheels(functools.partial(Index.from_environment, {}), Path(), NullProgress()),
            search_path="",
        )
        self._sent_context = replace(context, store=Store(Path()))
        self._watch = SchedulerWatch(self._client, self._lose, self._look)

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
        with self._changing:
            if self._ended:
                raise self._ended
            self._open[outer] = 0
        try:
            self._send(action, None if alone else expected.memory, outer, inline=False)
        except OSError as error:
            raise cluster_client.gone(self._address) from error
        return outer

    def usage(self) -> Mapping[str, int]:
        """Nothing: the workers know."""
        return {}

    def waits_for(self) -> str:
        """A worker, when there is none that can do what was sent."""
        return self._missing

    def close(self) -> None:
        """Leave the cluster."""
        self._watch.stop()
        self._threads.shutdown()
        cluster_client.leave(self._client)

    def kill(self) -> None:
        """Leave the cluster; what its workers have begun they finish, for their own stores."""
        self._watch.stop()
        if self._open and not self._missing:  # without a worker nothing runs that could end
            self._note(
                f"the workers of {self._address} finish the actions that they have begun and keep the "
                "results; they begin no others"
            )
        self._threads.shutdown(wait=False, cancel_futures=True)
        with contextlib.suppress(Exception):
            cluster_client.answer(lambda: self._executor.shutdown(wait=False) or True)
        cluster_client.leave(self._client)

    def _lose(self) -> None:
        """The scheduler is gone: everything that waits for it ends."""
        with self._changing:
            self._ended = cluster_client.gone(self._address)
            waiting, self._open = self._open, {}
        for outer in waiting:
            outer.set_exception(self._ended)

    def _look(self, offered: Mapping[str, Mapping[str, float]]) -> None:
        """Say that no worker can do what was sent, and that one can again."""
        most = max((resources.get(MEMORY, 0) for resources in offered.values()), default=-1)
        with self._changing:
            waiting = [memory for memory in self._open.values() if memory > most]
        before, self._missing = self._missing, ""
        if waiting:
            lacks = (
                f"no worker that offers {MEMORY}={max(waiting)}" if offered else "no worker left"
            )
            offer = f"{MEMORY}=BYTES" if max(waiting) else ""
            self._missing = f"waiting for a worker: {self._address} has {lacks}"
            if self._missing != before:
                self._note(
                    f"{self._missing}, and {counted(len(waiting), 'action')} of this build to do; "
                    f"start one: `{_start(self._address, offer)}`"
                )
        elif before:
            self._note(f"{self._address} has a worker again: the build goes on")

    def _settle(self, outer: concurrent.futures.Future[Done], ended: Done | BaseException) -> None:
        """Give an action's end to who waits for it, unless it was given up."""
        with self._changing:
            if outer not in self._open:
                return
            del self._open[outer]
        if isinstance(ended, BaseException):
            outer.set_exception(ended)
        else:
            outer.set_result(ended)

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
            asked = largest if memory is None else min(memory, largest)
            options["resources"] = {MEMORY: asked}
            with self._changing:
                if outer in self._open:
                    self._open[outer] = asked
        inner = self._executor.submit(work, self._task(action, inline=inline), **options)

        def resend() -> None:
            self._send(action, memory, outer, inline=True)

        def arrived(future: concurrent.futures.Future[ActionResult]) -> None:
            if future.cancelled():  # by Dask, whose client lost its connection
                self._lose()
            else:
                again = None if inline else resend
                self._threads.submit(self._come_back, action, future, outer, again)

        inner.add_done_callback(arrived)

    def _come_back(
        self,
        action: Action,
        future: concurrent.futures.Future[ActionResult],
        outer: concurrent.futures.Future[Done],
        again: Callable[[], None] | None,
    ) -> None:
        """Take what a worker sent; ``again`` sends the action with all that it needs."""
        error = future.exception()
        if error is None:
            try:
                self._settle(outer, self._receive(action, future.result()))
            except BaseException as problem:  # noqa: BLE001 - looked at below
                error = problem
        if error is None:
            return
        if isinstance(error, LostResultError):
            if again:
                self._once_more(outer, again)
            else:
                self._settle(outer, _lost(action))
        elif isinstance(error, OSError) or "Cancelled" in type(error).__name__:
            self._lose()  # the connection is lost, and with it all that was sent
        elif type(error).__name__ == "KilledWorker":
            self._settle(outer, _workers_died(action, error))
        else:
            self._settle(outer, error)

    def _once_more(self, outer: concurrent.futures.Future[Done], again: Callable[[], None]) -> None:
        try:
            again()
        except OSError:
            self._lose()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._settle(outer, error)

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
        )


def _connect(address: str, farm: FarmAccess, note: Callable[[str], None]) -> Any:
    """A client of a scheduler whose workers can run actions."""
    client = cluster_client.connect(address, farm)
    with cluster_client.leaving(client, address):
        if not cluster_client.offers(client):
            note(f"waiting for a worker: {address} has none yet; it has {_WORKERS_S} s")
        try:
            cluster_client.answer(
                lambda: client.wait_for_workers(1, timeout=_WORKERS_S) or True,
                _WORKERS_S + _LATER_S,
            )
        except TimeoutError as error:
            raise NetworkError(
                f"the Dask scheduler at {address} has no workers",
                hint=f"start some: `{_start(address, f'{MEMORY}=32e9')}`",
            ) from error
        cluster_client.require_same_kernforge(client, list(cluster_client.offers(client)))
    return client


def _start(address: str, resources: str) -> str:
    """The command that starts a worker."""
    offer = f" -- --resources '{resources}'" if resources else ""
    return f"kernforge farm worker --scheduler {address}{offer}"


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
        f"`--resources '{MEMORY}=BYTES'` of the worker",
        repeat="kernforge build, without --scheduler",
    )
    return Done(origin="failed", failure=failure)
