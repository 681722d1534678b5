# SPDX-License-Identifier: Apache-2.0
"""Benchmark classes of the hub (``kernels.benchmark``), unchanged, in the same loop.

A repository's ``benchmarks/benchmark*.py`` hold subclasses of ``Benchmark``. Each method
``benchmark_<workload>`` is timed on instances of its own, after ``setup_<workload>`` or else
``setup``; ``verify_<workload>``, where there is one, returns what the attribute ``out`` should be
then. Names, the order of things and the module's name are those of the hub's client.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from kernforge.bench import run, verify
from kernforge.bench.project import load_kernel
from kernforge.bench.workload import Candidate, Settings
from kernforge.errors import CheckError, UsageError, page
from kernforge.registry.names import BENCHMARKS

PATTERN = "benchmark*.py"
KERNEL, REFERENCE = "kernel", "reference"
"""Names of the candidates that every workload has."""
_MODULE = "benchmark_module"
_PREFIX = "benchmark_"
_PAGE = page("how-to/author/measure-a-published-kernel")
_ATOL = 1e-2  # the hub's client's
_MOST_CALLS = 4  # Each needs an instance that was set up.


class Benchmark:
    """One kernel's workloads; the base of the classes where the hub's client is not installed.

    Attributes:
        seed: what the hub's client seeds torch with; kernforge draws a new one for every call.
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


class ClassWorkload:
    """A ``benchmark_`` method as a subject of the loop: a call's argument is an instance.

    Args:
        cls: the class.
        workload: the method's name after ``benchmark_``.
        kernel: the kernel that instances are set up with.
    """

    family, size, bytes, flops = "", 0, 0, 0

    def __init__(self, cls: Any, workload: str, kernel: Any, settings: Settings) -> None:
        self.name = f"{cls.__name__}.{workload}"
        self.method, self._setup = f"{_PREFIX}{workload}", f"setup_{workload}"
        verifies = f"verify_{workload}"
        self.verifies = hasattr(cls, verifies)
        self._verify = verifies
        self._cls, self._kernel, self._settings = cls, kernel, settings
        self._instances: list[Any] = []
        self.renew(0, 1)
        self.call_bytes = max(
            sum(each.nbytes for each in _tensors(self._instances[0])), (256 << 20) // _MOST_CALLS
        )

    def renew(self, number: int, count: int) -> None:
        """Set up an instance for each call, all random numbers drawn from a seed of its own."""
        self._instances = []  # so that the memory of the last ones is free
        for place in range(count):
            source = random.Random(f"{self._settings.seed}/{number}/{place}")  # noqa: S311
            _seed(source.getrandbits(32))
            instance = self._cls()
            instance.kernel, instance.device = self._kernel, self._settings.device
            getattr(instance, self._setup, instance.setup)()
            self._instances.append(instance)

    def arguments(self, place: int) -> tuple[Any, ...]:
        """The instance of a call."""
        return (self._instances[place],)

    def touch(self, place: int) -> None:
        """Bring the instance's tensors into the caches."""
        for each in _tensors(self._instances[place]):
            each.copy_(each.clone())

    def wrong(self, place: int, returned: Any) -> str:
        """Fault that the class's own check finds, or ours where zeros pass it; "" if none."""
        import torch

        instance = self._instances[place]
        if not self.verifies or returned != KERNEL:
            return ""
        right = getattr(instance, self._verify)()
        got = instance.out
        if not isinstance(got, torch.Tensor) or not isinstance(right, torch.Tensor):
            return "out, or what verify_ returns, is not a tensor"
        if got.shape != right.shape or got.dtype != right.dtype:
            return f"out is {tuple(got.shape)} {got.dtype}, not {tuple(right.shape)} {right.dtype}"
        near = torch.allclose(got, right, atol=_ATOL)
        if near and not torch.allclose(torch.zeros_like(right), right, atol=_ATOL):
            return ""
        at = verify.first_wrong(got, right, _ATOL)
        if at is None:
            return ""
        return f"the result is wrong at {list(at)}: {got[at].item()}, expected {right[at].item()}"

    def candidate(self, name: str, kernel: Any) -> Candidate:
        """The method with a kernel."""
        method = self.method

        def call(instance: Any) -> str:
            instance.kernel = kernel
            getattr(instance, method)()
            return KERNEL

        return Candidate(name=name, kind="kernel" if name == KERNEL else "published", function=call)

    def reference(self) -> Candidate:
        """The ``verify_`` method, which is timed beside it where it can be called alone."""
        method = self._verify

        def call(instance: Any) -> Any:
            try:
                getattr(instance, method)()
            except Exception:  # noqa: BLE001 - it needs what the workload makes
                return NotImplemented
            return REFERENCE

        return Candidate(name=REFERENCE, kind="reference", function=call)


def measure(
    repo: Path,
    kernels: Sequence[tuple[str, Any]],
    settings: Settings,
    note: Callable[[str], None],
    only: Sequence[str] = (),
) -> run.Report:
    """Measure every workload of every script of a repository.

    Args:
        repo: its directory, in which the scripts are run.
        kernels: names and modules; the first is named ``kernel``.
        only: ``Class.workload`` of those to measure; all when empty.

    Raises:
        UsageError: there is no script, or none of the workloads in ``only``.
        CheckError: a script cannot be run.
    """
    loop = run.Loop(settings, note)
    cases: dict[str, run.Case] = {}
    failed: dict[str, str] = {}
    known: list[str] = []
    for script in scripts(repo):
        for cls, workload in _entries(script, repo):
            entry = f"{cls.__name__}.{workload}"
            known.append(entry)
            if loop.interrupted or (only and entry not in only):
                continue
            try:
                subject = ClassWorkload(cls, workload, kernels[0][1], settings)
            except Exception as error:  # noqa: BLE001 - whatever a script raises is its result
                failed[entry] = f"setup raised {type(error).__name__}: {error}"
                note(f"{entry}: {failed[entry]}")
                continue
            racing = [subject.candidate(name, kernel) for name, kernel in kernels]
            racing += [subject.reference()] if subject.verifies else []
            cases[entry] = loop.measure(subject, racing)
            note(f"{entry}: measured")
    if unknown := set(only) - set(known):
        raise UsageError(
            f"no workload is called {', '.join(sorted(unknown))}",
            hint=f"there are {', '.join(sorted(known))}",
        )
    return run.Report(
        project=repo.resolve().name,
        machine=loop.machine(),
        settings=settings,
        cases=tuple(cases[name] for name in sorted(cases)),
        failed=failed,
        partial=loop.interrupted,
    )


def scripts(repo: Path) -> list[Path]:
    """The scripts of a repository, by name.

    Raises:
        UsageError: it has none.
    """
    paths = sorted((repo / BENCHMARKS).glob(PATTERN))
    if not paths:
        raise UsageError(f"{repo} has no {BENCHMARKS}/{PATTERN}", hint=f"see {_PAGE}")
    return paths


def only_classes(project: Path) -> bool:
    """Whether a project has scripts of the hub's form, and none of kernforge's own."""
    folder = project / BENCHMARKS
    return not (folder / "workloads.py").exists() and any(folder.glob(PATTERN))


def load_all(
    kernel: str, against: Sequence[str], registry: str | None, settings: Settings, *, trust: bool
) -> list[tuple[str, Any]]:
    """The kernel and those to compare with, by name."""
    names = [(KERNEL, kernel), *((each, each) for each in against)]
    return [(n, load_kernel(w, registry, settings.device, trust=trust)) for n, w in names]


def _entries(script: Path, repo: Path) -> list[tuple[Any, str]]:
    """The classes that a script defines, each with its workloads."""
    try:
        module = _run(script, repo)
    except Exception as error:
        raise CheckError(
            f"{script} cannot be run: {type(error).__name__}: {error}", hint=f"see {_PAGE}"
        ) from error
    theirs = sys.modules.get("kernels.benchmark")
    bases = (Benchmark, *([theirs.Benchmark] if theirs else []))
    found = [
        (each, name.removeprefix(_PREFIX))
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, bases) and each.__module__ == _MODULE
        for name in dir(each)
        if name.startswith(_PREFIX) and callable(getattr(each, name))
    ]
    if not found:
        raise CheckError(
            f"{script} defines no subclass of Benchmark with a method benchmark_...",
            hint=f"see {_PAGE}",
        )
    return sorted(found, key=lambda entry: (entry[0].__name__, entry[1]))


def _run(path: Path, repo: Path) -> ModuleType:
    """A script as a module, run in the repository's directory."""
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = sys.modules[_MODULE] = importlib.util.module_from_spec(spec)
    before = os.getcwd()  # noqa: PTH109 - what is given back to chdir
    os.chdir(repo)
    try:
        with _client():
            spec.loader.exec_module(module)
    finally:
        os.chdir(before)
    return module


@contextlib.contextmanager
def _client() -> Iterator[None]:
    """Stand in for the hub's client where it is not installed: scripts take its ``Benchmark``."""
    if "kernels" in sys.modules or importlib.util.find_spec("kernels") is not None:
        yield
        return
    package, module = ModuleType("kernels"), ModuleType("kernels.benchmark")
    package.__path__ = []  # a package, so that its modules can be asked for
    module.Benchmark = package.Benchmark = Benchmark  # type: ignore[attr-defined]
    package.benchmark = module  # type: ignore[attr-defined]
    sys.modules |= {"kernels": package, "kernels.benchmark": module}
    try:
        yield
    finally:
        del sys.modules["kernels"], sys.modules["kernels.benchmark"]


def _tensors(instance: Any) -> list[Any]:
    """An instance's tensors, each storage once."""
    import torch

    def within(value: Any) -> Iterator[Any]:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, torch.nn.Module):
            yield from (*value.parameters(), *value.buffers())
        elif isinstance(value, dict):
            yield from within(list(value.values()))
        elif isinstance(value, list | tuple):
            for each in value:
                yield from within(each)

    mine = [value for name, value in vars(instance).items() if name != "kernel"]
    plain = [each.detach() for each in within(mine) if each.layout is torch.strided]
    return list({each.untyped_storage().data_ptr(): each for each in plain}.values())


def _seed(seed: int) -> None:
    import torch

    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
