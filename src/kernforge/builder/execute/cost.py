# SPDX-License-Identifier: Apache-2.0
"""What an action will cost: learned from the last runs of the same action, guessed before.

The same action is an action with the same arguments and inputs by name; what the files hold does
not matter, so an edited kernel is expected to cost what it did before the edit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kernforge.builder.plan.graph import Action
from kernforge.system import digest, files

_MIB = 2**20
# Part of an op namespace that changes with every edit.
_SOURCES_ID = re.compile(r"_[0-9a-f]{10}\b")
# The tree of torch's headers, for this machine's processor or another.
_TORCH = re.compile(r"(^|-)torch-")
# A measured peak is forgotten slowly: a lucky run must not exhaust the machine.
_FORGET = 0.8
# What ended before anyone looked was small, but not nothing.
_LEAST = 32 * _MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What an action is expected to need: bytes at its peak, and seconds."""

    memory: int
    seconds: float


class Measures:
    """Estimates of actions.

    Args:
        root: the store's directory.
        jobs: how many actions run at once.
    """

    def __init__(self, root: Path, *, jobs: int) -> None:
        self._directory, self._jobs = root / "measured", jobs

    def expect(self, action: Action) -> Estimate:
        """What an action will need: what it did the last times, or a guess."""
        return self._known(action) or guess(action, jobs=self._jobs)

    def learn(self, action: Action, *, peak_bytes: int, wall_s: float) -> None:
        """Remember a run."""
        new = learned(self._known(action), peak_bytes=peak_bytes, wall_s=wall_s)
        files.write_atomic(self._path(action), json.dumps(asdict(new)), durable=False)

    def _known(self, action: Action) -> Estimate | None:
        try:
            data = json.loads(self._path(action).read_bytes())
            return Estimate(memory=int(data["memory"]), seconds=float(data["seconds"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None  # never ran, or was written by another version

    def _path(self, action: Action) -> Path:
        name = identity(action, jobs=self._jobs)
        return self._directory / name[:2] / f"{name}.json"


def identity(action: Action, *, jobs: int) -> str:
    """Name of an action across edits; in its memory nvcc has ``jobs`` architectures at once."""
    return digest.key(
        "measured",
        argv=[_SOURCES_ID.sub("", part) for part in action.argv],
        inputs=sorted(_SOURCES_ID.sub("", file.path) for file in action.inputs),
        width=width(action, jobs),
    )


def guess(action: Action, *, jobs: int) -> Estimate:
    """First guess by kind: CUDA, C++, with torch's headers or without, link.

    The figures are those of heavy kernels of their kind, because too much costs some waiting and
    too little costs the build.
    """
    threads, count = width(action, jobs), max(1, _architectures(action))
    torch = any(_TORCH.search(name) for name in action.trees)
    if action.kind in {"cuda", "device link"}:
        if torch:
            return Estimate(memory=(2500 + 1500 * threads) * _MIB, seconds=40 + 20 * count)
        return Estimate(memory=(300 + 500 * threads) * _MIB, seconds=2 + 2 * count)
    if action.kind != "c++":
        return Estimate(memory=300 * _MIB, seconds=0.5)
    return (
        Estimate(memory=1200 * _MIB, seconds=15)
        if torch
        else Estimate(memory=500 * _MIB, seconds=3)
    )


def learned(old: Estimate | None, *, peak_bytes: int, wall_s: float) -> Estimate:
    """What a run teaches, added to what was known."""
    peak = max(peak_bytes, _LEAST)
    if old is None:
        return Estimate(memory=peak, seconds=wall_s)
    return Estimate(memory=max(peak, int(old.memory * _FORGET)), seconds=(old.seconds + wall_s) / 2)


def critical_paths(actions: Sequence[Action], expected: Mapping[str, Estimate]) -> dict[str, float]:
    """Seconds from the start of each action to the end of the longest chain that waits for it.

    Args:
        actions: in an order in which each comes after those it needs.
        expected: of those that must run, by key.
    """
    after = {action.key: 0.0 for action in actions}
    found = {}
    for action in reversed(actions):
        own = expected[action.key].seconds if action.key in expected else 0.0
        found[action.key] = after[action.key] + own
        for key in action.needs:
            after[key] = max(after[key], found[action.key])
    return found


def width(action: Action, jobs: int) -> int:
    """How many threads an action can use: nvcc, one for each architecture."""
    return max(1, min(jobs, _architectures(action)))


def _architectures(action: Action) -> int:
    return sum(word.startswith("-gencode") for word in action.argv)
