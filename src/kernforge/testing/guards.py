# SPDX-License-Identifier: Apache-2.0
"""Guards around the memory that an operator reads and writes.

Inputs are copied between guards. Memory that the operator allocates gets guards too:
while it runs, calls of torch's factories below the operator are intercepted, for C++ and Python
operators alike. New memory is filled with ``POISON``, so that an element that is never written
cannot have the right value of an earlier call.

Memory that an operator allocates without torch's factories has no guards: on the CPU the C library
fills it with ``POISON``, on a GPU compute-sanitizer examines it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

__tracebackhide__ = True  # a failure shows the test and the operator, not how we compare
GUARD = 512
"""Size of a guard in bytes; a multiple of the allocators' alignment, so that alignment is kept."""
POISON = 0xA5
"""Value of each byte of new memory and of the guards around it."""
_M_PERTURB = -6  # glibc's malloc.h
_FACTORIES = frozenset(
    f"aten::{name}"
    for name in (
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
        *("zeros", "zeros_like", "new_zeros", "full", "full_like", "new_full", "ones", "ones_like"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """A tensor between guards.

    Attributes:
        tensor: the tensor, with the strides of the original.
        buffer: bytes of the tensor and the guards.
        end: end of the tensor's bytes in the buffer; they begin at ``GUARD``.
        filled: value of each byte of the guards.
    """

    tensor: Tensor
    buffer: Tensor
    end: int
    filled: int

    def broken(self) -> str:
        """Describe writes to the guards, with the distance to the tensor; empty if none."""
        for name, part, first in (
            ("before", self.buffer[:GUARD], GUARD),
            ("after", self.buffer[self.end :], 0),
        ):
            wrong = (part != self.filled).nonzero().view(-1)
            if wrong.numel():
                index = int(wrong[-1] if first else wrong[0])
                distance = first - index if first else index + 1
                count = wrong.numel()
                return f"{count} bytes {name} it were written, the nearest {distance} bytes away"
        return ""


def surround(tensor: Tensor, *, filled: int = POISON) -> Guarded:
    """A copy of a dense tensor between guards of one byte value."""
    import torch

    spans = zip(tensor.shape, tensor.stride(), strict=True)
    count = sum((size - 1) * stride for size, stride in spans) + 1 if tensor.numel() else 0
    end = GUARD + count * tensor.element_size()
    after = GUARD + -end % GUARD
    buffer = torch.full((end + after,), filled, dtype=torch.uint8, device=tensor.device)
    whole = buffer.view(tensor.dtype)
    inner = whole.as_strided(tensor.shape, tensor.stride(), GUARD // tensor.element_size())
    inner.copy_(tensor)
    return Guarded(tensor=inner, buffer=buffer, end=end, filled=filled)


@dataclass(slots=True, kw_only=True)
class Watch:
    """Allocations and calls while an operator ran.

    Attributes:
        settled: whether the GPU is synchronised before new memory is given to the operator.
        outputs: tensors that the operator allocated, between guards.
        calls: custom operators that were called, with their arguments.
    """

    settled: bool = True
    outputs: list[Guarded] = field(default_factory=list)
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)

    def broken(self) -> str:
        """Describe a write around an output; empty if there was none."""
        for number, output in enumerate(self.outputs):
            if text := output.broken():
                shape = tuple(output.tensor.shape)
                return f"around allocation {number}, {output.tensor.dtype} {shape}: {text}"
        return ""


def watched(function: Callable[[], Any], *, settled: bool = True) -> tuple[Any, Watch]:
    """Run a function with guards around all memory that it allocates through torch.

    Args:
        settled: whether to synchronise the GPU before and after it and for each allocation: a
            launch on a wrong stream gives right results then, and only the checks of streams find
            it.
    """
    watch = Watch(settled=settled)
    if settled:
        settle()
    with _mode()(watch), _poisoned_heap():
        result = function()
    if settled:
        settle()
    return result, watch


@contextmanager
def _poisoned_heap() -> Iterator[None]:
    """Let the C library fill new memory, for allocations without torch's factories.

    Torch's C interface allocates on the CPU so (``aoti_torch_empty_strided``). glibc's ``mallopt``
    takes the complement of the byte; other C libraries do not have this function.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        yield
        return
    mallopt(_M_PERTURB, POISON ^ 0xFF)
    try:
        yield
    finally:
        mallopt(_M_PERTURB, 0)


def settle() -> None:
    """Synchronise the current GPU, if this process uses one."""
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


@functools.cache
def _mode() -> Any:
    """The class of the dispatch mode; made on first use, because torch is imported late."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watching(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
        def __init__(self, watch: Watch) -> None:
            super().__init__()
            self.watch = watch

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            del types
            kwargs = kwargs or {}
            if func.namespace not in ("aten", "prim", "prims"):
                self.watch.calls.append((func, args, kwargs))
                key = _device_key((*args, *kwargs.values()))
                if key is None:
                    return func(*args, **kwargs)
                with self:  # intercepts the calls of the operator's implementation too
                    return func.redispatch(key, *args, **kwargs)
            result = func(*args, **kwargs)
            if func._schema.name in _FACTORIES:  # noqa: SLF001
                result = self._placed(func, result)
            return result

        def _placed(self, func: Any, result: Any) -> Any:
            if "empty" in func._schema.name and result.numel():  # noqa: SLF001
                _bytes(result).fill_(POISON)
            output = surround(result)
            self.watch.outputs.append(output)
            if self.watch.settled:
                settle()
            return output.tensor

    return Watching


def _bytes(tensor: Tensor) -> Tensor:
    """All bytes of a tensor's storage."""
    import torch

    nothing = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return nothing.set_(tensor.untyped_storage())


def _device_key(values: tuple[Any, ...]) -> Any:
    """The dispatch keys of the device of the first tensor; None without tensors."""
    import torch

    flat = [o for v in values for o in (v if isinstance(v, (list, tuple)) else (v,))]
    tensors = [value for value in flat if isinstance(value, torch.Tensor)]
    if not tensors:
        return None
    key = getattr(torch._C.DispatchKey, tensors[0].device.type.upper())  # noqa: SLF001
    return torch._C.DispatchKeySet(key)  # noqa: SLF001
