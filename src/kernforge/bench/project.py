# SPDX-License-Identifier: Apache-2.0
"""A project's benchmark: its workloads and candidates, loaded into this process, and measured."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernforge.bench import run
from kernforge.bench.verify import Inputs
from kernforge.bench.workload import Candidate, Settings, Workload
from kernforge.errors import KernforgeError, RequestError, UsageError, page
from kernforge.loader import api as loader
from kernforge.registry.names import COMMIT, Request, is_repo_id
from kernforge.registry.names import request as request_of

_HINT = f"`kernforge new` writes such a file; see {page('how-to/author/measure-a-kernel')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRequest:
    """What to measure.

    Attributes:
        project: folder with ``benchmarks/workloads.py`` and ``benchmarks/candidates.py``.
        kernel: directory of the built kernel; None: none is loaded.
        against: ``owner/name@version`` of published kernels to compare with, or directories of
            built ones.
        registry: where published kernels are looked up; None: the default registry.
        only: workloads to measure; all when empty.
        named: candidates to measure beside the kernel and ``against``; all when None.
        sizes: the project's ``sized`` at these instead of its ``WORKLOADS``; none when empty.
        device: ``cpu`` or ``cuda``, which the kernels are loaded for.
    """

    project: Path
    kernel: Path | None = None
    against: tuple[str, ...] = ()
    registry: str | None = None
    only: tuple[str, ...] = ()
    named: tuple[str, ...] | None = None
    sizes: tuple[int, ...] = ()
    device: str = "cpu"


def measure(request: BenchRequest, settings: Settings, note: Callable[[str], None]) -> run.Report:
    """Measure every workload of a project.

    Raises:
        UsageError: the device or a file is not there, or a workload contradicts itself.
        NotPublishedError: a version of ``against`` is not published.
    """
    project = request.project.resolve()
    with _importing(project):  # of functions that import when they are called
        racing, work = candidates(request), workloads(request)
        return measure_all(work, racing, settings, note, project=project.name)


def measure_all(
    work: Sequence[Workload],
    racing: Sequence[Candidate],
    settings: Settings,
    note: Callable[[str], None],
    project: str = "",
) -> run.Report:
    """Measure candidates on workloads."""
    loop = run.Loop(settings, note)
    note(f"{len(racing)} candidates, {len(work)} workloads")
    cases: list[run.Case] = []
    for each in work:
        try:
            subject = Inputs(each, settings.device)
        except KeyboardInterrupt:
            loop.interrupted = True
            break
        cases.append(loop.measure(subject, racing, each.tensors[0].dtype))
        if loop.interrupted:
            break
        note(f"{each.name}: measured")
    return run.Report(
        project=project,
        machine=loop.machine(),
        settings=settings,
        cases=tuple(cases),
        partial=loop.interrupted,
    )


def workloads(request: BenchRequest) -> list[Workload]:
    """The project's workloads.

    Raises:
        UsageError: there is no such file, it lists no workload, or none of the names in ``only``.
    """
    path = _file(request.project, "workloads.py")
    module = _load(path, request.project)
    if request.sizes:
        found = _sized(module, path, request.sizes)
    else:
        found = list(getattr(module, "WORKLOADS", ()))
    if not found or not all(isinstance(each, Workload) for each in found):
        what = "sized returns no" if request.sizes else "there is no WORKLOADS, a list of"
        raise UsageError(f"{path}: {what} kernforge.Workload", hint=_HINT)
    names = [each.name for each in found]
    if len(set(names)) != len(names):
        raise UsageError(f"{path}: two workloads have the same name", hint="give each its own name")
    if unknown := set(request.only) - set(names):
        raise UsageError(
            f"no workload is called {', '.join(sorted(unknown))}",
            hint=f"there are {', '.join(map(repr, names))}",
        )
    return [each for each in found if not request.only or each.name in request.only]


def _sized(module: Any, path: Path, sizes: Sequence[int]) -> list[Workload]:
    """What the project's ``sized`` returns for each size: a workload or several."""
    found: list[Workload] = []
    for size in sizes:
        try:
            returned = module.sized(size)
        except Exception as error:  # the user's function may raise anything
            raise _user_error(error, path, f"sized({size}) of {path}") from error
        found += returned if isinstance(returned, list | tuple) else [returned]
    return found


def candidates(request: BenchRequest) -> list[Candidate]:
    """What ``benchmarks/candidates.py`` defines, with the kernels loaded; the kernel is the first.

    Raises:
        UsageError: there is no such file, it defines nothing to measure, or none of a name.
        NotPublishedError: a version of ``against`` is not published.
    """
    path = _file(request.project, "candidates.py")
    module = _load(path, request.project)
    kernel, eager = (getattr(module, name, None) for name in ("kernel", "eager"))
    peers = getattr(module, "PEERS", {})
    if not isinstance(peers, dict) or not all(map(callable, peers.values())):
        raise UsageError(
            f"{path}: PEERS is not a dictionary of functions", hint='PEERS = {"name": function}'
        )
    found = []
    if kernel is not None:
        built = request.kernel and load_kernel(str(request.kernel), None, request.device)
        # Not a lambda: a call of a partial costs 0.1 us of Python's time where that costs 0.35.
        found.append(
            Candidate(name="kernel", kind="kernel", function=functools.partial(kernel, built))
        )
        for each in request.against:
            other = load_kernel(each, request.registry, request.device)
            function = functools.partial(kernel, other)
            found.append(Candidate(name=each, kind="published", function=function))
    others = []
    if eager is not None:
        others.append(Candidate(name="torch eager", kind="eager", function=eager))
        others.append(Candidate(name="torch.compile", kind="compiled", function=eager))
    others += [Candidate(name=n, kind="peer", function=function) for n, function in peers.items()]
    known = [each.name for each in (*found, *others)]
    if not known:
        raise UsageError(f"{path} defines neither kernel nor eager nor PEERS", hint=_HINT)
    if unknown := set(request.named or ()) - set(known):
        raise UsageError(
            f"no candidate is called {', '.join(sorted(unknown))}",
            hint=f"there are {', '.join(map(repr, known))}",
        )
    return found + [each for each in others if request.named is None or each.name in request.named]


def published_request(where: str) -> Request:
    """The request in ``owner/name@v1``, ``owner/name@1.2.3`` or ``owner/name@REVISION``.

    Raises:
        UsageError: it names no version.
        RequestError: it is no name of a kernel.
    """
    repo_id, at, named = where.partition("@")
    if is_repo_id(repo_id) and not named:
        raise UsageError(
            f"{repo_id} needs a version; it is not a directory here",
            hint=f"write {repo_id}@v1, {repo_id}@1.2.3 or {repo_id}@REVISION",
        )
    if not at:
        raise UsageError(f"{where} is not a directory", hint="name a project, or OWNER/NAME@v1")
    if COMMIT.fullmatch(named):
        return request_of(repo_id, revision=named)
    try:
        return request_of(repo_id, version=named)
    except RequestError:
        return request_of(repo_id, revision=named)


def load_kernel(
    where: str, registry: loader.AnyRegistry, device: str, *, trust: bool = False
) -> Any:
    """A kernel from a directory, or of a registry as in ``published_request``.

    Args:
        trust: the user's word that the kernel may be loaded.
    """
    backend = "cpu" if device == "cpu" else None
    if Path(where).is_dir():
        return loader.get_local_kernel(Path(where), backend=backend, trust_remote_code=trust)
    asked = published_request(where)
    return loader.get_kernel(
        asked.repo_id,
        version=asked.version,
        revision=asked.revision,
        registry=registry,
        backend=backend,
        trust_remote_code=trust,
    )


def _file(project: Path, name: str) -> Path:
    path = (project / "benchmarks" / name).resolve()
    if not path.is_file():
        raise UsageError(f"{path} does not exist", hint=_HINT)
    return path


def _load(path: Path, project: Path) -> Any:
    """A file of the project as a module; what it imports of the project is forgotten again."""
    name = f"kernforge_benchmark_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    with _importing(project.resolve()):
        try:
            spec.loader.exec_module(module)
        except Exception as error:  # the user's file may raise anything
            raise _user_error(error, path, str(path)) from error
    return module


@contextlib.contextmanager
def _importing(project: Path) -> Iterator[None]:
    """Let a file import the project's modules, which another project may have by the same names."""
    known, paths = set(sys.modules), [str(project), str(project / "benchmarks")]
    sys.path[:0] = paths
    try:
        yield
    finally:
        for each in paths:
            sys.path.remove(each)
        for name in set(sys.modules) - known:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).is_relative_to(project):
                del sys.modules[name]


def _user_error(error: Exception, path: Path, what: str) -> UsageError:
    """An error of the user's file, or of what it does with our classes, with its line."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    line = f", line {lines[-1]}" if lines else ""
    if isinstance(error, KernforgeError):
        return UsageError(f"{path}{line}: {error.message}", hint=error.hint)
    text = f"{type(error).__name__}: {error}{line}"
    return UsageError(f"{what} cannot be run: {text}", hint=_HINT)
