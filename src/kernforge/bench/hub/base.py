# SPDX-License-Identifier: Apache-2.0
"""The base of the benchmark classes that the hub's kernels bring along.

A repository's ``benchmarks/benchmark*.py`` hold subclasses, written against ``kernels.benchmark``
of the hub's client. Each method ``benchmark_<workload>`` is timed on an instance of its own, after
``setup_<workload>`` or else ``setup``; ``verify_<workload>``, where there is one, returns what the
attribute ``out`` should be then.
"""

from __future__ import annotations

from typing import Any


class Benchmark:
    """One kernel's workloads.

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
