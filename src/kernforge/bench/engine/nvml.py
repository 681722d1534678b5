# SPDX-License-Identifier: Apache-2.0
"""The door to NVML: what a GPU reports of its clocks, temperature and power, and what it does not.

Only the judge reads it. A reading takes the driver milliseconds, so none is made near a timed call
or in a process that is timed.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

from kernforge.bench.engine.samples import Reading, reason_names

_MILLI = 1000.0
_FACTS = {
    "sm_mhz": "clock of the multiprocessors",
    "memory_mhz": "clock of the memory",
    "temperature_c": "temperature",
    "power_w": "power",
    "reasons": "reasons for lower clocks",
}


class Gpu:
    """A GPU as NVML knows it.

    Args:
        nvml: the module ``pynvml``, or what answers as it does; None where there is none.
        uuid: of torch's first GPU, without ``GPU-``; None where torch does not know it.
        why: why there is no NVML.
    """

    def __init__(self, nvml: Any, uuid: str | None, why: str = "") -> None:
        self._nvml: Any = None
        self._missing: dict[str, str] = {}
        if nvml is None:
            self._missing = dict.fromkeys(_FACTS.values(), why)
            return
        try:
            nvml.nvmlInit()
            self._handle = _handle(nvml, uuid)
            self._nvml = nvml
        except nvml.NVMLError as error:
            self._missing = dict.fromkeys(_FACTS.values(), str(error))

    def reading(self) -> Reading:
        """What the GPU reports now; the rest is None, and ``missing`` says why."""
        if (nvml := self._nvml) is None:
            return Reading()
        at = self._handle
        # The older name, before NVML 12.2.
        old = "nvmlDeviceGetCurrentClocksThrottleReasons"
        reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", getattr(nvml, old, None))
        bits = self._ask("reasons", lambda: reasons(at)) if reasons else None
        power = self._ask("power_w", lambda: nvml.nvmlDeviceGetPowerUsage(at))
        return Reading(
            sm_mhz=self._ask("sm_mhz", lambda: nvml.nvmlDeviceGetClockInfo(at, nvml.NVML_CLOCK_SM)),
            memory_mhz=self._ask(
                "memory_mhz", lambda: nvml.nvmlDeviceGetClockInfo(at, nvml.NVML_CLOCK_MEM)
            ),
            temperature_c=self._ask(
                "temperature_c",
                lambda: nvml.nvmlDeviceGetTemperature(at, nvml.NVML_TEMPERATURE_GPU),
            ),
            power_w=None if power is None else power / _MILLI,
            reasons=None if bits is None else reason_names(int(bits)),
        )

    def _ask(self, fact: str, question: Callable[[], Any]) -> float | None:
        try:
            return float(question())
        except self._nvml.NVMLError as error:
            self._missing[_FACTS[fact]] = str(error)
            return None

    def missing(self) -> dict[str, str]:
        """What the GPU does not report, with the reason."""
        return dict(self._missing)

    def driver(self) -> str | None:
        """The driver's version; None where it is not known."""
        if self._nvml is None:
            return None
        with contextlib.suppress(self._nvml.NVMLError):
            return str(self._nvml.nvmlSystemGetDriverVersion())
        return None


def _handle(nvml: Any, uuid: str | None) -> Any:
    """The GPU that torch uses: ``CUDA_VISIBLE_DEVICES`` counts otherwise than NVML does."""
    if uuid:
        with contextlib.suppress(nvml.NVMLError):
            return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    return nvml.nvmlDeviceGetHandleByIndex(0)


def open_gpu(device: str) -> Gpu | None:
    """The GPU that is measured; None where the device is none."""
    if device != "cuda":
        return None
    import torch

    uuid = getattr(torch.cuda.get_device_properties(0), "uuid", None)
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return Gpu(None, None, "NVML's package is not installed: pip install nvidia-ml-py")
    return Gpu(nvml, str(uuid) if uuid else None)
