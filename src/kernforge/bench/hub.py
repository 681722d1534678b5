# SPDX-License-Identifier: Apache-2.0
"""Benchmark classes of the hub (``kernels.benchmark``), unchanged, in the same loop.

A repository's ``benchmarks/benchmark*.py`` hold subclasses of ``Benchmark``. Each method
``benchmark_<workload>`` is timed on instances of its own, after ``setup_<workload>`` or else
``setup``; ``verify_<workload>``, where there is one, returns what the attribute ``out`` should be
then. Names and the order of things are those of the hub's client (``kernels`` 0.17).
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernforge.artifact.integrity import tree_files
from kernforge.bench import run, verify
from kernforge.bench.project import BenchRequest, check_known, load_file, load_kernel, load_peer
from kernforge.bench.workload import Candidate, Settings, Subject
from kernforge.errors import NotPublishedError, UsageError, page
from kernforge.loader.importer import get_loaded_kernels
from kernforge.registry.directory import Registries
from kernforge.registry.names import BENCHMARKS
from kernforge.system.environment import Environment
from kernforge.trust import policy
from kernforge.trust.admission import Case

PATTERN = "benchmark*.py"
KERNEL, REFERENCE = "kernel", "reference"
"""Names of the candidates that every workload has."""
_PREFIX = "benchmark_"
_PAGE = page("how-to/author/measure-a-published-kernel")
_ATOL = 1e-2  # the hub's client's
_CALL_BYTES = 64 << 20  # Few calls a turn: each needs an instance that was set up.


class Benchmark:
    """One kernel's workloads; the base of the classes where the hub's client is not installed.

    Attributes:
        seed: the client's seed of torch; kernforge draws a new one for every call.
        device: ``cpu`` or ``cuda``, set before ``setup``.
        kernel: the loaded kernel, set before ``setup``.
        out: the result, a tensor that ``setup`` or the workload sets.
    """

    seed: int | None = None
    device: str = "cpu"

    def __init__(self) -> None:
        self.kernel: Any = None
        self.out: Any = None

    def setup(self) -> None:
        """Make the inputs of every workload that has no ``setup_<workload>``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repo:
    """A directory with ``benchmarks/``, and its kernel, loaded."""

    root: Path
    kernel: Any


def has_only_classes(project: Path) -> bool:
    """Whether a project has scripts of the hub's form, and none of kernforge's own."""
    folder = project / BENCHMARKS
    return not (folder / "workloads.py").exists() and any(folder.glob(PATTERN))


def published(
    where: str, registry: Registries, environment: Environment, *, device: str, trusted: bool
) -> Repo:
    """Load a published kernel (``owner/name@version``), and fetch its scripts.

    No signature covers the scripts: where the trust policy demands one, they are refused.
    """
    kernel = load_kernel(where, registry, device, trust=trusted)
    loaded = next(each for each in get_loaded_kernels() if each.module is kernel)
    info = loaded.repo_info
    if info is None:  # LOCAL_KERNELS puts a directory in its place
        inner = loaded.path.parent
        return Repo(root=inner.parent if inner.name == "build" else inner, kernel=kernel)
    member = registry.member(info.repo_id)
    subject = policy.Subject(
        repo_id=info.repo_id,
        registry=member.url,
        is_trusted_publisher=member.is_trusted_publisher,
    )
    Case(subject, environment, trusted).admit_unsigned("each of its benchmark scripts")
    folder = member.folder(info.repo_id, info.revision, BENCHMARKS)
    if folder is None:
        raise NotPublishedError(
            f"{info.repo_id} at {info.revision} has no {BENCHMARKS}/",
            hint="none was published with it; measure a directory with build/ and benchmarks/",
        )
    tree_files(folder, within=member.link_root(info.repo_id))
    return Repo(root=folder.parent, kernel=kernel)


def local(project: Path, build: Path, device: str) -> Repo:
    """A project of this machine with ``benchmarks/`` and a build."""
    return Repo(root=project.absolute(), kernel=load_kernel(str(build), None, device))


class ClassWorkload(Subject):
    """A ``benchmark_`` method as a subject of the loop: a call's argument is an instance.

    Args:
        workload: the method's name after ``benchmark_``.
        kernel: the kernel that instances are set up with.
    """

    call_bytes = _CALL_BYTES

    def __init__(self, cls: Any, workload: str, kernel: Any, device: str) -> None:
        super().__init__()
        self.name = f"{cls.__name__}.{workload}"
        self._setup, self._verify = f"setup_{workload}", f"verify_{workload}"
        self.verifies = hasattr(cls, self._verify)
        self._cls, self._kernel, self._device = cls, kernel, device
        self.renew(0, 1)

    def renew(self, number: int, count: int) -> None:
        """Set up an instance for each call, with a random seed of its own."""
        self.calls = []  # so that the memory of the last ones is free
        for place in range(count):
            _seed(random.Random(f"{number}/{place}").getrandbits(32))  # noqa: S311 - no secret
            instance = self._cls()
            instance.kernel, instance.device = self._kernel, self._device
            getattr(instance, self._setup, instance.setup)()
            self.calls.append((instance,))

    def values(self, place: int) -> list[Any]:
        """The attributes of a call's instance."""
        return list(vars(self.calls[place][0]).values())

    def verify(self, place: int, returned: Any) -> str:
        """The error by the class's check, or by kernforge's where zeros pass it; else ""."""
        import torch

        del returned
        (instance,) = self.calls[place]
        if not self.verifies:
            return ""
        right = getattr(instance, self._verify)()
        got = instance.out
        if not isinstance(got, torch.Tensor) or not isinstance(right, torch.Tensor):
            return "out, or the result of verify_, is not a tensor"
        if got.shape != right.shape or got.dtype != right.dtype:
            return f"out is {tuple(got.shape)} {got.dtype}, not {tuple(right.shape)} {right.dtype}"
        near = torch.allclose(got, right, atol=_ATOL)
        if near and not torch.allclose(torch.zeros_like(right), right, atol=_ATOL):
            return ""
        text = verify.first_wrong(got, right, _ATOL)
        return text and f"the result {text}"


def _candidates(cls: Any, workload: str, kernels: Mapping[str, Any]) -> list[Candidate]:
    """A class's method with each kernel, and its ``verify_`` method where it has one."""
    check = f"verify_{workload}"

    def call(instance: Any, *, kernel: Any) -> None:
        instance.kernel = kernel
        getattr(instance, f"{_PREFIX}{workload}")()

    def reference(instance: Any) -> Any:
        try:
            getattr(instance, check)()
        except Exception:  # noqa: BLE001 - it reads a result of the workload
            return NotImplemented
        return None

    candidates = [
        Candidate(
            name=name,
            kind="kernel" if name == KERNEL else "published",
            function=functools.partial(call, kernel=kernel),
        )
        for name, kernel in kernels.items()
    ]
    if hasattr(cls, check):
        candidates.append(Candidate(name=REFERENCE, kind="reference", function=reference))
    return candidates


def measure(
    repo: Repo, request: BenchRequest, settings: Settings, note: Callable[[str], None]
) -> run.Report:
    """Measure the workloads of every script of a repository; a name is ``Class.workload``."""
    kernels = {KERNEL: repo.kernel} | {each: load_peer(each, request) for each in request.against}
    entries = {f"{cls.__name__}.{name}": (cls, name) for cls, name in _entries(repo.root)}
    check_known("workload", request.only, sorted(entries))
    work = {
        entry: (
            functools.partial(ClassWorkload, cls, name, repo.kernel, settings.device),
            _candidates(cls, name, kernels),
        )
        for entry, (cls, name) in sorted(entries.items())
        if not request.only or entry in request.only
    }
    return run.measure(work, settings, note, repo.root.resolve().name)


def _scripts(root: Path) -> list[Path]:
    """The benchmark scripts of a repository, by name."""
    paths = sorted((root / BENCHMARKS).glob(PATTERN))
    if not paths:
        raise UsageError(f"{root} has no {BENCHMARKS}/{PATTERN}", hint=f"see {_PAGE}")
    return paths


def _entries(root: Path) -> Iterator[tuple[Any, str]]:
    """The classes that a repository's scripts define, each with its workloads."""
    if "kernels" not in sys.modules and importlib.util.find_spec("kernels") is None:
        # For the rest of the process: a script may import the client when it is measured.
        sys.modules["kernels"] = sys.modules["kernforge"]
        sys.modules["kernels.benchmark"] = sys.modules[__name__]
    for script in _scripts(root):
        with contextlib.chdir(root):
            module = load_file(script, root)
        client = sys.modules.get("kernels.benchmark", sys.modules[__name__])
        entries = [
            (each, name.removeprefix(_PREFIX))
            for each in vars(module).values()
            if isinstance(each, type)
            and issubclass(each, (Benchmark, client.Benchmark))
            and each.__module__ == module.__name__
            for name in dir(each)
            if name.startswith(_PREFIX) and callable(getattr(each, name))
        ]
        if not entries:
            raise UsageError(
                f"{script} defines no subclass of Benchmark with a method benchmark_...",
                hint=f"see {_PAGE}",
            )
        yield from entries


def _seed(seed: int) -> None:
    import torch

    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
