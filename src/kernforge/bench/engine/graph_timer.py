# SPDX-License-Identifier: Apache-2.0
"""Calls in a row as one CUDA graph, captured once and replayed on new inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernforge.bench.engine.timer import Timer


class UncapturableError(Exception):
    """A candidate that no CUDA graph can hold."""


class Graph:
    """Calls of a candidate as one CUDA graph, whose inputs are copied in before each replay.

    Args:
        call: the candidate.
        given: inputs of the right kind, for as many calls as are timed in a row.

    Raises:
        UncapturableError: the calls cannot be captured.
    """

    def __init__(self, call: Callable[..., Any], given: list[tuple[Any, ...]]) -> None:
        import torch  # noqa: PLC0415

        self._inputs, self.calls = given, len(given)
        self._graph = torch.cuda.CUDAGraph()
        self._plain, self._copy = torch.Tensor, torch.Tensor.copy_
        try:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                call(*self._inputs[0])
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(self._graph):
                self._results = [call(*each) for each in self._inputs]
        except RuntimeError as error:
            raise UncapturableError(f"it cannot be captured in a CUDA graph: {error}") from error

    def time(self, timer: Timer, given: list[tuple[Any, ...]]) -> tuple[list[Any], float]:
        """Results of one replay on these inputs, and its nanoseconds; a last group may be short."""
        for kept, new in zip(self._inputs, given, strict=False):
            for target, source in zip(kept, new, strict=True):
                if type(source) is self._plain:
                    self._copy(target, source)
        _, spent = timer.time(self._graph.replay, (), cold=True)
        return self._results[: len(given)], spent * len(given) / len(self._inputs)
