# SPDX-License-Identifier: Apache-2.0
"""The code that a worker times: a function of the project's, torch's own, or one of the engine's."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.bench.hub.scripts import load_kernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor as Torch


class RefusedError(Exception):
    """A candidate does what no measurement may rest on."""


def _load(path: str) -> Any:
    """The candidates' file as a module."""
    name = Path(path).stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RefusedError(f"{path} is no Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(Path(path).parent))
    spec.loader.exec_module(module)
    return module


class Contender:
    """What is timed: a function of the project's file, or one of the engine's own.

    Args:
        spec: its kind, name, file, kernel and device.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec, self._device = spec, spec["device"]
        self.trusted = spec["kind"] in ("nothing", "copy", "product")
        self._module = None if self.trusted else _load(spec["file"])
        self._kernel = _kernel(spec) if spec["kind"] == "kernel" else None
        self._half: Torch | None = None

    def none(self, *_given: Any) -> None:
        """What is called when there is no workload."""

    def of(self, work: dict[str, Any]) -> Callable[..., Any]:
        """The function to time on a workload."""
        kind, module, kernel = self._spec["kind"], self._module, self._kernel
        if self.trusted:
            return self._own(kind, work)
        if module is None:
            raise RefusedError("there is no such candidate")
        if kind == "kernel":
            return lambda *given: module.kernel(kernel, *given)
        if kind == "peer":
            peer: Callable[..., Any] = module.PEERS[self._spec["name"]]
            return peer
        eager: Callable[..., Any] = module.eager
        return self._compiled(eager) if kind == "compiled" else eager

    def apart(self, call: Callable[..., Any], calls: int) -> Callable[..., Any]:
        """The function for so many calls in a row that shall not find each other's data cached.

        Everyone else has inputs of its own in each call; the engine's copy gets them here.
        """
        if self._half is None:
            return call
        halves = itertools.cycle([self._half.clone() for _ in range(calls)])
        return lambda *_: next(halves).neg()

    def _compiled(self, eager: Callable[..., Any]) -> Callable[..., Any]:
        """Tuned for this workload's shapes alone."""
        import torch  # noqa: PLC0415

        torch.compiler.reset()
        options: dict[str, Any] = {"fullgraph": True, "dynamic": False}
        if self._device == "cuda":
            options["mode"] = "max-autotune-no-cudagraphs"
        compiled: Callable[..., Any] = torch.compile(eager, **options)
        return compiled

    def _own(self, kind: str, work: dict[str, Any]) -> Callable[..., Any]:
        import torch  # noqa: PLC0415

        self._half = None
        if kind == "nothing":
            return self.none
        if kind == "copy":
            words = max(1, work["bytes"] // 2 // 4)
            half = torch.ones(words, dtype=torch.int32, device=self._device)
            self._half = half
            # On a GPU a kernel copies (and negates) as fast as its copy does, for less of a start;
            # a copy inside a CUDA graph is slower.
            return (lambda *_: half.clone()) if self._device == "cpu" else (lambda *_: half.neg())
        side = self._spec["side"]
        a = torch.randn(side, side, device=self._device).to(getattr(torch, work["dtype"]))
        return lambda *_: a @ a


def _kernel(spec: dict[str, Any]) -> Any:
    """The kernel of a candidate, from a directory or a registry; None where there is none."""
    if spec["kernel"] is None:
        return None
    return load_kernel(
        spec["kernel"],
        registry=spec["registry"],
        backend="cpu" if spec["device"] == "cpu" else None,
        trust=spec["trust"],
    )
