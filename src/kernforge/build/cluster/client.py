# SPDX-License-Identifier: Apache-2.0
"""Connect to a Dask scheduler, and call a function on a worker that offers a resource."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

from kernforge.build.cluster import network, task
from kernforge.build.cluster.task import IDENTITY
from kernforge.errors import NetworkError, ToolchainError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kernforge.build.cluster.network import FarmAccess

_CONNECT_S = 10
_PATIENCE_S = 60
_LOOK_S = 1
# A scheduler that distributes work is late by a second or two at most.
_ANSWER_S = 5
_GONE_S = 18
_SAME_S = 60
_T = TypeVar("_T")


def connect(address: str, farm: FarmAccess) -> Any:
    """Connect to a scheduler such as ``tls://farm:8786``.

    Returns:
        A ``distributed.Client``.

    Raises:
        NetworkError: no scheduler answers there, or not to a certificate of this farm.
        UsageError: it is no address, or its name leads nowhere; the connection, or one of the
            scheduler's to a worker, is plain and leaves the machine; or this machine has no
            certificate.
    """
    address = network.scheduler_address(address)
    network.require_private([address], farm)
    network.require_pair(address, farm)
    from distributed import Client  # noqa: PLC0415 - only a cluster needs it

    # Of a connection that is lost Dask logs a page; the error that follows says it in a line.
    for name in ("distributed", "distributed.client"):  # Dask gives both a level
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        answer(lambda: network.require_name(address), _CONNECT_S)
        # The timeout is that of the connection; one that is stopped has it and says nothing.
        client = answer(
            lambda: Client(
                address,
                timeout=_CONNECT_S,
                set_as_default=False,
                name="kernforge",
                security=farm.security(),
            ),
            _CONNECT_S + _ANSWER_S,
        )
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        raise NetworkError(
            f"no Dask scheduler answers at {address}: {error}",
            hint="start one with `kernforge farm scheduler`, and give its address as "
            "tls://HOST:8786; certificates must be of the same `kernforge farm init` and not expired",
        ) from error
    with leaving(client, address):
        info = answer(lambda: client.scheduler_info(n_workers=-1))
        # What is connected to on this machine may be the end of a tunnel.
        network.require_private([info["address"], *info["workers"]], farm)
    return client


@contextlib.contextmanager
def leaving(client: Any, address: str) -> Iterator[None]:
    """Close a client where the block fails; a connection that is lost is an error of its own."""
    try:
        yield
    except OSError as error:
        leave(client)
        raise gone(address) from error
    except BaseException:
        leave(client)
        raise


def gone(address: str) -> NetworkError:
    """The error for a scheduler that answered, and answers no more."""
    return NetworkError(
        f"the Dask scheduler at {address} does not answer any more",
        hint="start it again and repeat the command: what was finished is in the store; without "
        "--scheduler it runs on this machine",
    )


def answer(call: Callable[[], _T], seconds: float = _ANSWER_S) -> _T:
    """The answer of a scheduler, which may have died or be stopped.

    Raises:
        OSError: it does not answer in time, or the connection is gone.
    """
    found: list[_T] = []
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            found.append(call())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            raised.append(error)

    # Dask's own calls wait as long as the connection is open, which it is to a stopped process.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not found:
        raise TimeoutError(f"no answer in {seconds} s")
    return found[0]


def leave(client: Any) -> None:
    """Close a client, without waiting for a scheduler that does not answer."""
    with contextlib.suppress(Exception):
        answer(lambda: client.close() or True)


def offers(client: Any) -> dict[str, Mapping[str, float]]:
    """The resources that each worker offers, by the worker's address.

    Raises:
        OSError: the scheduler is gone.
    """
    return _offered(answer(lambda: client.scheduler_info(n_workers=-1), _GONE_S))


def _offered(identity: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    return {address: worker["resources"] for address, worker in identity["workers"].items()}


class SchedulerWatch:
    """Asks a scheduler all the time whether it is there, until it is not.

    Args:
        dead: called once, from another thread, when it has not answered for some 20 s.
        offered: called there after each answer with what ``offers`` returns.
    """

    def __init__(
        self,
        client: Any,
        dead: Callable[[], None],
        offered: Callable[[Mapping[str, Mapping[str, float]]], None] | None = None,
    ) -> None:
        self._client, self._dead, self._offered = client, dead, offered
        self._stop = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def stop(self) -> None:
        """Ask no more."""
        self._stop.set()

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._stop.wait(_LOOK_S):
            try:
                # The client tells of the scheduler that it knew, too: only its own answer counts.
                identity = answer(lambda: self._client.sync(self._client.scheduler.identity))
                last = time.monotonic()
            except Exception:  # noqa: BLE001 - a client that loses its connection raises this and that
                if time.monotonic() - last > _GONE_S and not self._stop.is_set():
                    self._dead()
                    return
            else:
                if self._offered and not self._stop.is_set():
                    self._offered(_offered(identity))


def require_same_kernforge(client: Any, workers: Sequence[str]) -> None:
    """Refuse workers whose kernforge is not this one.

    Raises:
        ToolchainError: one has another kernforge, or none.
    """

    # Defined here, it is sent by value: an older kernforge has no module of that name.
    def identity() -> str:
        from importlib import metadata  # noqa: PLC0415

        try:
            from kernforge.build.cluster.task import IDENTITY  # noqa: PLC0415
        except ImportError:
            return metadata.version("kernforge")
        return IDENTITY

    found = answer(lambda: client.run(identity, workers=list(workers), on_error="return"), _SAME_S)
    for worker, theirs in found.items():
        try:
            task.require_same(IDENTITY, theirs if isinstance(theirs, str) else "absent")
        except ToolchainError as error:
            raise ToolchainError(f"worker {worker}: {error.message}", hint=error.hint) from error


class Workers:
    """The workers of a Dask scheduler that offer what tests need.

    Args:
        resources: what a worker must offer, as ``{"GPU": 1}``.
        patience_s: how long the last such worker may be gone; a nanny starts one again.

    Raises:
        NetworkError: no scheduler answers, or no worker offers that.
        ToolchainError: such a worker has another kernforge, or none.
    """

    def __init__(
        self,
        address: str,
        resources: Mapping[str, float],
        farm: FarmAccess,
        *,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._address, self._resources = network.scheduler_address(address), dict(resources)
        self._patience_s = patience_s
        self._client = connect(self._address, farm)
        with leaving(self._client, self._address):
            if not (workers := self._able()):
                raise self._none("no worker of {} offers {}", "{} has no workers")
            require_same_kernforge(self._client, workers)

    def _able(self) -> tuple[str, ...]:
        """Addresses of the workers that offer what is asked."""
        try:
            found = offers(self._client)
        except OSError:  # the scheduler is gone; it may come back
            return ()
        asked = self._resources.items()
        return tuple(
            address
            for address, offered in found.items()
            if all(offered.get(name, 0) >= amount for name, amount in asked)
        )

    def _none(self, particular: str, plain: str) -> NetworkError:
        wanted = " ".join(f"{name}={amount:g}" for name, amount in self._resources.items())
        return NetworkError(
            particular.format(self._address, wanted) if wanted else plain.format(self._address),
            hint=f"start one: `kernforge farm worker --scheduler {self._address}"
            + (f" -- --resources '{wanted}'`" if wanted else "`"),
        )

    def call(self, function: Any, *arguments: Any) -> Any:
        """Run a function on a worker and give back what it returns or raises.

        When the worker dies, Dask gives the work to another one.

        Raises:
            NetworkError: each worker that had it died, or none is left; or the scheduler is gone.
        """
        from distributed import CancelledError, KilledWorker  # noqa: PLC0415

        options = {"resources": self._resources} if self._resources else {}
        future = self._client.submit(function, *arguments, pure=False, **options)
        done, seen = threading.Event(), time.monotonic()
        dead = threading.Event()
        future.add_done_callback(lambda _: done.set())
        watch = SchedulerWatch(self._client, dead.set)
        try:
            self._wait(future, done, dead, seen)
        finally:
            watch.stop()
        try:
            return future.result()
        except KilledWorker as error:
            raise NetworkError(
                f"each worker that was given the tests died: {error}",
                hint="its log says why; the scheduler tries `distributed.scheduler.allowed-failures` times",
            ) from error
        except CancelledError as error:
            raise gone(self._address) from error

    def _wait(self, future: Any, done: Any, dead: Any, seen: float) -> None:
        while not done.wait(_LOOK_S):
            if dead.is_set():
                raise gone(self._address)
            if self._able():
                seen = time.monotonic()
            elif time.monotonic() - seen > self._patience_s:
                future.cancel()
                text = "its worker is gone, and no other of {} offers {}"
                raise self._none(text, "the last worker of {} is gone")

    def close(self) -> None:
        """Leave the cluster."""
        leave(self._client)
