# SPDX-License-Identifier: Apache-2.0
"""The process that computes references: ``python -m kernforge.bench.hub.oracle SPEC READ WRITE``.

It runs a script's ``verify_`` methods, in a process in which nothing is timed and which never sees
the inputs' results but those that it is shown. The kernel is loaded only if a script's ``setup_``
or ``verify_`` uses it. Whether a result will do is asked of ``torch.allclose`` as the hub's client
asks it, which a script may have replaced by its own.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, get_args

from kernforge.bench.engine import contender, messages
from kernforge.bench.engine.messages import JudgePipe
from kernforge.bench.hub import scripts
from kernforge.system import garbage

_ATOL = 1e-2  # the hub's client's
_LONGEST = 2000  # Characters of an error.


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleStart:
    """What an oracle is started with.

    Attributes:
        repo: the directory that it is run in.
        kernel: directory of the built kernel, or ``owner/name@version``.
        exchange: the file for references.
    """

    script: str
    repo: str
    kernel: str
    registry: str | None
    trust: bool
    device: str
    exchange: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Try a workload once, set up from this seed."""

    entry: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeReference:
    """Put what is right for this seed into the exchange."""

    entry: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """Ask the script's own check whether a result is right.

    Attributes:
        got: the file with the result.
        right: the file with the reference.
    """

    dtype: str
    shape: tuple[int, ...]
    size: int
    got: str
    right: str


Request: TypeAlias = Probe | ComputeReference | Compare


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """The workloads of a script, and whether each has a reference."""

    verifies: dict[str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What a workload is like.

    Attributes:
        held: bytes of each tensor that its ``setup`` makes.
        late: whether its result is put together by its ``verify_``.
        used: whether its reference needs the kernel.
        after: whether its ``verify_`` needs the workload to have been run.
    """

    held: tuple[int, ...]
    late: bool = False
    used: bool = False
    after: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A reference that lies in the exchange now."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Whether the script's check takes the result, and whether it takes zeros as well."""

    accepts: bool
    zeros: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The script cannot be run."""

    why: str


Reply: TypeAlias = Entries | Probed | Reference | Compared | Failed


class Oracle:
    """A script, and what is right by it."""

    def __init__(self, start: OracleStart) -> None:
        load = functools.partial(
            contender.load_kernel,
            start.kernel,
            registry=start.registry,
            backend=contender.backend_of(start.device),
            trust=start.trust,
        )
        self._script = scripts.Script(Path(start.script), Path(start.repo), load, start.device)
        self._exchange, self._device = start.exchange, start.device
        self._after: set[str] = set()

    def entries(self) -> Entries:
        """All workloads of the script."""
        return Entries(verifies=self._script.entries())

    def reply(self, request: Request) -> Reply:
        """What comes of a request."""
        match request:
            case Probe(entry=entry, seed=seed):
                return self._probe(entry, seed)
            case ComputeReference(entry=entry, seed=seed):
                return self._reference(entry, seed)
            case Compare():
                return self._compare(request)

    def _probe(self, entry: str, seed: int) -> Probed:
        instance, method = self._script.make(entry, seed)
        held = tuple(each.untyped_storage().nbytes() for each in scripts.held(instance))
        if not self._script.entries()[entry]:
            return Probed(held=held)
        before = instance.out
        try:
            self._script.reference(instance, method)()
        except Exception:  # noqa: BLE001 - whatever it raises, it may need what the workload makes
            self._after.add(entry)
            instance, _ = self._script.make(entry, seed)
            getattr(instance, method)()
            before = instance.out
            self._script.reference(instance, method)()
        return Probed(
            held=held,
            late=instance.out is not before,
            used=self._script.kernel.was_used,
            after=entry in self._after,
        )

    def _reference(self, entry: str, seed: int) -> Reference:
        import torch

        instance, method = self._script.make(entry, seed)
        if entry in self._after:
            getattr(instance, method)()
        result = self._script.reference(instance, method)()
        if not isinstance(result, torch.Tensor):
            raise TypeError(f"verify_ returned a {type(result).__name__}, not a tensor")
        plain = result.detach().cpu().contiguous()
        if size := plain.nbytes:
            flat = plain.reshape(-1).view(torch.uint8)
            torch.from_file(self._exchange, shared=True, size=size, dtype=torch.uint8).copy_(flat)
        dtype = str(plain.dtype).removeprefix("torch.")
        return Reference(shape=tuple(plain.shape), dtype=dtype)

    def _compare(self, request: Compare) -> Compared:
        import torch

        dtype = getattr(torch, request.dtype)
        got, right = (
            torch.from_file(path, shared=True, size=request.size, dtype=torch.uint8)
            .clone()
            .view(dtype)
            .view(request.shape)
            .to(self._device)
            for path in (request.got, request.right)
        )
        return Compared(
            accepts=bool(torch.allclose(got, right, atol=_ATOL)),
            zeros=bool(torch.allclose(torch.zeros_like(right), right, atol=_ATOL)),
        )


def main(argv: list[str]) -> None:
    """Load the script, then reply until the judge hangs up."""
    garbage.collect_rarely()
    start = messages.decode(argv[0], [OracleStart])
    judge = JudgePipe(argv[1], argv[2], get_args(Request))
    try:
        oracle = Oracle(start)
        entries = oracle.entries()
    except Exception as error:  # noqa: BLE001 - whatever a script raises is its result
        judge.send(_failed(error))
        return
    judge.send(entries)
    for request in judge:
        try:
            judge.send(oracle.reply(request))
        except Exception as error:  # noqa: BLE001 - as above
            judge.send(_failed(error))


def _failed(error: Exception) -> Failed:
    return Failed(why=f"{type(error).__name__}: {error}"[:_LONGEST])


if __name__ == "__main__":
    main(sys.argv[1:])
