# SPDX-License-Identifier: Apache-2.0
"""From a project to a document of measurements: what is there, who competes, what came of it."""

from __future__ import annotations

import ast
import dataclasses
import datetime as dt
import importlib.util
import os
import platform
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.bench import document as bench_document
from kernforge.bench.engine import judge, nvml, samples
from kernforge.bench.engine.workload import Candidate, Settings, Workload
from kernforge.errors import KernforgeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernforge.bench.engine.nvml import Gpu
    from kernforge.bench.engine.samples import Measured

FORMAT = "kernforge-bench-1"
_HINT = "`kernforge new` writes such a file; the page 'Measure a kernel' explains it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a run is asked for.

    Attributes:
        project: folder with ``benchmarks/workloads.py`` and ``benchmarks/candidates.py``.
        kernel: directory of the built kernel; None: none is loaded.
        against: ``owner/name@version`` of published kernels to compare with.
        registry: where they are looked up.
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


def workloads(wanted: Wanted) -> list[Workload]:
    """The project's workloads.

    Raises:
        UsageError: there is no such file, or it lists none or not the ones asked for.
    """
    path = _file(wanted.project, "workloads.py")
    module = _load(path)
    listed = getattr(module, "WORKLOADS", ())
    found = _sized(module, path, wanted.sizes) or (
        [*listed] if isinstance(listed, Iterable) else []
    )
    if not found or not all(isinstance(each, Workload) for each in found):
        raise UsageError(f"{path} has no WORKLOADS, a list of kernforge.Workload", hint=_HINT)
    names = [each.name for each in found]
    if len(set(names)) != len(names):
        raise UsageError(f"{path}: two workloads have the same name", hint="name each of its own")
    if unknown := set(wanted.only) - set(names):
        raise UsageError(
            f"no workload is called {', '.join(sorted(unknown))}",
            hint=f"there are {', '.join(map(repr, names))}",
        )
    return [each for each in found if not wanted.only or each.name in wanted.only]


def _sized(module: Any, path: Path, sizes: Sequence[int]) -> list[Workload]:
    """What the project's ``sized`` makes of each size: a workload or several."""
    if not sizes:
        return []
    if not callable(getattr(module, "sized", None)):
        raise UsageError(
            f"{path} has no function sized, which --sizes calls",
            hint="def sized(elements): return Workload(...), or a list of them",
        )
    found: list[Workload] = []
    for size in sizes:
        try:
            made = module.sized(size)
        except Exception as error:  # the user's function may raise anything
            raise _told(error, path, f"sized({size}) of {path}") from error
        several = made if isinstance(made, list | tuple) else [made]
        if not several or not all(isinstance(each, Workload) for each in several):
            raise UsageError(
                f"{path}: sized({size}) returns {type(made).__name__} and no kernforge.Workload",
                hint="def sized(elements): return Workload(...), or a list of them",
            )
        found += several
    return found


def _told(error: Exception, path: Path, what: str) -> UsageError:
    """What the user is told of an error of the own file, or of what it does with our classes."""
    if isinstance(error, KernforgeError):
        return UsageError(f"{path}{_line(error, path)}: {error.message}", hint=error.hint)
    said = f"{type(error).__name__}: {error}{_line(error, path)}"
    return UsageError(f"{what} cannot be run: {said}", hint=_HINT)


def candidates(wanted: Wanted) -> list[Candidate]:
    """Who competes, by what ``benchmarks/candidates.py`` defines; the file is read, not run.

    Raises:
        UsageError: there is no such file, or it defines nothing to measure.
    """
    path = _file(wanted.project, "candidates.py")
    defined, peers = _definitions(path)
    kernel = str(wanted.kernel.resolve()) if wanted.kernel else None
    found = []
    if "kernel" in defined:
        found.append(Candidate(name="kernel", kind="kernel", file=str(path), kernel=kernel))
        found += [
            Candidate(
                name=each, kind="kernel", file=str(path), kernel=each, registry=wanted.registry
            )
            for each in wanted.against
        ]
    if "eager" in defined and wanted.eager:
        found.append(Candidate(name="torch eager", kind="eager", file=str(path)))
        found.append(Candidate(name="torch.compile", kind="compiled", file=str(path)))
    found += [Candidate(name=name, kind="peer", file=str(path)) for name in peers]
    if not found:
        raise UsageError(f"{path} defines neither kernel nor eager nor PEERS", hint=_HINT)
    return found


def _definitions(path: Path) -> tuple[set[str], list[str]]:
    """Names of the file's functions, and of its peers."""
    try:
        tree = ast.parse(path.read_text(), str(path))
    except SyntaxError as error:
        raise UsageError(f"{path}:{error.lineno}: {error.msg}", hint=_HINT) from error
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    peers: list[str] = []
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        if any(isinstance(each, ast.Name) and each.id == "PEERS" for each in node.targets):
            keys = node.value.keys if isinstance(node.value, ast.Dict) else ()
            peers = [str(key.value) for key in keys if isinstance(key, ast.Constant)]
            if not peers:
                raise UsageError(
                    f"{path}:{node.lineno}: PEERS must be written as a dictionary of names",
                    hint='PEERS = {"name": function}',
                )
    return functions, peers


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
        raise UsageError(f"{path} is no Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the user's file may raise anything
        raise _told(error, path, str(path)) from error
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
    """Measure every workload and tell it as a document.

    Args:
        work: what is computed.
        racing: who computes it.
        settings: how.
        note: told what happens.
        project: whose kernel it is, for the page.

    Raises:
        UsageError: the device is not there, or a workload contradicts itself.
    """
    import torch  # noqa: PLC0415

    if settings.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("this torch sees no CUDA device", hint="measure with --device cpu")
    cases = []
    gpu = nvml.open_gpu(settings.device)
    note(f"{len(racing)} candidates, {len(work)} workloads")
    sessions: list[list[list[Measured]]] = []
    for number in range(settings.processes):
        last = number + 1 == settings.processes
        sessions.append([])
        measured = judge.measure_all(work, racing, settings.session(), note, gpu)
        for each, found in zip(work, measured, strict=True):
            sessions[-1].append(found)
            if last:
                parts = [session[len(sessions[-1]) - 1] for session in sessions]
                cases.append(_case(each, parts, settings))
            note(f"{each.name}: measured" + ("" if last else f" in process {number + 1}"))
    return {
        "format": FORMAT,
        "project": project,
        "machine": machine(settings.device, gpu),
        "settings": dataclasses.asdict(settings),
        "workloads": cases,
    }


def _case(
    workload: Workload, sessions: Sequence[Sequence[Measured]], settings: Settings
) -> dict[str, Any]:
    """A workload's part of the document, out of what came of everyone in each process."""
    found = [
        samples.merge(parts) if len(parts) > 1 else parts[0]
        for parts in zip(*sessions, strict=True)
    ]
    return bench_document.case(workload, found, settings.modes, settings.device)


def machine(device: str, gpu: Gpu | None = None) -> dict[str, Any]:
    """Where and when it was measured, and what its GPU does not tell of itself.

    Args:
        device: ``cpu`` or ``cuda``.
        gpu: what was asked for its clocks; None: it is asked now.
    """
    import torch  # noqa: PLC0415

    found: dict[str, Any] = {
        "date": dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds"),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gpu": None,
        "cuda": torch.version.cuda,
        "driver": None,
        "not_told": {},
    }
    if device == "cuda":
        found["gpu"] = torch.cuda.get_device_name(0)
        if (gpu := gpu or nvml.open_gpu(device)) is not None:
            gpu.reading()
            found["driver"] = gpu.driver()
            found["not_told"] = gpu.missing()
    return found


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def refusals(document: dict[str, Any]) -> list[str]:
    """Candidates whose times are no measurement, with the reason."""
    return [
        f"{case['name']}, {row['candidate']}, {row['mode']}: {row['refused']}"
        for case in document["workloads"]
        for row in case["results"]
        if row["refused"]
    ]
