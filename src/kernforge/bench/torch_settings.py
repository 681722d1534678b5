# SPDX-License-Identifier: Apache-2.0
"""Settings of torch that change results or times of all code after them, kept as they were."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

# In this order they are restored: the older functions write some of the newer attributes.
_FUNCTIONS = {
    "set_float32_matmul_precision": "get_float32_matmul_precision",
    "set_default_dtype": "get_default_dtype",
    "set_deterministic_debug_mode": "get_deterministic_debug_mode",
    "set_grad_enabled": "is_grad_enabled",
    "set_num_threads": "get_num_threads",
    "set_anomaly_enabled": "is_anomaly_enabled",
    "backends.cuda.enable_flash_sdp": "backends.cuda.flash_sdp_enabled",
    "backends.cuda.enable_mem_efficient_sdp": "backends.cuda.mem_efficient_sdp_enabled",
    "backends.cuda.enable_math_sdp": "backends.cuda.math_sdp_enabled",
    "backends.cuda.enable_cudnn_sdp": "backends.cuda.cudnn_sdp_enabled",
    "backends.cuda.preferred_linalg_library": "backends.cuda.preferred_linalg_library",
    "backends.cuda.preferred_blas_library": "backends.cuda.preferred_blas_library",
}
_ON_GPU = {"cuda.set_device": "cuda.current_device", "cuda.set_stream": "cuda.current_stream"}
_MATMUL = (
    "allow_tf32",
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_accumulation",
)
_PRECISIONS = ("", "cuda.matmul.", "cudnn.", "cudnn.conv.", "cudnn.rnn.", "mkldnn.")
_ATTRIBUTES = (
    *(f"backends.cuda.matmul.{name}" for name in _MATMUL),
    *(f"backends.cudnn.{n}" for n in ("enabled", "benchmark", "deterministic", "allow_tf32")),
    "backends.cudnn.benchmark_limit",
    "backends.opt_einsum.enabled",
    "utils.deterministic.fill_uninitialized_memory",
    *(f"backends.{n}fp32_precision" for n in (*_PRECISIONS, "mkldnn.matmul.", "mkldnn.conv.")),
)


@contextlib.contextmanager
def kept(who: str, note: Callable[[str], None]) -> Iterator[None]:
    """Restore the settings after a block of other people's code.

    Args:
        note: called with its name and the settings that it changed, if any.
    """
    before = _read()
    try:
        yield
    finally:
        after = _read()
        if names := [name for name in before if after[name][0] != before[name][0]]:
            for value, write in before.values():
                with contextlib.suppress(RuntimeError):  # unknown: old and new names were mixed
                    write(value)
            named = (f"{name}: {before[name][0]} -> {after[name][0]}" for name in names)
            note(f"{who} changed settings of torch, which were restored: {', '.join(named)}")


def _read() -> dict[str, tuple[Any, Callable[[Any], object]]]:
    """The value of each setting that this torch has, and the function that writes it."""
    import torch

    values: dict[str, tuple[Any, Callable[[Any], object]]] = {}
    functions = {**_FUNCTIONS, **(_ON_GPU if torch.cuda.is_available() else {})}
    for setter, getter in functions.items():
        with contextlib.suppress(AttributeError):
            read, write = attrgetter(getter)(torch), attrgetter(setter)(torch)
            values[getter] = _value(read), write
    for path in _ATTRIBUTES:
        place, _, name = path.rpartition(".")
        with contextlib.suppress(AttributeError):
            owner = attrgetter(place)(torch)
            write = functools.partial(setattr, owner, name)
            values[path] = _value(functools.partial(getattr, owner, name)), write
    for device in ("cpu", "cuda"):
        autocast = functools.partial(torch.set_autocast_enabled, device)
        values[f"autocast {device}"] = torch.is_autocast_enabled(device), autocast
    denormal = torch.full((), 1e-310, dtype=torch.float64, device="cpu") * 1 == 0
    values["flush_denormal"] = bool(denormal), torch.set_flush_denormal
    values["default_device"] = str(torch.get_default_device()), _set_device
    return values


def _set_device(name: str) -> None:
    import torch

    # To name the usual one makes each call of torch slower.
    torch.set_default_device(None if name == "cpu" else name)


def _value(read: Callable[[], Any]) -> Any:
    """A setting's value; None where torch cannot say it, as old and new names were mixed."""
    try:
        return read()
    except RuntimeError:
        return None
