# SPDX-License-Identifier: Apache-2.0
"""Benchmark classes of the hub, unchanged, in the process that runs them.

Names, the order of things and the module's name are those of the hub's client: a class counts if
it is defined in the script, the script is run in the repository's directory, a workload has an
instance of its own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kernforge.bench.hub.base import Benchmark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from torch import Tensor

_MODULE = "benchmark_module"
_PREFIX = "benchmark_"


class Script:
    """A script's classes.

    Args:
        repo: the directory that it is run in.
        kernel: loads the kernel, at its first use.
        device: where tensors lie.

    Raises:
        Exception: whatever the script raises.
    """

    def __init__(self, path: Path, repo: Path, kernel: Callable[[], Any], device: str) -> None:
        self.kernel = LazyKernel(kernel)
        self._device = device
        self._classes = _classes(_run(path, repo))

    def entries(self) -> dict[str, bool]:
        """Each ``Class.workload``, and whether it has a ``verify_``."""
        return {
            f"{name}.{_workload(method)}": hasattr(cls, _verify(method))
            for name, cls in self._classes.items()
            for method in _methods(cls)
        }

    def make(self, entry: str, seed: int) -> tuple[Any, str]:
        """An instance that was set up, with all random numbers drawn from a seed; and its method."""
        name, _, workload = entry.rpartition(".")
        cls = self._classes[name]
        method = next(m for m in _methods(cls) if _workload(m) == workload)
        instance = cls()
        instance.kernel, instance.device = self.kernel, self._device
        _seed(seed)
        getattr(instance, f"setup_{workload}", instance.setup)()
        return instance, method

    @staticmethod
    def reference(instance: Any, method: str) -> Callable[[], Any]:
        """The method that returns what the result should be."""
        verify: Callable[[], Any] = getattr(instance, _verify(method))
        return verify


class LazyKernel:
    """A kernel that is loaded when something of it is first used."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load
        self._module: Any = None

    @property
    def was_used(self) -> bool:
        """Whether it is loaded."""
        return self._module is not None

    def now(self) -> Any:
        """The kernel's module itself."""
        if self._module is None:
            self._module = self._load()
        return self._module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.now(), name)


def held(instance: Any) -> list[Tensor]:
    """An instance's tensors, each storage once."""
    import torch

    def within(value: Any) -> Iterator[Tensor]:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, torch.nn.Module):
            yield from (*value.parameters(), *value.buffers())
        elif isinstance(value, dict):
            yield from within(list(value.values()))
        elif isinstance(value, list | tuple):
            for each in value:
                yield from within(each)

    mine = [each for name, each in vars(instance).items() if name != "kernel"]
    plain = [each for each in within(mine) if each.layout is torch.strided]
    return list({each.untyped_storage().data_ptr(): each for each in plain}.values())


def _run(path: Path, repo: Path) -> ModuleType:
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


def _bases() -> tuple[type, ...]:
    theirs = sys.modules.get("kernels.benchmark")
    return (Benchmark,) if theirs is None else (Benchmark, theirs.Benchmark)


def _classes(module: ModuleType) -> dict[str, Any]:
    """The benchmark classes that a module defines, by name."""
    bases = _bases()
    values = [getattr(module, name) for name in dir(module)]
    return {
        each.__name__: each
        for each in values
        if isinstance(each, type)
        and issubclass(each, bases)
        and each not in bases
        and each.__module__ == _MODULE
    }


def _methods(cls: type) -> list[str]:
    return [n for n in dir(cls) if n.startswith(_PREFIX) and callable(getattr(cls, n))]


def _workload(method: str) -> str:
    return method.replace(_PREFIX, "")


def _verify(method: str) -> str:
    return f"verify_{_workload(method)}"


def _seed(seed: int) -> None:
    import torch

    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % (1 << 32))
