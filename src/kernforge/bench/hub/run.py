# SPDX-License-Identifier: Apache-2.0
"""Measure a repository's benchmark classes of the hub, unchanged, by judge and workers.

A workload's inputs are seeds that the judge draws. The worker sets up an instance from each, and
another process, the oracle, computes the reference for the same seed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kernforge.bench import api as bench
from kernforge.bench import text
from kernforge.bench.engine import messages
from kernforge.bench.engine.messages import MessageError
from kernforge.bench.engine.workload import SIZES, Candidate, Settings, Tensor, Workload
from kernforge.bench.hub.oracle import (
    Compare,
    Compared,
    ComputeReference,
    Entries,
    Failed,
    OracleStart,
    Probe,
    Probed,
    Reference,
)
from kernforge.bench.hub.payload import OURS, REFERENCE
from kernforge.errors import CheckError, UsageError, page
from kernforge.registry.names import BENCHMARKS
from kernforge.system import files
from kernforge.system.process import Command, PipedProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor as Torch

    from kernforge.bench.hub.oracle import Request

PATTERN = "benchmark*.py"
_START_S, _ANSWER_S = 600.0, 300.0
_SEEDS = Tensor(shape=(1,), dtype="int64", low=0, high=1 << 62)
_FIRST_SEED = 42
_WORKER, _ORACLE = "kernforge.bench.hub.worker", "kernforge.bench.hub.oracle"
_Reply = TypeVar("_Reply")
_NEITHER = 2  # A copy reads one half of its bytes and writes the other.


@dataclass(frozen=True, slots=True, kw_only=True)
class HubBenchRequest:
    """What to measure.

    Attributes:
        repo: directory of the repository, in which the scripts are run.
        kernel: directory of the built kernel, or ``owner/name@version``.
        against: ``owner/name@version`` of other builds to run the same classes with.
        only: ``Class.workload`` of those to measure; all when empty.
        reference: whether the ``verify_`` methods are timed too.
    """

    repo: Path
    kernel: str
    registry: str | None = None
    trust: bool = False
    against: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    reference: bool = True


def scripts(repo: Path) -> list[Path]:
    """The scripts of a repository, by name.

    Raises:
        UsageError: it has none.
    """
    paths = sorted((repo / BENCHMARKS).glob(PATTERN))
    if not paths:
        raise UsageError(
            f"{repo} has no {BENCHMARKS}/{PATTERN}",
            hint=f"see {page('how-to/author/measure-a-published-kernel')}",
        )
    return paths


def only_classes(project: Path) -> bool:
    """Whether a project has scripts of the hub's form, and none of kernforge's own."""
    folder = project / BENCHMARKS
    return not (folder / "workloads.py").exists() and any(folder.glob(PATTERN))


def run(
    request: HubBenchRequest, settings: Settings, note: Callable[[str], None]
) -> dict[str, Any]:
    """Measure every workload of every script.

    Returns:
        The document of ``bench.run``, with ``failed``: workloads whose ``setup`` or ``verify_``
        cannot be run, and why. A case has ``reference`` besides: ``apart`` (computed where the kernel
        was never loaded), ``beside the kernel`` or ``none``. It has no roof, because a class does not
        say how much it must move.

    Raises:
        UsageError: there is no script, or none of the workloads in ``only``.
        CheckError: a script cannot be run.
    """
    cases: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    known: list[str] = []
    try:
        for script in scripts(request.repo):
            with _open_oracle(script, request, settings.device) as oracle:
                known += oracle.entries
                for entry in sorted(oracle.entries):
                    if request.only and entry not in request.only:
                        continue
                    # Another script may have a class of this name.
                    name = f"{entry} ({script.name})" if entry in cases | failed else entry
                    try:
                        case = _measure(oracle, entry, request, settings, note)
                        cases[name] = case | {"name": name}
                    except CheckError as error:
                        note(f"{name}: {error.message}")
                        failed[name] = error.message
    except KeyboardInterrupt as error:
        raise bench.PartialResult(_document(cases, failed, settings)) from error
    if unknown := set(request.only) - set(known):
        raise UsageError(
            f"no workload is called {', '.join(sorted(unknown))}",
            hint=f"there are {', '.join(sorted(known))}",
        )
    return _document(cases, failed, settings)


def _document(
    cases: Mapping[str, dict[str, Any]], failed: Mapping[str, str], settings: Settings
) -> dict[str, Any]:
    return {
        "format": text.FORMAT,
        "machine": bench.machine(settings.device),
        "settings": dataclasses.asdict(settings),
        "workloads": [cases[entry] for entry in sorted(cases)],
        "failed": dict(failed),
    }


def refusals(document: dict[str, Any]) -> list[str]:
    """Workloads that could not be measured, and candidates that were refused, with the reason."""
    failed = [f"{entry}: {why}" for entry, why in sorted(document.get("failed", {}).items())]
    return failed + bench.refusals(document)


def _measure(
    oracle: _OracleProcess,
    entry: str,
    request: HubBenchRequest,
    settings: Settings,
    note: Callable[[str], None],
) -> dict[str, Any]:
    """The case of one workload."""
    workload = oracle.workload(entry)
    document = bench.run([workload], oracle.candidates(entry, request), settings, note)
    case: dict[str, Any] = document["workloads"][0]
    for row in case["results"]:
        for word in ("bytes_per_s", "flops_per_s", "share_of_roof"):
            row.pop(word, None)
        if not oracle.entries[entry]:
            row["checked"] = 0
    return case | {
        "shapes": oracle.shapes(entry),
        "script": oracle.script.name,
        "reference": oracle.kind(entry),
        "ceilings": {},
    }


class _OracleProcess:
    """The process that computes a script's references; a fresh one after it used the kernel.

    Args:
        place: a directory for the files of the exchange.
        device: where results are compared.
    """

    def __init__(
        self, script: Path, start: Callable[[], PipedProcess], place: Path, device: str
    ) -> None:
        self.script, self._start, self._place, self._device = script, start, place, device
        self._process = start()
        self._used_the_kernel = False
        self._probed: dict[str, Probed] = {}
        self._shape: dict[str, tuple[int, ...]] = {}
        self.entries: dict[str, bool] = {}

    def begin(self) -> None:
        """Take the workloads of the script, and whether each has a reference.

        Raises:
            CheckError: it cannot be run, or has none.
        """
        self.entries = self._hear(_START_S, Entries).verifies
        if not self.entries:
            raise CheckError(
                f"{self.script} defines no subclass of Benchmark with a method benchmark_...",
                hint=f"see {page('how-to/author/measure-a-published-kernel')}",
            )

    def close(self) -> None:
        """End its process."""
        self._process.kill()

    def kind(self, entry: str) -> str:
        """Where the reference of a workload is computed."""
        if not self.entries[entry]:
            return "none"
        return "beside the kernel" if self._probed[entry].used else "apart"

    def shapes(self, entry: str) -> list[list[int]]:
        """Shape of a workload's result, where it is known."""
        return [[*self._shape[entry]]] if entry in self._shape else []

    def workload(self, entry: str) -> Workload:
        """A workload as the judge measures it.

        Raises:
            CheckError: its ``setup`` or ``verify_`` cannot be run.
        """
        if self._used_the_kernel:
            self.close()
            self._process = self._start()
            self._hear(_START_S, Entries)
        probed = self._ask(Probe(entry=entry, seed=_FIRST_SEED), Probed)
        self._probed[entry], self._used_the_kernel = probed, probed.used
        if not self.entries[entry]:
            return Workload(
                name=entry,
                inputs=(_SEEDS,),
                reference=lambda _seed: (),
                bytes=_NEITHER,
                flops=0,
                held=probed.held,
            )
        first = self._reference(entry, _FIRST_SEED)
        return Workload(
            name=entry,
            inputs=(_SEEDS,),
            reference=lambda seed: self._reference(entry, int(seed)),
            outputs=(str(first.dtype).removeprefix("torch."),),
            # What it reads is not known; at least the result is written.
            bytes=max(_NEITHER, first.nbytes),
            flops=0,
            held=probed.held,
            late=probed.late,
            accepts=self._accepts,
        )

    def candidates(self, entry: str, request: HubBenchRequest) -> list[Candidate]:
        """The candidates: the kernel, others in its place, and the reference."""

        def candidate(name: str, kernel: str, *, reference: bool = False) -> Candidate:
            return Candidate(
                name=name,
                kind="hub reference" if reference else "hub",
                file=str(self.script),
                kernel=kernel,
                registry=request.registry,
                trust=request.trust,
                entry=entry,
                repo=str(request.repo),
                after=self._probed[entry].after,
                worker=_WORKER,
            )

        racing = [candidate(OURS, request.kernel)]
        racing += [candidate(each, each) for each in request.against]
        if self.entries[entry] and request.reference:
            racing.append(candidate(REFERENCE, request.kernel, reference=True))
        return racing

    def _reference(self, entry: str, seed: int) -> Torch:
        import torch

        reference = self._ask(ComputeReference(entry=entry, seed=seed), Reference)
        shape, name = reference.shape, reference.dtype
        if name not in SIZES or any(each < 0 for each in shape):
            raise CheckError(f"{self.script}: verify_ of {entry} returned {name} {shape}")
        self._shape[entry] = shape
        dtype = getattr(torch, name)
        size = math.prod(shape) * SIZES[name]
        if not size:
            return torch.empty(shape, dtype=dtype, device=self._device)
        path = self._place / "right.bin"
        if path.stat().st_size < size:
            raise CheckError(f"{self.script}: {entry} gave less than its shape {shape}")
        flat = torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8)
        return flat.clone().view(dtype).view(shape).to(self._device)

    def _accepts(self, got: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
        """Whether the script's own check would pass, and would mean something if it did."""
        import torch

        (mine,), (wanted,) = got, right
        if mine.dtype != wanted.dtype or mine.shape != wanted.shape or not mine.numel():
            return False
        size = wanted.nbytes
        paths = {}
        for name, tensor in (("got", mine), ("right", wanted)):
            flat = tensor.cpu().contiguous().reshape(-1).view(torch.uint8)
            paths[name] = str(self._place / f"{name}-shown.bin")
            torch.from_file(paths[name], shared=True, size=size, dtype=torch.uint8).copy_(flat)
        dtype = str(wanted.dtype).removeprefix("torch.")
        question = Compare(dtype=dtype, shape=tuple(wanted.shape), size=size, **paths)
        compared = self._ask(question, Compared)
        # A check that zeros would pass, as of small values, says nothing.
        return compared.accepts and not compared.zeros

    def _ask(self, request: Request, kind: type[_Reply]) -> _Reply:
        self._process.send(messages.encode(request))
        return self._hear(_ANSWER_S, kind)

    def _hear(self, seconds: float, kind: type[_Reply]) -> _Reply:
        """The next reply.

        Raises:
            CheckError: there is none of this kind.
        """
        kinds: tuple[type[_Reply | Failed], ...] = (kind, Failed)
        try:
            reply = messages.receive(self._process, seconds, kinds)
        except MessageError as error:
            raise CheckError(f"{self.script}: {error}") from error
        if isinstance(reply, Failed):
            raise CheckError(f"{self.script}: {reply.why}", hint=_hint(reply.why))
        return reply


def _hint(failed: str) -> str:
    if "'kernels" in failed:
        return "it takes classes of the hub's client: pip install kernels"
    return "run it with kernels benchmark to see whether it is the script's own mistake"


@contextlib.contextmanager
def _open_oracle(script: Path, request: HubBenchRequest, device: str) -> Iterator[_OracleProcess]:
    shm = Path("/dev/shm")  # noqa: S108 - a staging directory of our own in it
    with files.staging(shm if shm.is_dir() else Path.cwd() / ".kernforge") as place:
        start = OracleStart(
            script=str(script),
            repo=str(request.repo),
            kernel=request.kernel,
            registry=request.registry,
            trust=request.trust,
            device=device,
            exchange=str(place / "right.bin"),
        )
        argv = (sys.executable, "-m", _ORACLE, messages.encode(start))
        oracle = _OracleProcess(script, lambda: PipedProcess(Command(argv=argv)), place, device)
        try:
            oracle.begin()
            yield oracle
        finally:
            oracle.close()
