# SPDX-License-Identifier: Apache-2.0
"""Settings of torch that change results or times of all code after them, kept as they were."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

# Where torch reads a setting, and the function that writes it; "" where that is an attribute. In
# this order they are restored: the older functions write some of the newer attributes.
_SETTINGS = {
    "get_float32_matmul_precision": "set_float32_matmul_precision",
    "get_default_dtype": "set_default_dtype",
    "get_deterministic_debug_mode": "set_deterministic_debug_mode",
    "is_grad_enabled": "set_grad_enabled",
    "get_num_threads": "set_num_threads",
    "is_anomaly_enabled": "set_anomaly_enabled",
    **{
        f"backends.cuda.{name}_sdp_enabled": f"backends.cuda.enable_{name}_sdp"
        for name in ("flash", "mem_efficient", "math", "cudnn")
    },
    "backends.cuda.preferred_linalg_library": "backends.cuda.preferred_linalg_library",
    "backends.cuda.preferred_blas_library": "backends.cuda.preferred_blas_library",
    "cuda.current_device": "cuda.set_device",
    "cuda.current_stream": "cuda.set_stream",
    **dict.fromkeys(
        (
            "backends.cuda.matmul.allow_tf32",
            "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
            "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
            "backends.cuda.matmul.allow_fp16_accumulation",
            *(f"backends.cudnn.{n}" for n in ("enabled", "benchmark", "deterministic")),
            *(f"backends.cudnn.{n}" for n in ("allow_tf32", "benchmark_limit")),
            "backends.opt_einsum.enabled",
            "utils.deterministic.fill_uninitialized_memory",
            *(f"backends.{n}fp32_precision" for n in ("", "cuda.matmul.", "mkldnn.")),
            *(f"backends.cudnn.{n}fp32_precision" for n in ("", "conv.", "rnn.")),
            *(f"backends.mkldnn.{n}.fp32_precision" for n in ("matmul", "conv")),
        ),
        "",
    ),
}


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
    for path, setter in _SETTINGS.items():
        place, _, name = path.rpartition(".")
        if place == "cuda" and not torch.cuda.is_available():
            continue
        with contextlib.suppress(AttributeError):
            owner = attrgetter(place)(torch) if place else torch
            write = attrgetter(setter)(torch) if setter else functools.partial(setattr, owner, name)
            value = None  # where torch cannot say it, as old and new names were mixed
            with contextlib.suppress(RuntimeError):
                value = getattr(owner, name)() if setter else getattr(owner, name)
            values[path] = value, write
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
