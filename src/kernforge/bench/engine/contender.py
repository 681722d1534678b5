# SPDX-License-Identifier: Apache-2.0
"""The code that a worker times: a function of the project, torch's own, or one of the engine's."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.loader import api as loader
from kernforge.registry.names import COMMIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor as Torch

    from kernforge.bench.engine.messages import BeginWorkload, WorkerStart


class RefusedError(Exception):
    """A candidate does what no measurement may rest on."""


def nothing(*_given: Any) -> None:
    """What is called where there is no workload, and what costs a call alone."""


class Callee:
    """The source of the function that a worker times.

    Attributes:
        trusted: whether it is one of the engine's own candidates, whose results are not checked.
    """

    trusted = False

    def of(self, work: BeginWorkload) -> Callable[..., Any]:
        """The function to time on a workload."""
        raise NotImplementedError

    def apart(self, call: Callable[..., Any], calls: int) -> Callable[..., Any]:  # noqa: ARG002
        """That function for so many calls in a row, none of which finds another's data cached."""
        return call  # every call has inputs of its own


class Contender(Callee):
    """A function of the project's file, or one of the engine's own.

    Raises:
        RefusedError: the project's file is not a Python file.
    """

    def __init__(self, start: WorkerStart) -> None:
        self._candidate, self._device, self._side = start.candidate, start.device, start.side
        kind = start.candidate.kind
        self.trusted = kind in ("nothing", "copy", "product")
        self._module = None if self.trusted else _import_file(start.candidate.file)
        self._kernel = load_candidate(start) if kind == "kernel" else None
        self._half: Torch | None = None

    def of(self, work: BeginWorkload) -> Callable[..., Any]:
        """The function to time on a workload."""
        kind, module = self._candidate.kind, self._module
        if module is None:
            return self._own(work)
        if kind == "kernel":
            # Not a lambda: a call of a partial costs 0.1 us of Python's time where that costs 0.35.
            return functools.partial(module.kernel, self._kernel)
        if kind == "peer":
            peer: Callable[..., Any] = module.PEERS[self._candidate.name]
            return peer
        eager: Callable[..., Any] = module.eager
        return self._compiled(eager) if kind == "compiled" else eager

    def apart(self, call: Callable[..., Any], calls: int) -> Callable[..., Any]:
        """As above; the engine's copy, which has no inputs, gets as many copies of its data."""
        if self._half is None:
            return call
        halves = itertools.cycle([self._half.clone() for _ in range(calls)])
        return lambda *_: next(halves).neg()

    def _compiled(self, eager: Callable[..., Any]) -> Callable[..., Any]:
        """Tuned for this workload's shapes alone."""
        import torch

        torch.compiler.reset()
        options: dict[str, Any] = {"fullgraph": True, "dynamic": False}
        if self._device == "cuda":
            options["mode"] = "max-autotune-no-cudagraphs"
        compiled: Callable[..., Any] = torch.compile(eager, **options)
        return compiled

    def _own(self, work: BeginWorkload) -> Callable[..., Any]:
        import torch

        self._half = None
        if self._candidate.kind == "nothing":
            return nothing
        if self._candidate.kind == "copy":
            words = max(1, work.bytes // 2 // 4)
            half = torch.ones(words, dtype=torch.int32, device=self._device)
            self._half = half
            # On a GPU a kernel copies (and negates) as fast as its copy does, for less of a start;
            # a copy inside a CUDA graph is slower.
            return (lambda *_: half.clone()) if self._device == "cpu" else (lambda *_: half.neg())
        matrix = torch.randn(self._side, self._side, device=self._device)
        matrix = matrix.to(getattr(torch, work.dtype))
        return lambda *_: matrix @ matrix


def _import_file(path: str) -> Any:
    """The candidates' file as a module."""
    name = Path(path).stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RefusedError(f"{path} is not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(Path(path).parent))
    spec.loader.exec_module(module)
    return module


def load_candidate(start: WorkerStart) -> Any:
    """The kernel of a candidate, from a directory or a registry; None where it has none."""
    candidate = start.candidate
    if candidate.kernel is None:
        return None
    backend = backend_of(start.device)
    return load_kernel(
        candidate.kernel, registry=candidate.registry, backend=backend, trust=candidate.trust
    )


def load_kernel(where: str, *, registry: str | None, backend: str | None, trust: bool) -> Any:
    """A kernel from a directory, or ``owner/name@version`` of a registry.

    Args:
        where: the directory, or the repo id with ``v1``, a version, or a commit.
    """
    if Path(where).is_dir():
        return loader.get_local_kernel(Path(where), backend=backend, trust_remote_code=trust)
    repo_id, version = _repo_version(where)
    return loader.get_kernel(
        repo_id, **version, registry=registry, backend=backend, trust_remote_code=trust
    )


def fetch_kernel(where: str, *, registry: str | None, backend: str | None) -> None:
    """Fetch and verify what ``load_kernel`` will load, without importing it."""
    if not Path(where).is_dir():
        repo_id, version = _repo_version(where)
        loader.install_kernel(repo_id, **version, registry=registry, backend=backend)


def backend_of(device: str) -> str | None:
    """The backend to load for ``cpu`` or ``cuda``; None stands for torch's own."""
    return "cpu" if device == "cpu" else None


def _repo_version(where: str) -> tuple[str, dict[str, Any]]:
    """The repo id of ``owner/name@version``, and the arguments that say which version."""
    repo_id, _, version = where.partition("@")
    number = version.removeprefix("v")
    if COMMIT.fullmatch(version):
        return repo_id, {"revision": version}
    return repo_id, {"version": int(number) if number.isdigit() else number}
