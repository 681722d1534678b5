# SPDX-License-Identifier: Apache-2.0
"""JSON values and text of plans, builds, findings, verdicts and the store's contents."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kernforge.system.tables import counted, size, table

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from kernforge.audit.reproduce import Verdict
    from kernforge.builder.api import BuildResult
    from kernforge.builder.execute.executor import Outcome
    from kernforge.builder.plan.graph import Plan
    from kernforge.check.finding import Finding
    from kernforge.store.eviction import KindUsage, Removed

_WORTH_A_LINE_S = 3.0
_SHOWN = 5


def build_document(result: BuildResult, serves: tuple[int, int, str] | None) -> dict[str, Any]:
    """The result of a build as JSON values."""
    return {
        "variants": {name: str(path) for name, path in result.variants.items()},
        "left_out": list(result.left_out),
        "failures": [
            {"action": f.action.title, "output": f.output, "repeat": f.repeat}
            for f in result.outcome.failures
        ],
        "findings": [finding_document(finding) for finding in result.findings],
        "serves": serves and {"served": serves[0], "total": serves[1], "what": serves[2]},
        "actions": spent_document(result.outcome),
    }


def build_text(result: BuildResult, serves: tuple[int, int, str] | None) -> str:
    """The result of a build as text; the last line says what it serves."""
    return "\n".join(
        (
            *map(str, result.variants.values()),
            *(f"not built: {name}" for name in result.left_out),
            *(finding_text(f) for f in result.findings if f.severity != "skipped"),
            spent_text(result.outcome),
            *(["serves {} of {} {}".format(*serves)] if serves else []),
        )
    )


def spent_document(outcome: Outcome) -> dict[str, Any]:
    """The actions of a build with their time and memory, as JSON values."""
    return {
        "ran": outcome.ran,
        "reused": outcome.reused,
        "from_shared_store": outcome.shared,
        "cpu_s": outcome.cpu_s,
        "wall_s": outcome.wall_s,
        "peak_bytes": max((spent.peak_bytes for spent in outcome.spent), default=0),
        "spent": [asdict(spent) for spent in outcome.spent],
    }


def spent_text(outcome: Outcome) -> str:
    """The number of actions and the longest ones, as text."""
    lines = [
        f"{counted(outcome.ran, 'action')} ran in {outcome.wall_s:.1f} s ({outcome.cpu_s:.1f} "
        f"CPU-s), {outcome.reused} from the store"
        + (f", {outcome.shared} of them from the shared store" if outcome.shared else "")
    ]
    longest = [spent for spent in outcome.spent[:_SHOWN] if spent.wall_s >= _WORTH_A_LINE_S]
    rows = [
        (f"  {o.wall_s:.1f} s", f"{o.cpu_s:.1f} CPU-s", size(o.peak_bytes), o.title, o.where)
        for o in longest
    ]
    return "\n".join([*lines, *([table(rows)] if rows else [])])


def cache_document(
    root: Path, kinds: Sequence[KindUsage], limit: int, removed: Removed | None
) -> dict[str, Any]:
    """The contents of the store as JSON values."""
    document = {
        "location": str(root),
        "limit": limit,
        "size": sum(kind.size for kind in kinds),
        "shelves": {kind.name: asdict(kind) for kind in kinds},
    }
    return document | ({"removed": asdict(removed)} if removed else {})


def cache_text(root: Path, kinds: Sequence[KindUsage], limit: int, removed: Removed | None) -> str:
    """The contents of the store as text."""
    rows = [
        (
            kind.name,
            str(kind.entries),
            size(kind.size) or "0 MB",
            time.strftime("%Y-%m-%d %H:%M", time.localtime(kind.oldest)) if kind.oldest else "",
        )
        for kind in kinds
    ]
    total = sum(kind.size for kind in kinds)
    lines = [f"{root}: {size(total) or '0 MB'} of {size(limit)}"]
    if removed:
        lines.append(
            f"removed {counted(removed.entries, 'entry', 'entries')}, "
            f"{size(removed.size) or '0 MB'}"
        )
    return "\n".join([*lines, table(rows, head=("kind", "entries", "size", "oldest use"))])


def graph_document(plan: Plan, known: Collection[str]) -> dict[str, Any]:
    """A plan as JSON values: the actions with their inputs and variants.

    Args:
        known: keys of the actions whose results the store has.
    """
    actions = [
        {
            "key": action.key,
            "title": action.title,
            "argv": list(action.argv),
            "inputs": {i.path: i.digest for i in action.inputs},
            "outputs": list(action.outputs),
            "variants": list(action.variants),
            "cached": action.key in known,
        }
        for action in plan.actions
    ]
    return {"actions": actions, "variants": [artifact.target.name for artifact in plan.artifacts]}


def graph_text(plan: Plan, known: Collection[str]) -> str:
    """A plan as text."""
    rows = [
        (action.key[:12], "in store" if action.key in known else "to run", action.title)
        for action in plan.actions
    ]
    return table(rows, head=("key", "state", "action"))


def finding_document(finding: Finding) -> dict[str, str]:
    """A finding as JSON values."""
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "where": str(finding.where),
        "message": finding.message,
        "hint": finding.hint,
    }


def finding_text(finding: Finding) -> str:
    """A finding as text."""
    hint = f"\n    {finding.hint}" if finding.hint else ""
    return f"{finding.severity}: {finding.where}: {finding.message} [{finding.rule}]{hint}"


def verdict_document(verdict: Verdict) -> dict[str, Any]:
    """The comparison of a variant that was built again, as JSON values."""
    return {
        "variant": verdict.variant,
        "identical": not verdict.differences,
        "differences": [asdict(difference) for difference in verdict.differences],
        "notes": list(verdict.notes),
    }


def verdict_text(verdict: Verdict) -> str:
    """The comparison of a variant that was built again, as text."""
    lines = [f"{verdict.variant}: {'DIFFERENT' if verdict.differences else 'identical'}"]
    lines += [f"  {difference.file}: {difference.reason}" for difference in verdict.differences]
    return "\n".join((*lines, *(f"  note: {note}" for note in verdict.notes)))
