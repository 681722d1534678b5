# SPDX-License-Identifier: Apache-2.0
"""Measure a repository's benchmark classes of the hub, unchanged, by judge and workers.

A workload's inputs are seeds that the judge draws; the worker sets an instance up from each, and a
process of its own, the oracle, says what is right for the same seed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.bench import api as bench
from kernforge.bench.engine.workload import SIZES, Candidate, Settings, Tensor, Workload
from kernforge.errors import CheckError, UsageError, page
from kernforge.registry.names import BENCHMARKS
from kernforge.system import files
from kernforge.system.process import Command, Partner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor as Torch

PATTERN = "benchmark*.py"
OURS, REFERENCE = "kernel", "reference"
_START_S, _ANSWER_S = 600.0, 300.0
_SEEDS = Tensor(shape=(1,), dtype="int64", low=0, high=1 << 62)
_FIRST_SEED = 42
_NEITHER = 2  # A copy reads one half of its bytes and writes the other.


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is measured.

    Attributes:
        repo: directory of the repository, in which the scripts are run.
        kernel: directory of the built kernel, or ``owner/name@version``.
        registry: where kernels are looked up.
        trust: the user's word that they may be loaded.
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
    found = sorted((repo / BENCHMARKS).glob(PATTERN))
    if not found:
        raise UsageError(
            f"{repo} has no {BENCHMARKS}/{PATTERN}",
            hint=f"see {page('how-to/author/measure-a-published-kernel')}",
        )
    return found


def only_classes(project: Path) -> bool:
    """Whether a project has scripts of the hub's form, and none of kernforge's own."""
    folder = project / BENCHMARKS
    return not (folder / "workloads.py").exists() and any(folder.glob(PATTERN))


def run(wanted: Wanted, settings: Settings, note: Callable[[str], None]) -> dict[str, Any]:
    """Measure every workload of every script, and tell it as a document.

    It is that of ``bench.run``; ``failed`` says of which workloads a ``setup`` or ``verify_`` cannot
    be run, and why. A case has, besides, ``reference``: ``apart`` (computed where the
    kernel was never loaded), ``beside the kernel`` or ``none``; and nothing about the roof, because
    nobody says how much a class must move.

    Args:
        wanted: what is measured.
        settings: how.
        note: told what happens.

    Raises:
        UsageError: there is no script, or no workload that is asked for.
        CheckError: a script cannot be run.
    """
    cases: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    known: list[str] = []
    for script in scripts(wanted.repo):
        with _oracle(script, wanted, settings.device) as oracle:
            known += oracle.entries
            for entry in sorted(oracle.entries):
                if wanted.only and entry not in wanted.only:
                    continue
                try:
                    cases[entry] = _measure(oracle, entry, wanted, settings, note)
                except CheckError as error:
                    note(f"{entry}: {error.message}")
                    failed[entry] = error.message
    if unknown := set(wanted.only) - set(known):
        raise UsageError(
            f"no workload is called {', '.join(sorted(unknown))}",
            hint=f"there are {', '.join(sorted(known))}",
        )
    return {
        "format": bench.FORMAT,
        "machine": bench.machine(settings.device),
        "settings": dataclasses.asdict(settings),
        "workloads": [cases[entry] for entry in sorted(cases)],
        "failed": failed,
    }


def refusals(document: dict[str, Any]) -> list[str]:
    """What could not be measured or is wrong, with the reason."""
    failed = [f"{entry}: {why}" for entry, why in sorted(document.get("failed", {}).items())]
    return failed + bench.refusals(document)


def _measure(
    oracle: _Oracle,
    entry: str,
    wanted: Wanted,
    settings: Settings,
    note: Callable[[str], None],
) -> dict[str, Any]:
    """The case of one workload."""
    workload = oracle.workload(entry)
    document = bench.run([workload], oracle.candidates(entry, wanted), settings, note)
    case: dict[str, Any] = document["workloads"][0]
    for row in case["results"]:
        for word in ("bytes_per_s", "flops_per_s", "share_of_roof"):
            row.pop(word, None)
        if not oracle.verifies(entry):
            row["checked"] = 0
    return case | {
        "shapes": oracle.shapes(entry),
        "script": oracle.script.name,
        "reference": oracle.kind(entry),
        "ceilings": {},
    }


class _Oracle:
    """A script's process that says what is right; a fresh one after it met the kernel.

    Args:
        script: the script.
        start: starts the process.
        place: a directory for what is exchanged.
        device: where results are compared.
    """

    def __init__(
        self, script: Path, start: Callable[[], Partner], place: Path, device: str
    ) -> None:
        self.script, self._start, self._place, self._device = script, start, place, device
        self._partner = start()
        self._met_the_kernel = False
        self._probed: dict[str, dict[str, Any]] = {}
        self._shape: dict[str, list[int]] = {}
        try:
            self.entries: dict[str, dict[str, Any]] = self._answer(_START_S)["entries"]
        except BaseException:
            self.close()
            raise
        if not self.entries:
            self.close()
            raise CheckError(
                f"{script} defines no subclass of Benchmark with a method benchmark_...",
                hint=f"see {page('how-to/author/measure-a-published-kernel')}",
            )

    def close(self) -> None:
        """End its process."""
        self._partner.kill()

    def verifies(self, entry: str) -> bool:
        """Whether a workload has a reference."""
        return bool(self.entries[entry]["verify"])

    def kind(self, entry: str) -> str:
        """Where the reference of a workload is computed."""
        if not self.verifies(entry):
            return "none"
        return "beside the kernel" if self._probed[entry]["used"] else "apart"

    def shapes(self, entry: str) -> list[list[int]]:
        """Shape of a workload's result, where it is known."""
        return [self._shape[entry]] if entry in self._shape else []

    def workload(self, entry: str) -> Workload:
        """A workload as the judge measures it.

        Raises:
            CheckError: its ``setup`` or ``verify_`` cannot be run.
        """
        if self._met_the_kernel:
            self.close()
            self._partner = self._start()
            self._answer(_START_S)
        probed = self._probed[entry] = self._ask(do="probe", entry=entry, seed=_FIRST_SEED)
        self._met_the_kernel = bool(probed["used"])
        held = tuple(int(size) for size in probed["held"])
        if not self.verifies(entry):
            return Workload(
                name=entry,
                inputs=(_SEEDS,),
                reference=lambda _seed: (),
                bytes=_NEITHER,
                flops=0,
                held=held,
            )
        first = self._reference(entry, _FIRST_SEED)
        return Workload(
            name=entry,
            inputs=(_SEEDS,),
            reference=lambda seed: self._reference(entry, int(seed)),
            outputs=(str(first.dtype).removeprefix("torch."),),
            # What it reads nobody says; at least the result is written.
            bytes=max(_NEITHER, first.numel() * first.element_size()),
            flops=0,
            held=held,
            late=bool(probed["late"]),
            accepts=self._accepts,
        )

    def candidates(self, entry: str, wanted: Wanted) -> list[Candidate]:
        """Who is measured: the kernel, others in its place, and the reference."""

        def one(name: str, kernel: str, *, reference: bool = False) -> Candidate:
            return Candidate(
                name=name,
                kind="hub reference" if reference else "hub",
                file=str(self.script),
                kernel=kernel,
                registry=wanted.registry,
                trust=wanted.trust,
                entry=entry,
                repo=str(wanted.repo),
                after=bool(self._probed[entry]["after"]),
            )

        found = [one(OURS, wanted.kernel), *(one(each, each) for each in wanted.against)]
        if self.verifies(entry) and wanted.reference:
            found.append(one(REFERENCE, wanted.kernel, reference=True))
        return found

    def _reference(self, entry: str, seed: int) -> Torch:
        import torch  # noqa: PLC0415

        said = self._ask(do="reference", entry=entry, seed=seed)
        shape, name = said["shape"], said["dtype"]
        if name not in SIZES or not all(isinstance(each, int) for each in shape):
            raise CheckError(f"{self.script}: verify_ of {entry} returned {name} {shape}")
        self._shape[entry] = shape
        dtype = getattr(torch, name)
        size = SIZES[name]
        for each in shape:
            size *= each
        if not size:
            return torch.empty(shape, dtype=dtype, device=self._device)
        path = self._place / "right.bin"
        if path.stat().st_size < size:
            raise CheckError(f"{self.script}: {entry} gave less than its shape {shape}")
        flat = torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8)
        return flat.clone().view(dtype).view(shape).to(self._device)

    def _accepts(self, got: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
        """Whether the script's own check would pass, and would mean something if it did."""
        import torch  # noqa: PLC0415

        (mine,), (wanted,) = got, right
        if mine.dtype != wanted.dtype or mine.shape != wanted.shape or not mine.numel():
            return False
        told = {"dtype": str(wanted.dtype).removeprefix("torch."), "shape": list(wanted.shape)}
        for name, tensor in (("got", mine), ("right", wanted)):
            flat = tensor.cpu().contiguous().reshape(-1).view(torch.uint8)
            path = str(self._place / f"{name}-shown.bin")
            torch.from_file(path, shared=True, size=flat.numel(), dtype=torch.uint8).copy_(flat)
            told |= {name: path, "size": flat.numel()}
        said = self._ask(do="accepts", **told)
        # A check that zeros would pass, as of small values, says nothing.
        return bool(said["accepts"]) and not said["zeros"]

    def _ask(self, **wanted: Any) -> dict[str, Any]:
        self._partner.send(json.dumps(wanted))
        return self._answer(_ANSWER_S)

    def _answer(self, seconds: float) -> dict[str, Any]:
        line = self._partner.receive(seconds)
        try:
            found = json.loads(line) if line is not None else None
        except json.JSONDecodeError:
            found = None
        if not isinstance(found, dict):
            said = self._partner.last_words()
            raise CheckError(
                f"{self.script}: its process ended, hung or answered nonsense"
                + (f": {said}" if said else "")
            )
        if "failed" in found:
            raise CheckError(f"{self.script}: {found['failed']}", hint=_hint(found["failed"]))
        return found


def _hint(failed: str) -> str:
    if "'kernels" in failed:
        return "it takes classes of the hub's client: pip install kernels"
    return "run it with kernels benchmark to see whether it is the script's own mistake"


@contextlib.contextmanager
def _oracle(script: Path, wanted: Wanted, device: str) -> Iterator[_Oracle]:
    shm = Path("/dev/shm")  # noqa: S108 - a staging directory of our own in it
    with files.staging(shm if shm.is_dir() else Path.cwd() / ".kernforge") as place:
        spec = {
            "script": str(script),
            "repo": str(wanted.repo),
            "kernel": wanted.kernel,
            "registry": wanted.registry,
            "trust": wanted.trust,
            "device": device,
            "exchange": str(place / "right.bin"),
        }
        argv = (sys.executable, "-m", "kernforge.bench.hub.oracle", json.dumps(spec))
        with contextlib.ExitStack() as stack:
            oracle = _Oracle(script, lambda: Partner(Command(argv=argv)), place, device)
            stack.callback(oracle.close)
            yield oracle
