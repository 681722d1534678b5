# SPDX-License-Identifier: Apache-2.0
"""``kernforge build``: build variants of a project, or list them."""

from __future__ import annotations

import argparse
import functools
import itertools
import operator
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

from kernforge.artifact.variant import Backend, Variant
from kernforge.builder import api as build, results, workspace as workspaces
from kernforge.builder.executor import Outcome
from kernforge.builder.graph import Plan
from kernforge.builder.workspace import Workspace
from kernforge.check.finding import refuse_errors
from kernforge.cli import options
from kernforge.loader.host import Host
from kernforge.loader.resolve import resolve
from kernforge.project import targets, units
from kernforge.project.api import read_project
from kernforge.system.console import Console
from kernforge.system.machine import cores
from kernforge.system.tables import counted, size, table
from kernforge.toolchain.local_parts import LocalParts
from kernforge.toolchain.releases import torch_releases

_FEW = 2
_WORTH_A_LINE_S = 3.0
_SHOWN = 5


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Build, or list the variants or the actions."""
    if arguments.list:
        _list(arguments, console)
        return
    workspace = options.workspace(arguments, console)
    request = _request(arguments, workspace, console)
    if arguments.dry_run:
        planned = build.plan_project(workspace, request)
        for note in planned.notes:
            console.note(note)
        _print_plan(planned.plan, results.cached(planned.plan, workspace.store), console)
        return
    result = build.build_project(workspace, request)
    targets_built = [artifact.target for artifact in result.plan.artifacts]
    serves = None if result.left_out else _served([t.variant for t in targets_built])
    document = {
        "variants": {name: str(path) for name, path in result.variants.items()},
        **problems(result),
        "serves": serves and dict(zip(("served", "total", "what"), serves, strict=True)),
        "actions": spent_document(result.outcome),
    }
    lines = (
        *map(str, result.variants.values()),
        *(f"not built: {name}" for name in result.left_out),
        *(str(finding) for finding in result.findings if finding.severity != "skipped"),
        spent_text(result.outcome),
        *(["serves {} of {} {}".format(*serves)] if serves else []),
    )
    console.result(document, "\n".join(lines))
    result.refuse_failures()
    refuse_errors(result.findings)


def _request(
    arguments: argparse.Namespace, workspace: Workspace, console: Console
) -> build.BuildRequest:
    candidates = workspace.candidates
    if arguments.system:
        cpu = workspaces.cpu_of(arguments.system)
        candidates = workspaces.candidates(workspace.project, cpu, workspace.local_parts)
    if arguments.locked and (lock := workspaces.read_lock(workspace.project.root)):
        candidates = targets.within_lock(candidates, arguments.variant, lock)
    pool = None
    if arguments.scheduler:
        from kernforge.builder.farm import FarmPool  # noqa: PLC0415 - an extra

        pool = functools.partial(FarmPool, arguments.scheduler, note=console.note)
    return build.BuildRequest(
        targets=targets.choose(candidates, arguments.variant),
        events=console,
        lock="frozen" if arguments.locked else "update",
        only=tuple(arguments.arch),
        sandbox=arguments.sandbox,
        untrusted=arguments.untrusted,
        out=arguments.build_dir,
        jobs=arguments.jobs or cores(),
        pool=pool,
        check=not arguments.no_check,
    )


def _list(arguments: argparse.Namespace, console: Console) -> None:
    project = read_project(arguments.project)
    parts = LocalParts.named(arguments.environment, units.cutlass(project.manifest))
    cpu = workspaces.cpu_of(arguments.system) if arguments.system else workspaces.this_cpu()
    candidates = workspaces.candidates(project, cpu, parts)
    document = [
        {"name": c.name, "builds": bool(c.target), "default": c.default, "reason": c.reason}
        for c in candidates
    ]
    words = {(True, True): "built", (True, False): "on request", (False, False): "left out"}
    # Neighbours that are so for the same reason are one row.
    rows = [(c.name, words[c.target is not None, c.default], c.reason) for c in candidates]
    short = [
        (name, *told)
        for told, alike in itertools.groupby(rows, key=operator.itemgetter(1, 2))
        for name in _in_short([name for name, *_ in alike], whole=told[0] == "built")
    ]
    console.result(document, table(short, head=("variant", "is", "because")))


def _in_short(names: list[str], *, whole: bool) -> list[str]:
    """A few names as they are; of many the first and the last one, unless all are wanted."""
    if whole or len(names) <= _FEW:
        return names
    return [f"{names[0]} ... {names[-1]} ({len(names)})"]


def _served(variants: Sequence[Variant]) -> tuple[int, int, str] | None:
    """Counts of published builds of torch: those for which the loader takes a variant, and all."""
    compiled = [v for v in variants if v.framework.startswith("torch") and not v.is_noarch]
    if not compiled:
        return None
    on_cuda = any(v.backend.name == "cuda" for v in compiled)
    hosts = [
        Host(cpu=compiled[0].cpu, os="linux", backend=backend, torch=torch, cxx11=True)
        for torch, published in torch_releases().items()
        for backend in ([Backend("cuda", c) for c in published] if on_cuda else [Backend("cpu")])
    ]
    names = list(map(str, variants))
    served = sum(resolve(names, host).best is not None for host in hosts)
    return served, len(hosts), "torch x CUDA pairs" if on_cuda else "torch releases"


def problems(result: build.BuildResult) -> dict[str, Any]:
    """What went wrong in a build, as JSON values."""
    return {
        "left_out": list(result.left_out),
        "failures": [
            {"action": each.action.title, "output": each.output, "repeat": each.repeat}
            for each in result.outcome.failures
        ],
        "findings": [asdict(finding) for finding in result.findings],
    }


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
    shared = f", {outcome.shared} of them from the shared store" if outcome.shared else ""
    line = (
        f"{counted(outcome.ran, 'action')} ran in {outcome.wall_s:.1f} s ({outcome.cpu_s:.1f} "
        f"CPU-s), {outcome.reused} from the store{shared}"
    )
    rows = [
        (f"  {o.wall_s:.1f} s", f"{o.cpu_s:.1f} CPU-s", size(o.peak_bytes), o.title, o.where)
        for o in outcome.spent[:_SHOWN]
        if o.wall_s >= _WORTH_A_LINE_S
    ]
    return "\n".join([line, *([table(rows)] if rows else [])])


def _print_plan(plan: Plan, known: Collection[str], console: Console) -> None:
    """Print the actions of a plan.

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
    variants = [artifact.target.name for artifact in plan.artifacts]
    rows = [
        (action.key[:12], "in store" if action.key in known else "to run", action.title)
        for action in plan.actions
    ]
    text = table(rows, head=("key", "state", "action"))
    console.result({"actions": actions, "variants": variants}, text)
