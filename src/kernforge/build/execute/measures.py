# SPDX-License-Identifier: Apache-2.0
"""What actions cost when they last ran, kept in the store."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from kernforge.build.execute import cost
from kernforge.build.execute.cost import Estimate
from kernforge.system import files

if TYPE_CHECKING:
    from pathlib import Path

    from kernforge.build.plan.graph import Action


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
        return self._known(action) or cost.guess(action, jobs=self._jobs)

    def learn(self, action: Action, *, peak_bytes: int, wall_s: float) -> None:
        """Remember a run."""
        new = cost.learned(self._known(action), peak_bytes=peak_bytes, wall_s=wall_s)
        files.write_atomic(self._path(action), json.dumps(asdict(new)))

    def _known(self, action: Action) -> Estimate | None:
        try:
            data = json.loads(self._path(action).read_bytes())
            return Estimate(memory=int(data["memory"]), seconds=float(data["seconds"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None  # never ran, or was written by another version

    def _path(self, action: Action) -> Path:
        name = cost.identity(action, jobs=self._jobs)
        return self._directory / name[:2] / f"{name}.json"
