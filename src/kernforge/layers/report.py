# SPDX-License-Identifier: Apache-2.0
"""The decisions of ``kernelize`` for each layer, as values and as a table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernforge.layers.mapping import LayerCandidate
from kernforge.layers.modes import mode_name
from kernforge.system.tables import table

_HEAD = ("module", "layer", "runs", "because")
_COMMIT_SHOWN = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSource:
    """The loaded build that a layer came from.

    Attributes:
        kernel: the kernel's name.
        variant: the build's directory name.
        repo_id: its registry's name for it; None for a local kernel.
        commit: its commit there; None for a local kernel.
    """

    kernel: str
    variant: str
    repo_id: str | None = None
    commit: str | None = None

    def __str__(self) -> str:
        if self.repo_id is None:
            return f"{self.kernel} {self.variant}"
        return f"{self.repo_id}@{(self.commit or '')[:_COMMIT_SHOWN]} {self.variant}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOutcome:
    """The decision for one layer.

    Attributes:
        path: the module in the model, as ``named_modules`` names it; empty for the model itself.
        layer_name: its name in mappings.
        replaced: whether it runs a kernel.
        reason: why it does or does not.
        source: the build that it runs; None if it runs its own forward, or the repository is not
            a kernel.
        candidates: every kernel that is registered for the layer, each with the reason against it.
    """

    path: str
    layer_name: str
    replaced: bool
    reason: str
    source: KernelSource | None = None
    candidates: tuple[LayerCandidate, ...] = ()

    @property
    def runs(self) -> str:
        """What runs, in words."""
        return str(self.source or "kernel") if self.replaced else "own forward"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelizeReport:
    """The decisions for a model, in the order of its modules; ``str`` gives them as a table."""

    layers: tuple[LayerOutcome, ...]

    @property
    def replaced(self) -> tuple[LayerOutcome, ...]:
        """The layers that run a kernel."""
        return tuple(layer for layer in self.layers if layer.replaced)

    @property
    def kept(self) -> tuple[LayerOutcome, ...]:
        """The layers that run their own forward."""
        return tuple(layer for layer in self.layers if not layer.replaced)

    def __str__(self) -> str:
        if not self.layers:
            return "no layer of this model is marked as one that a kernel may replace"
        total = f"{len(self.replaced)} of {len(self.layers)} layers run a kernel"
        return f"{table(self._rows(), head=_HEAD)}\n{total}"

    def trace(self) -> str:
        """The table, and below it each kernel that was considered with the reason against it."""
        lines = [str(self)]
        considered = {row.layer_name: row.candidates for row in self.layers if row.candidates}
        for layer_name, candidates in considered.items():
            lines += ["", f"{layer_name}:"]
            lines += [
                f"  {c.repo} for {c.device} {mode_name(c.mode)}: {c.reason or 'chosen'}"
                for c in candidates
            ]
        return "\n".join(lines)

    def _rows(self) -> Iterator[tuple[str, str, str, str]]:
        """One row for layers that differ in their numbers alone: ``layers.*.mlp (32)``."""
        counted: dict[tuple[str, str, str, str], list[str]] = {}
        for layer in self.layers:
            pattern = re.sub(r"\b\d+\b", "*", layer.path)
            key = (pattern, layer.layer_name, layer.runs, layer.reason)
            counted.setdefault(key, []).append(layer.path)
        for (pattern, *rest), paths in counted.items():
            named = f"{pattern} ({len(paths)})" if len(paths) > 1 else paths[0] or "(the model)"
            yield (named, *rest)  # type: ignore[misc]
