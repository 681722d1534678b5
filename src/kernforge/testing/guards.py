# SPDX-License-Identifier: Apache-2.0
"""Sentinels around what an operator reads and writes.

Inputs are copied between guards. What the operator allocates for itself is placed between guards
too: while it runs, torch's factories are intercepted below the operator, so that C++ and Python
operators are treated alike. New memory holds ``POISON``, so that an element which was never
written does not happen to hold the right value of an earlier call.

What an operator allocates without torch's factories is not held between guards: on the CPU the C
library fills it with ``POISON``, on a GPU compute-sanitizer sees it.
"""

from __future__ import annotations

import ctypes
import functools
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

GUARD = 512
"""Bytes before and after; a multiple of what allocators align to, so alignment stays as it is."""
POISON = 0xA5
"""Of which new memory and the guards around it consist."""
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
        tensor: the tensor; its strides are the original's.
        buffer: the bytes that hold it and the guards.
        end: where its bytes end in the buffer; they begin at ``GUARD``.
        filled: what each byte of the guards is.
    """

    tensor: Tensor
    buffer: Tensor
    end: int
    filled: int

    def broken(self) -> str:
        """Where a guard was written, counted from the tensor's edge; "" when none was."""
        for name, part, first in (
            ("before", self.buffer[:GUARD], GUARD),
            ("after", self.buffer[self.end :], 0),
        ):
            wrong = (part != self.filled).nonzero().view(-1)
            if wrong.numel():
                at = int(wrong[-1] if first else wrong[0])
                distance = first - at if first else at + 1
                return (
                    f"{wrong.numel()} bytes {name} it were written, the nearest is {distance} off"
                )
        return ""


def surround(tensor: Tensor, *, filled: int = POISON) -> Guarded:
    """A copy of a dense tensor between guards of one byte value."""
    import torch  # noqa: PLC0415 - torch is imported where it is used

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
    """What was allocated and called while an operator ran.

    Attributes:
        settled: whether a GPU comes to rest before new memory is handed out.
        outputs: what it allocated, between guards.
        calls: the custom operators that were reached, with their arguments.
    """

    settled: bool = True

    outputs: list[Guarded] = field(default_factory=list)
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)

    def broken(self) -> str:
        """What was written around an output; "" when nothing was."""
        for number, one in enumerate(self.outputs):
            if text := one.broken():
                shape = tuple(one.tensor.shape)
                return f"around allocation {number}, {one.tensor.dtype} {shape}: {text}"
        return ""


def watched(function: Callable[[], Any], *, settled: bool = True) -> tuple[Any, Watch]:
    """Run something with guards around all that it allocates through torch.

    Args:
        function: what to run.
        settled: let the GPU come to rest before it, after it and when memory was made ready: what
            launches on a wrong stream is right then, and only the checks of streams tell.
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
    """Have the C library fill what it hands out, so that memory past torch's factories is seen.

    Torch's C interface allocates so on the CPU (``aoti_torch_empty_strided``). glibc's ``mallopt``
    takes the complement of the byte; other C libraries do not have it.
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
    """Wait for all that was given to the current GPU, if one is used."""
    import torch  # noqa: PLC0415

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


@functools.cache
def _mode() -> Any:
    """The dispatch mode's class; made when torch is there."""
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415

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
                with self:  # what it calls in its turn is seen as well
                    return func.redispatch(key, *args, **kwargs)
            result = func(*args, **kwargs)
            if func._schema.name in _FACTORIES:  # noqa: SLF001
                result = self._placed(func, result)
            return result

        def _placed(self, func: Any, result: Any) -> Any:
            if "empty" in func._schema.name and result.numel():  # noqa: SLF001
                _bytes(result).fill_(POISON)
            one = surround(result)
            self.watch.outputs.append(one)
            if self.watch.settled:
                settle()
            return one.tensor

    return Watching


def _bytes(tensor: Tensor) -> Tensor:
    """All bytes of a tensor's storage."""
    import torch  # noqa: PLC0415

    nothing = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return nothing.set_(tensor.untyped_storage())


def _device_key(values: tuple[Any, ...]) -> Any:
    """The dispatch keys of the device of the first tensor; None without tensors."""
    import torch  # noqa: PLC0415

    flat = [o for v in values for o in (v if isinstance(v, (list, tuple)) else (v,))]
    tensors = [one for one in flat if isinstance(one, torch.Tensor)]
    if not tensors:
        return None
    key = getattr(torch._C.DispatchKey, tensors[0].device.type.upper())  # noqa: SLF001
    return torch._C.DispatchKeySet(key)  # noqa: SLF001
