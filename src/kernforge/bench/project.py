# SPDX-License-Identifier: Apache-2.0
"""The workloads and candidates of a project or a published kernel, loaded and measured."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from kernforge.artifact.integrity import tree_files
from kernforge.bench import hub, run
from kernforge.bench.torch_settings import kept
from kernforge.bench.verify import Inputs, user_error
from kernforge.bench.workload import Candidate, Workload
from kernforge.errors import NotPublishedError, RequestError, UsageError
from kernforge.loader import api as loader
from kernforge.loader.importer import get_loaded_kernels
from kernforge.registry.api import open_default, open_registry
from kernforge.registry.names import BENCHMARKS, COMMIT, is_repo_id, specifier
from kernforge.system.environment import Environment
from kernforge.system.tables import page
from kernforge.trust import policy
from kernforge.trust.admission import Case

_HINT = f"`kernforge new` writes such a file; see {page('how-to/author/measure-a-kernel')}"

Note: TypeAlias = Callable[[str], None]


def _silent(_text: str) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRequest:
    """The kernels, workloads and candidates to measure.

    Attributes:
        project: folder with ``benchmarks/workloads.py`` and ``benchmarks/candidates.py``, or with
            classes for the hub; or ``owner/name@version`` of a published kernel with such classes.
        kernel: directory of the built kernel; None: none is loaded.
        against: ``owner/name@version`` of published kernels to compare with, or directories of
            built ones.
        only: workloads to measure; all when empty.
        named: candidates to measure beside the kernel and ``against``; all when None.
        sizes: the project's ``sized`` at these instead of its ``WORKLOADS``; none when empty.
        trusted: the user's word that kernels of any publisher may be loaded.
    """

    project: Path
    kernel: Path | None = None
    against: tuple[str, ...] = ()
    registry: str | None = None
    only: tuple[str, ...] = ()
    named: tuple[str, ...] | None = None
    sizes: tuple[int, ...] = ()
    device: str = "cpu"
    trusted: bool = False

    def to_json(self) -> str:
        """The request as an argument of another process."""
        return json.dumps(asdict(self), default=str)


def from_json(text: str) -> BenchRequest:
    """The request in the text of ``to_json``."""
    given = json.loads(text)
    kernel = given["kernel"] and Path(given["kernel"])
    return BenchRequest(**given | {"project": Path(given["project"]), "kernel": kernel})


def has_workloads(project: Path) -> bool:
    """Whether kernforge's two files are measured, or else classes for the hub."""
    folder = project / BENCHMARKS
    own = (folder / "workloads.py").exists() or not any(folder.glob(hub.PATTERN))
    return project.is_dir() and own


def work(request: BenchRequest, note: Note = _silent) -> run.Work:
    """The workloads of a request with their candidates, by name.

    Args:
        note: called with a line for each file and kernel whose import changes torch's settings.
    """
    if has_workloads(request.project):
        with kept("benchmarks/workloads.py", note):
            loads = workloads(request)
        return each_of(loads, candidates(request, note), request.device)
    if request.sizes or request.named is not None:
        raise UsageError(
            "--sizes and --candidate need benchmarks/workloads.py; this kernel has only classes "
            "for the hub",
            hint="remove the two options, or write benchmarks/workloads.py",
        )
    with kept("the kernel", note):
        root, kernel = _with_classes(request)
    kernels = {hub.KERNEL: kernel}
    for each in request.against:
        with kept(each, note):
            kernels[each] = load_peer(each, request)
    if "kernels" not in sys.modules and importlib.util.find_spec("kernels") is None:
        # For the rest of the process: a script may import the client when it is measured.
        sys.modules["kernels"] = sys.modules["kernforge"]
        sys.modules["kernels.benchmark"] = hub
    scripts = []
    for path in sorted((root / BENCHMARKS).glob(hub.PATTERN)):
        with contextlib.chdir(root), kept(f"{BENCHMARKS}/{path.name}", note):
            scripts.append(load_file(path, root))
    found = hub.work(scripts, kernels, request.device)
    if not found:
        raise UsageError(
            f"{root / BENCHMARKS} has no class with a method benchmark_... in a {hub.PATTERN}",
            hint=f"see {page('how-to/author/measure-a-published-kernel')}",
        )
    check_known("workload", request.only, sorted(found))
    return {name: found[name] for name in request.only or sorted(found)}


def each_of(
    workloads: Sequence[Workload], contenders: Sequence[Candidate], device: str
) -> run.Work:
    """The same candidates on each workload."""
    return {w.name: (functools.partial(Inputs, w, device), contenders) for w in workloads}


def _with_classes(request: BenchRequest) -> tuple[Path, Any]:
    """The directory of a kernel whose ``benchmarks/`` has classes for the hub, and the kernel.

    No signature covers published scripts: where the trust policy demands one, they are refused.
    """
    if request.project.is_dir():
        if request.kernel is None:
            raise UsageError(
                f"{request.project} has no build/ to measure",
                hint="run `kernforge build`, or name a built kernel with --build-dir",
            )
        kernel = load_kernel(str(request.kernel), None, request.device)
        return request.project.absolute(), kernel
    environment, named = Environment.read(), request.registry
    registry = open_registry(named, environment) if named else open_default(environment)
    kernel = load_kernel(str(request.project), registry, request.device, trust=request.trusted)
    loaded = next(each for each in get_loaded_kernels() if each.module is kernel)
    info = loaded.repo_info
    if info is None:  # LOCAL_KERNELS puts a project's build in its place
        return loaded.path.parents[1], kernel
    member = registry.member(info.repo_id)
    subject = policy.Subject(
        repo_id=info.repo_id,
        registry=member.url,
        is_trusted_publisher=member.is_trusted_publisher,
    )
    Case(subject, environment, request.trusted).admit_unsigned("each of its benchmark scripts")
    folder = member.folder(info.repo_id, info.revision, BENCHMARKS)
    if folder is None:
        raise NotPublishedError(
            f"{info.repo_id} at {info.revision} has no {BENCHMARKS}/",
            hint="none was published with it; measure a directory with build/ and benchmarks/",
        )
    tree_files(folder, within=member.link_root(info.repo_id))
    return folder.parent, kernel


def workloads(request: BenchRequest) -> list[Workload]:
    """The project's workloads, those in ``only`` if it names any."""
    path = request.project.resolve() / BENCHMARKS / "workloads.py"
    module = load_file(path, request.project)
    work = list(getattr(module, "WORKLOADS", ()))
    if request.sizes:
        work = []
        for size in request.sizes:
            try:
                returned = module.sized(size)
            except Exception as error:  # the user's function may raise anything
                raise user_error(error, f"sized({size}) of {path}", str(path)) from error
            work += returned if isinstance(returned, list | tuple) else [returned]
    if not work or not all(isinstance(each, Workload) for each in work):
        what = "sized returns no" if request.sizes else "there is no WORKLOADS, a list of"
        raise UsageError(f"{path}: {what} kernforge.Workload", hint=_HINT)
    names = [each.name for each in work]
    if len(set(names)) != len(names):
        raise UsageError(f"{path}: two workloads have the same name", hint="give each its own name")
    check_known("workload", request.only, names)
    return [each for each in work if not request.only or each.name in request.only]


def check_known(what: str, wanted: Iterable[str], names: Sequence[str]) -> None:
    """Refuse names of workloads or candidates that do not exist."""
    if unknown := set(wanted) - set(names):
        raise UsageError(
            f"no {what} is called {', '.join(sorted(unknown))}",
            hint=f"there are {', '.join(map(repr, names))}",
        )


def candidates(request: BenchRequest, note: Note = _silent) -> list[Candidate]:
    """The candidates of ``benchmarks/candidates.py``, with the kernels loaded; the kernel first."""
    path = request.project.resolve() / BENCHMARKS / "candidates.py"
    with kept("benchmarks/candidates.py", note):
        module = load_file(path, request.project)
    kernel, eager = (getattr(module, name, None) for name in ("kernel", "eager"))
    peers = getattr(module, "PEERS", {})
    if not isinstance(peers, dict) or not all(map(callable, peers.values())):
        raise UsageError(
            f"{path}: PEERS is not a dictionary of functions", hint='PEERS = {"name": function}'
        )
    kernels, others = [], []
    if kernel is not None:
        with kept("kernel", note):
            built = request.kernel and load_kernel(str(request.kernel), None, request.device)
        # Not a lambda: a call of a partial costs 0.1 us of Python's time where that costs 0.35.
        function = functools.partial(kernel, built)
        kernels.append(Candidate(name="kernel", kind="kernel", function=function))
        for each in request.against:
            with kept(each, note):
                function = functools.partial(kernel, load_peer(each, request))
            kernels.append(Candidate(name=each, kind="published", function=function))
    if eager is not None:
        others.append(Candidate(name="torch eager", kind="eager", function=eager))
        others.append(Candidate(name="torch.compile", kind="compiled", function=eager))
    others += [Candidate(name=n, kind="peer", function=function) for n, function in peers.items()]
    known = [each.name for each in (*kernels, *others)]
    if not known:
        raise UsageError(f"{path} defines neither kernel nor eager nor PEERS", hint=_HINT)
    check_known("candidate", request.named or (), known)
    return kernels + [
        each for each in others if request.named is None or each.name in request.named
    ]


def load_peer(where: str, request: BenchRequest) -> Any:
    """One of the kernels that a request is ``against``."""
    return load_kernel(where, request.registry, request.device, trust=request.trusted)


def load_kernel(
    where: str, registry: loader.AnyRegistry, device: str, *, trust: bool = False
) -> Any:
    """A kernel from a directory, or of a registry as ``owner/name@version``."""
    backend = "cpu" if device == "cpu" else None
    if Path(where).is_dir():
        return loader.get_local_kernel(Path(where), backend=backend, trust_remote_code=trust)
    repo_id, _, named = where.partition("@")
    if not is_repo_id(repo_id):
        raise UsageError(f"{where} is not a directory", hint="name a project, or OWNER/NAME@v1")
    if not named:
        raise UsageError(
            f"{where} needs a version; it is not a directory here",
            hint=f"write {where}@v1, {where}@1.2.3 or {where}@REVISION",
        )
    version = None
    if not COMMIT.fullmatch(named):
        with contextlib.suppress(RequestError):
            version = specifier(named)
    return loader.get_kernel(
        repo_id,
        version=version,
        revision=named if version is None else None,
        registry=registry,
        backend=backend,
        trust_remote_code=trust,
    )


def load_file(path: Path, project: Path) -> Any:
    """A file of the project as a module, which may import the project's other files."""
    spec = importlib.util.spec_from_file_location(f"kernforge_benchmark_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError(f"{path} does not exist", hint=_HINT)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    sys.path[:0] = [str(project.resolve()), str(path.parent)]
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the user's file may raise anything
        raise user_error(error, str(path), str(path)) from error
    return module
