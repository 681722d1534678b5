# SPDX-License-Identifier: Apache-2.0
"""The crew that works elsewhere: the same graph on a Dask cluster.

An action travels with everything that it reads: the text of its sources, the lock, and the results
that it needs unless the shared store has them. A worker brings the locked toolchain into a store
of its own, runs the action as a local build would, and gives the result to the shared store, or
sends it back when there is none. When a worker dies, the scheduler gives its actions to others.
"""

from __future__ import annotations

import concurrent.futures
import functools
import io
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge import __version__, build, compiler, files, lockfile, pack, pipeline
from kernforge.build import SHELF, Done, Failure
from kernforge.errors import KernforgeError, NetworkError, ToolchainError
from kernforge.home import home
from kernforge.index import Index
from kernforge.plan import Plan
from kernforge.redist import Redist
from kernforge.run import run
from kernforge.shared_store import SharedStore
from kernforge.store import Store
from kernforge.units import Sources
from kernforge.wheels import Wheels

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kernforge.build import Workshop
    from kernforge.compiler import Compiler
    from kernforge.estimate import Estimate
    from kernforge.lockfile import Lock
    from kernforge.pipeline import Bench
    from kernforge.plan import Action
    from kernforge.sandbox import Sandbox

MEMORY = "MEMORY"
"""The Dask resource, in bytes, that workers may offer and actions then ask for."""

_CONNECT_S = 10
_WORKERS_S = 60
_HANDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """An action with all that a worker needs for it.

    Attributes:
        version: of the kernforge that sends it.
        action: what to run.
        texts: generated inputs by digest.
        sources: the project's inputs by path.
        results: packed results of other actions by key, where no shared store has them.
        bench: the project and the compiler, without what only the sender can use.
        workshop: likewise.
        lock: text of the lock.
        shared: URL of the shared store.
        redist: address of NVIDIA's redistributables.
    """

    version: str
    action: Action
    texts: Mapping[str, str]
    sources: Mapping[str, bytes]
    results: Mapping[str, bytes]
    bench: Bench
    workshop: Workshop
    lock: str
    shared: str | None
    redist: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What a worker sends back.

    Attributes:
        done: how the action ended.
        packed: its result; None when it failed or when the shared store has it.
        notes: what the worker wants to be said.
    """

    done: Done
    packed: bytes | None
    notes: tuple[str, ...] = ()


class LostResultError(Exception):
    """A result was to be in the shared store and is not."""


# -- on a worker -------------------------------------------------------------------------------


def work(parcel: Parcel) -> Delivery:
    """Do an action on the machine where this is called.

    Raises:
        LostResultError: the shared store lacks a result that was not sent along.
        KernforgeError: this machine cannot do it; the message names the machine.
    """
    where = _here()
    try:
        return _work(parcel, where)
    except KernforgeError as error:
        raise type(error)(f"worker {where}: {error.message}", hint=error.hint) from error


def _work(parcel: Parcel, where: str) -> Delivery:
    _same_version(parcel.version, __version__)
    notes: list[str] = []
    shared = SharedStore(parcel.shared, notes.append) if parcel.shared else None
    store = Store(home() / "store", shared)
    action = parcel.action
    with store.lease(), files.staging(store.root / "work") as scratch:
        _receive_results(parcel, store)
        project = replace(parcel.bench.project, files=_write_sources(parcel, scratch))
        index, downloads = functools.cache(Index.from_environment), store.root / "downloads"
        redist = (
            Redist(parcel.redist, lambda: index().transport, downloads, _Mute())
            if parcel.redist
            else None
        )
        bench = replace(
            parcel.bench,
            project=project,
            store=store,
            own=replace(parcel.bench.own, redist=redist),
            compiler=_same_compiler(parcel.bench.compiler),
            wheels=Wheels(index, downloads, _Mute()),
        )
        plan = Plan(actions=(action,), artifacts=(), texts=parcel.texts, sources_id="")
        locked = lockfile.from_json(parcel.lock)
        _same_parts(bench, locked)
        roots = pipeline.fetch(bench, plan, locked)
        isolation = pipeline.choose_sandbox(bench, parcel.workshop.sandbox.wanted)
        workshop = replace(parcel.workshop, store=store, roots=roots, sandbox=isolation)
        done = replace(build.perform(action, plan, project, workshop), where=where)
        if done.failure or (shared and shared.has(SHELF, action.key)):
            packed = None
        else:
            packed = _packed(store, action.key)
    return Delivery(done=done, packed=packed, notes=tuple(notes))


def _receive_results(parcel: Parcel, store: Store) -> None:
    for key, data in parcel.results.items():
        _unpack(store, key, data, shared=False)
    for one in parcel.action.inputs:
        key = one.name.partition("/")[0]
        if one.origin == "action" and not store.pull(SHELF, key):
            raise LostResultError(key)


def _write_sources(parcel: Parcel, scratch: Path) -> dict[str, Path]:
    found = {}
    for path, data in parcel.sources.items():
        files.write_new(scratch / path, data)
        found[path] = scratch / path
    return found


def _same_compiler(wanted: Compiler) -> Compiler:
    here = _compiler_here()
    if (here.identity, here.target) != (wanted.identity, wanted.target):
        raise ToolchainError(
            f"the host compiler is {here.identity!r} for {here.target}; the build is for "
            f"{wanted.identity!r} for {wanted.target}",
            hint="start the workers in the same image as the build, or name that compiler in CXX",
        )
    return here


def _same_parts(bench: Bench, locked: Lock) -> None:
    if wrong := locked.compiler.difference(pipeline.locked_compiler(bench)):
        raise ToolchainError(
            f"the host compiler is not the one of the build: {wrong}",
            hint="start the workers in the same image as the build",
        )


@functools.cache
def _compiler_here() -> Compiler:
    return compiler.find(os.environ, run)


def _same_version(theirs: str, ours: str) -> None:
    if theirs != ours:
        raise ToolchainError(
            f"it has kernforge {ours}, the build is by {theirs}",
            hint=f"pip install 'kernforge[build,cluster]=={theirs}' on the workers",
        )


def _here() -> str:
    from distributed import get_worker  # noqa: PLC0415 - only a cluster has it

    try:
        return str(get_worker().name)
    except ValueError:  # not on a worker: a test calls it
        return "here"


class _Mute:
    """Nobody watches a worker's downloads."""

    def fetching(self, _what: str, _total: int | None) -> Callable[[int], None]:
        return lambda _count: None

    def note(self, _text: str) -> None:
        pass


# -- at home -----------------------------------------------------------------------------------


class Cluster:
    """The workers of a Dask scheduler.

    Args:
        address: the scheduler's, as ``tcp://farm:8786``.
        bench: the project.
        plan: what will be built.
        locked: what with.
        jobs: how many architectures one nvcc compiles at once.
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
            wheels=Wheels(Index.from_environment, Path(), _Mute()),
        )
        workshop = pipeline.make_workshop(bench, {}, jobs=jobs, isolation=isolation)
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
        work: Callable[[Action], Done],  # noqa: ARG002 - a worker does it
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
            _unpack(store, action.key, delivery.packed, shared=True)
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
                results[key] = _packed(store, key)
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
            _same_version(__version__, version if isinstance(version, str) else "absent")
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


def _packed(store: Store, key: str) -> bytes:
    out = io.BytesIO()
    pack.pack(store.path(SHELF, key), out)
    return out.getvalue()


def _unpack(store: Store, key: str, data: bytes, *, shared: bool) -> None:
    store.tree(SHELF, key, lambda tree: pack.unpack(io.BytesIO(data), tree), shared=shared)


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
