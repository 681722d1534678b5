# SPDX-License-Identifier: Apache-2.0
"""Benchmark classes of the hub (``kernels.benchmark``), unchanged, in the same loop.

A repository's ``benchmarks/benchmark*.py`` hold subclasses of ``Benchmark``. Each method
``benchmark_<workload>`` is timed on instances of its own, after ``setup_<workload>`` or else
``setup``; ``verify_<workload>``, where there is one, returns what the attribute ``out`` should be
then. Names and the order of things are those of the hub's client (``kernels`` 0.17).
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from kernforge.bench.run import Work
from kernforge.bench.workload import Candidate, Subject
from kernforge.compare.results import difference_by_share

PATTERN = "benchmark*.py"
KERNEL, REFERENCE = "kernel", "reference"
_PREFIX = "benchmark_"
_TOLERANCE = 1e-2
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


class ClassWorkload(Subject):
    """A ``benchmark_`` method as a subject of the loop: a call's argument is an instance.

    Args:
        workload: the method's name after ``benchmark_``.
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
        """The error of ``out`` by the class's ``verify_`` method; "" without one."""
        del returned
        (instance,) = self.calls[place]
        if not self.verifies:
            return ""
        right = getattr(instance, self._verify)()
        got = instance.out
        if got.shape != right.shape or got.dtype != right.dtype:
            return f"out is {tuple(got.shape)} {got.dtype}, not {tuple(right.shape)} {right.dtype}"
        wrong = difference_by_share(got, right, _TOLERANCE)
        return wrong.text("the result is wrong at ", got.shape) if wrong else ""


def work(modules: Iterable[Any], kernels: Mapping[str, Any], device: str) -> Work:
    """The workloads ``Class.workload`` of the classes that scripts define.

    Args:
        kernels: the measured kernel, as ``KERNEL``, and those to compare with.
    """
    return {
        f"{cls.__name__}.{name}": (
            functools.partial(ClassWorkload, cls, name, kernels[KERNEL], device),
            _candidates(cls, name, kernels),
        )
        for module in modules
        for cls in vars(module).values()
        if isinstance(cls, type) and cls.__module__ == module.__name__
        for name in (each.removeprefix(_PREFIX) for each in dir(cls) if each.startswith(_PREFIX))
    }


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


def _seed(seed: int) -> None:
    import torch

    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
