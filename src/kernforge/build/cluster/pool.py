# SPDX-License-Identifier: Apache-2.0
"""The crew that works elsewhere: the same graph on a Dask cluster.

An action travels with everything that it reads: the text of its sources, the lock, and the results
that it needs unless the shared store has them. When a worker dies, the scheduler gives its actions
to others.
"""

from __future__ import annotations

import concurrent.futures
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge._version import __version__
from kernforge.build import steps
from kernforge.build.cluster import task
from kernforge.build.cluster.task import Delivery, LostResultError, Mute, Parcel
from kernforge.build.cluster.worker import work
from kernforge.build.execute.outcome import Done, Failure
from kernforge.build.execute.results import SHELF
from kernforge.errors import NetworkError, ToolchainError
from kernforge.project.units import Sources
from kernforge.store.local import Store
from kernforge.toolchain.index.index import Index
from kernforge.toolchain.index.wheels import Wheels

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kernforge.build.execute.cost import Estimate
    from kernforge.build.execute.sandbox import Sandbox
    from kernforge.build.plan.graph import Action, Plan
    from kernforge.build.workspace import Bench
    from kernforge.toolchain.lockfile import Lock

MEMORY = "MEMORY"
"""The Dask resource, in bytes, that workers may offer and actions then ask for."""

_CONNECT_S = 10
_WORKERS_S = 60
_HANDS = 8


class Cluster:
    """The workers of a Dask scheduler.

    Args:
        address: the scheduler's, as ``tcp://farm:8786``.
        bench: the project.
        plan: what will be built.
        locked: what with.
        jobs: how many architectures one nvcc compiles at once, if its worker has threads for them.
        isolation: what the workers are to do as far as they can.
        note: is told what the workers have to say.

    Raises:
        NetworkError: no scheduler answers there, or it has no workers.
        ToolchainError: a worker has another kernforge, or none.
    """

    patience: float | None = None

    def __init__(
        self,
        address: str,
        *,
        bench: Bench,
        plan: Plan,
        locked: Lock,
        jobs: int,
        isolation: Sandbox,
        note: Callable[[str], None],
    ) -> None:
        self._bench, self._plan, self._note = bench, plan, note
        self._said: set[str] = set()
        self._client = _connect(address)
        self._executor = self._client.get_executor(pure=False)
        self._pool = concurrent.futures.ThreadPoolExecutor(_HANDS)
        self._links = {artifact.extension for artifact in plan.artifacts}
        self._distance: dict[str, float] = {}
        self._lock = locked.to_json()
        nothing = Sources(digests={}, texts={}, bundled={})
        self._light = replace(
            bench,
            project=replace(bench.project, files={}),
            sources=nothing,
            candidates=(),
            store=Store(Path()),
            own=replace(bench.own, redist=None),
            wheels=Wheels(Index.from_environment, Path(), Mute()),
        )
        workshop = steps.make_workshop(bench, {}, jobs=jobs, isolation=isolation)
        self._workshop = replace(workshop, store=Store(Path()))

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
        self._pool.shutdown()
        self._client.close()

    def kill(self) -> None:
        """Leave the cluster; what its workers have begun they finish, for their own stores."""
        self._pool.shutdown(wait=False, cancel_futures=True)
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
        inner = self._executor.submit(work, self._parcel(action, inline=inline), **options)

        def come_back(future: concurrent.futures.Future[Delivery]) -> None:
            try:
                outer.set_result(self._receive(action, future.result()))
            except LostResultError:
                if inline:
                    outer.set_exception(_lost(action))
                else:
                    self._send(action, memory, outer, inline=True)
            except BaseException as error:  # noqa: BLE001 - handed on to who waits
                if type(error).__name__ == "KilledWorker":
                    outer.set_result(_workers_died(action, error))
                else:
                    outer.set_exception(error)

        def arrived(future: concurrent.futures.Future[Delivery]) -> None:
            if not future.cancelled():
                self._pool.submit(come_back, future)

        inner.add_done_callback(arrived)

    def _receive(self, action: Action, delivery: Delivery) -> Done:
        for text in delivery.notes:
            if text not in self._said:
                self._said.add(text)
                self._note(f"{delivery.done.where}: {text}")
        store = self._bench.store
        if delivery.packed is not None:
            task.unpack(store, action.key, delivery.packed, shared=True)
        elif (
            action.key in self._links
            and not delivery.done.failure
            and not store.pull(SHELF, action.key)
        ):
            raise _lost(action)
        return delivery.done

    def _parcel(self, action: Action, *, inline: bool) -> Parcel:
        store, names = self._bench.store, {"project": [], "text": [], "action": []}  # type: ignore[var-annotated]
        for one in action.inputs:
            names[one.origin].append(one.name)
        results = {}
        for key in {name.partition("/")[0] for name in names["action"]}:
            known = store.shared is not None and not inline and store.shared.has(SHELF, key)
            if not known and store.pull(SHELF, key):
                results[key] = task.packed(store, key)
        return Parcel(
            version=__version__,
            action=action,
            texts={name: self._plan.texts[name] for name in names["text"]},
            sources={n: self._bench.project.files[n].read_bytes() for n in names["project"]},
            results=results,
            bench=self._light,
            workshop=self._workshop,
            lock=self._lock,
            shared=store.shared.url if store.shared else None,
            redist=self._bench.own.redist.base if self._bench.own.redist else None,
        )


def _connect(address: str) -> Any:
    from distributed import Client  # noqa: PLC0415 - only a cluster needs it

    try:
        client = Client(address, timeout=_CONNECT_S, set_as_default=False, name="kernforge")
    except (OSError, TimeoutError, ValueError) as error:
        raise NetworkError(
            f"no Dask scheduler answers at {address}: {error}",
            hint="start one with `dask scheduler`, and give its address as tcp://HOST:8786",
        ) from error
    try:
        client.wait_for_workers(1, timeout=_WORKERS_S)
        versions = client.run(_version, on_error="return")
    except TimeoutError as error:
        client.close()
        raise NetworkError(
            f"the Dask scheduler at {address} has no workers",
            hint=f"start some: `dask worker {address} --resources '{MEMORY}=32e9'`",
        ) from error
    for worker, version in versions.items():
        try:
            task.same_version(__version__, version if isinstance(version, str) else "absent")
        except ToolchainError as error:
            client.close()
            raise ToolchainError(f"worker {worker}: {error.message}", hint=error.hint) from error
    return client


def _version() -> str:
    return __version__


def _largest(client: Any) -> int:
    """Most memory that a worker offers as a resource; 0 when none says."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return int(max((worker["resources"].get(MEMORY, 0) for worker in workers), default=0))


def _lost(action: Action) -> NetworkError:
    return NetworkError(
        f"the result of {action.title} was stored by a worker, and cannot be read back",
        hint="check that the shared store is the same place for this machine and for the workers",
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
