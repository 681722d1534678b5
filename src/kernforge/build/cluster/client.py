# SPDX-License-Identifier: Apache-2.0
"""Connect to a Dask scheduler, and call a function on a worker that offers a resource."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from kernforge.build.cluster import task
from kernforge.build.cluster.task import IDENTITY
from kernforge.errors import NetworkError, ToolchainError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CONNECT_S = 10
_PATIENCE_S = 60
_LOOK_S = 1


def connect(address: str) -> Any:
    """Connect to a scheduler such as ``tcp://farm:8786``.

    Returns:
        A ``distributed.Client``.

    Raises:
        NetworkError: no scheduler answers there.
    """
    from distributed import Client  # noqa: PLC0415 - only a cluster needs it

    try:
        return Client(address, timeout=_CONNECT_S, set_as_default=False, name="kernforge")
    except (OSError, TimeoutError, ValueError) as error:
        raise NetworkError(
            f"no Dask scheduler answers at {address}: {error}",
            hint="start one with `dask scheduler`, and give its address as tcp://HOST:8786",
        ) from error


def offers(client: Any) -> dict[str, Mapping[str, float]]:
    """The resources that each worker offers, by the worker's address.

    Raises:
        OSError: the scheduler is gone.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return {address: worker["resources"] for address, worker in workers.items()}


def this_worker() -> str:
    """Address of the worker on which this is called."""
    from distributed import get_worker  # noqa: PLC0415 - only a cluster has it

    return str(get_worker().address)


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

    answers = client.run(identity, workers=list(workers), on_error="return")
    for worker, answer in answers.items():
        try:
            task.require_same(IDENTITY, answer if isinstance(answer, str) else "absent")
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
        self, address: str, resources: Mapping[str, float], *, patience_s: float = _PATIENCE_S
    ) -> None:
        self._address, self._resources = address, dict(resources)
        self._patience_s = patience_s
        self._client = connect(address)
        try:
            if not (workers := self._able()):
                raise self._none("no worker of {} offers {}", "{} has no workers")
            require_same_kernforge(self._client, workers)
        except (NetworkError, ToolchainError):
            self.close()
            raise

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
            hint=f"start one: `dask worker {self._address}"
            + (f" --resources '{wanted}'`" if wanted else "`"),
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
        future.add_done_callback(lambda _: done.set())
        while not done.wait(_LOOK_S):
            if self._able():
                seen = time.monotonic()
            elif time.monotonic() - seen > self._patience_s:
                future.cancel()
                gone = "its worker is gone, and no other of {} offers {}"
                raise self._none(gone, "the last worker of {} is gone")
        try:
            return future.result()
        except KilledWorker as error:
            raise NetworkError(
                f"each worker that was given the tests died: {error}",
                hint="its log says why; the scheduler tries `distributed.scheduler.allowed-failures` times",
            ) from error
        except CancelledError as error:
            raise NetworkError(
                f"the Dask scheduler at {self._address} is gone", hint="start it, and test again"
            ) from error

    def close(self) -> None:
        """Leave the cluster."""
        self._client.close()
