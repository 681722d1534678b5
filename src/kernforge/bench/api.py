# SPDX-License-Identifier: Apache-2.0
"""Measure a project: its workloads, its candidates, and the document of the results."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import datetime as dt
import functools
import importlib.util
import platform
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernforge.bench import document as bench_document
from kernforge.bench import text
from kernforge.bench.engine import judge, nvml, samples
from kernforge.bench.engine.workload import Candidate, Settings, Workload
from kernforge.errors import KernforgeError, UsageError, page
from kernforge.system import machine as system_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kernforge.bench.engine.nvml import Gpu
    from kernforge.bench.engine.samples import Measurement

_PARTIAL = "the run was interrupted; the last workload has fewer rounds, others are missing"
_HINT = f"`kernforge new` writes such a file; see {page('how-to/author/measure-a-kernel')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRequest:
    """What to measure.

    Attributes:
        project: folder with ``benchmarks/workloads.py`` and ``benchmarks/candidates.py``.
        kernel: directory of the built kernel; None: none is loaded.
        against: ``owner/name@version`` of published kernels to compare with, or directories of built
            ones.
        registry: where published kernels are looked up; None: the default registry.
        only: workloads to measure; all when empty.
        eager: whether torch eager and ``torch.compile`` are measured too.
        sizes: the project's ``sized`` at these instead of its ``WORKLOADS``; none when empty.
    """

    project: Path
    kernel: Path | None = None
    against: tuple[str, ...] = ()
    registry: str | None = None
    only: tuple[str, ...] = ()
    eager: bool = True
    sizes: tuple[int, ...] = ()


def workloads(request: BenchRequest) -> list[Workload]:
    """The project's workloads.

    Raises:
        UsageError: there is no such file, it lists no workload, or none of the names in ``only``.
    """
    path = _file(request.project, "workloads.py")
    module = _load(path)
    listed = getattr(module, "WORKLOADS", ())
    listed_workloads = _sized(module, path, request.sizes) or (
        [*listed] if isinstance(listed, Iterable) else []
    )
    if not listed_workloads or not all(isinstance(each, Workload) for each in listed_workloads):
        raise UsageError(f"{path} has no WORKLOADS, a list of kernforge.Workload", hint=_HINT)
    names = [each.name for each in listed_workloads]
    if len(set(names)) != len(names):
        raise UsageError(f"{path}: two workloads have the same name", hint="give each its own name")
    if unknown := set(request.only) - set(names):
        raise UsageError(
            f"no workload is called {', '.join(sorted(unknown))}",
            hint=f"there are {', '.join(map(repr, names))}",
        )
    return [each for each in listed_workloads if not request.only or each.name in request.only]


def _sized(module: Any, path: Path, sizes: Sequence[int]) -> list[Workload]:
    """What the project's ``sized`` returns for each size: a workload or several."""
    if not sizes:
        return []
    if not callable(getattr(module, "sized", None)):
        raise UsageError(
            f"{path} has no function sized, which --sizes calls",
            hint="def sized(elements): return Workload(...), or a list of them",
        )
    workloads_of_sizes: list[Workload] = []
    for size in sizes:
        try:
            returned = module.sized(size)
        except Exception as error:  # the user's function may raise anything
            raise _user_error(error, path, f"sized({size}) of {path}") from error
        several = returned if isinstance(returned, list | tuple) else [returned]
        if not several or not all(isinstance(each, Workload) for each in several):
            raise UsageError(
                f"{path}: sized({size}) returns {type(returned).__name__}, not kernforge.Workload",
                hint="def sized(elements): return Workload(...), or a list of them",
            )
        workloads_of_sizes += several
    return workloads_of_sizes


def _user_error(error: Exception, path: Path, what: str) -> UsageError:
    """An error of the user's file, or of what it does with our classes, with its line."""
    if isinstance(error, KernforgeError):
        return UsageError(f"{path}{_line(error, path)}: {error.message}", hint=error.hint)
    text = f"{type(error).__name__}: {error}{_line(error, path)}"
    return UsageError(f"{what} cannot be run: {text}", hint=_HINT)


def candidates(request: BenchRequest) -> list[Candidate]:
    """The candidates that ``benchmarks/candidates.py`` defines; the file is read, not run.

    Raises:
        UsageError: there is no such file, or it defines nothing to measure.
    """
    path = _file(request.project, "candidates.py")
    defined, peers = _definitions(path)
    kernel = str(request.kernel.resolve()) if request.kernel else None
    candidates = []
    if "kernel" in defined:
        candidates.append(Candidate(name="kernel", kind="kernel", file=str(path), kernel=kernel))
        candidates += [
            Candidate(
                name=each, kind="kernel", file=str(path), kernel=each, registry=request.registry
            )
            for each in request.against
        ]
    if "eager" in defined and request.eager:
        candidates.append(Candidate(name="torch eager", kind="eager", file=str(path)))
        candidates.append(Candidate(name="torch.compile", kind="compiled", file=str(path)))
    candidates += [Candidate(name=name, kind="peer", file=str(path)) for name in peers]
    if not candidates:
        raise UsageError(f"{path} defines neither kernel nor eager nor PEERS", hint=_HINT)
    return candidates


def _definitions(path: Path) -> tuple[set[str], list[str]]:
    """Names that the file defines or imports, and of its peers."""
    try:
        tree = ast.parse(path.read_text(), str(path))
    except SyntaxError as error:
        raise UsageError(f"{path}:{error.lineno}: {error.msg}", hint=_HINT) from error
    defined: dict[str, ast.stmt] = {}
    for statement in tree.body:
        defined |= dict.fromkeys(_bound(statement), statement)
    node = defined.pop("PEERS", None)
    if node is None:
        return set(defined), []
    value = getattr(node, "value", None)
    keys = value.keys if isinstance(value, ast.Dict) else [None]
    peers = [k.value for k in keys if isinstance(k, ast.Constant) and isinstance(k.value, str)]
    if len(peers) < len(keys):
        raise UsageError(
            f"{path}:{node.lineno}: PEERS must be written as a dictionary of names",
            hint='PEERS = {"name": function}',
        )
    return set(defined), peers


def _bound(node: ast.stmt) -> list[str]:
    """Names that a statement defines or imports."""
    if isinstance(node, ast.FunctionDef):
        return [node.name]
    if isinstance(node, ast.ImportFrom):
        return [each.asname or each.name for each in node.names]
    if isinstance(node, ast.Assign):
        return [each.id for each in node.targets if isinstance(each, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def _file(project: Path, name: str) -> Path:
    path = (project / "benchmarks" / name).resolve()
    if not path.is_file():
        raise UsageError(f"{path} does not exist", hint=_HINT)
    return path


def _line(error: Exception, path: Path) -> str:
    """Where in the user's file it happened."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return f", line {lines[-1]}" if lines else ""


def _load(path: Path) -> Any:
    """The judge's side of a project, in this process."""
    name = "kernforge_project_workloads"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the user's file may raise anything
        raise _user_error(error, path, str(path)) from error
    finally:
        sys.path.remove(str(path.parent.parent))
    return module


def run(
    work: Sequence[Workload],
    racing: Sequence[Candidate],
    settings: Settings,
    note: Callable[[str], None],
    project: str = "",
) -> dict[str, Any]:
    """Measure every workload.

    Args:
        note: called with a line of text when something happens.
        project: name of the project, for the page.

    Returns:
        The document of format ``kernforge-bench-1``.

    Raises:
        UsageError: the device is not there, or a workload contradicts itself.
        PartialResult: an interrupt came.
    """
    import torch

    if settings.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("this torch sees no CUDA device", hint="measure with --device cpu")
    gpu = nvml.open_gpu(settings.device)
    note(f"{len(racing)} candidates, {len(work)} workloads")
    sessions: list[list[list[Measurement]]] = []
    whole = functools.partial(_document, settings=settings, gpu=gpu, project=project)
    try:
        for number in range(settings.processes):
            last = number + 1 == settings.processes
            sessions.append([])
            measured = judge.measure_all(work, racing, settings.session(), note, gpu)
            for each, measurements in zip(work, measured, strict=True):
                sessions[-1].append(measurements)
                note(f"{each.name}: measured" + ("" if last else f" in process {number + 1}"))
    except KeyboardInterrupt as error:
        if isinstance(error, judge.InterruptedTrial):
            sessions[-1].append(error.measurements)
        raise PartialResult(whole(_measured_cases(work, sessions, settings))) from error
    return whole(
        [
            _case(each, [session[place] for session in sessions], settings)
            for place, each in enumerate(work)
        ]
    )


class PartialResult(KeyboardInterrupt):
    """A run was interrupted; ``document`` is that of what was measured, with ``partial`` in it."""

    def __init__(self, document: dict[str, Any]) -> None:
        super().__init__()
        self.document = document | {"partial": _PARTIAL}


def _document(
    cases: list[dict[str, Any]], *, settings: Settings, gpu: Gpu | None, project: str
) -> dict[str, Any]:
    return {
        "format": text.FORMAT,
        "project": project,
        "machine": machine(settings.device, gpu),
        "settings": dataclasses.asdict(settings),
        "workloads": cases,
    }


def _measured_cases(
    work: Sequence[Workload],
    sessions: Sequence[Sequence[Sequence[Measurement]]],
    settings: Settings,
) -> list[dict[str, Any]]:
    """What an interrupted run has measured."""
    cases = []
    for place, each in enumerate(work):
        if parts := [session[place] for session in sessions if len(session) > place]:
            # Not without the time of a copy, of which every other time is a share.
            with contextlib.suppress(UsageError):
                cases.append(_case(each, parts, settings))
    return cases


def _case(
    workload: Workload, sessions: Sequence[Sequence[Measurement]], settings: Settings
) -> dict[str, Any]:
    """A workload's part of the document, from the measurements of all candidates in each process."""
    merged = [
        samples.merge(parts) if len(parts) > 1 else parts[0]
        for parts in zip(*sessions, strict=True)
    ]
    return bench_document.case(workload, merged, settings.modes, settings.device)


def machine(device: str, gpu: Gpu | None = None) -> dict[str, Any]:
    """Where and when it was measured, and what its GPU, opened if not given, does not report."""
    import torch

    facts: dict[str, Any] = {
        "date": dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds"),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": system_machine.processor_name(),
        "cores": system_machine.cores(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gpu": None,
        "cuda": torch.version.cuda,
        "driver": None,
        "not_told": {},
    }
    if device == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(0)
        if (gpu := gpu or nvml.open_gpu(device)) is not None:
            gpu.reading()
            facts["driver"] = gpu.driver()
            facts["not_told"] = gpu.missing()
    return facts


def refusals(document: dict[str, Any]) -> list[str]:
    """Candidates that were refused, with the reason."""
    return [
        f"{case['name']}, {row['candidate']}, {row['mode']}: {row['refused']}"
        for case in document["workloads"]
        for row in case["results"]
        if row["refused"]
    ]
