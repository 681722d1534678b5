# SPDX-License-Identifier: Apache-2.0
"""What a GPU reports by NVML: its clock, its power, and what holds the clock back.

The reasons are ``nvmlClocksEventReasons`` of nvml.h. A GPU at its power limit is as fast as it can
be for long, so that limit is recorded and discards nothing; heat, a power brake and a fault of the
hardware slow it down for a while, and do.
"""

from __future__ import annotations

import contextlib
import importlib
from dataclasses import dataclass
from typing import Any

POWER_CAP = "power cap"
_REASONS = {
    0x4: POWER_CAP,
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a GPU reported after a turn; None and empty where it does not report.

    Attributes:
        sm_mhz: clock of the multiprocessors.
        power_w: power that it draws.
        reasons: what holds its clock back.
    """

    sm_mhz: float | None = None
    power_w: float | None = None
    reasons: frozenset[str] = frozenset()

    @property
    def slowed(self) -> str:
        """What slowed it down for a while; empty where nothing did."""
        return min(self.reasons - {POWER_CAP}, default="")


class Gpu:
    """torch's first GPU as NVML knows it; without NVML it reports nothing.

    Attributes:
        unavailable: why it does not report; empty where it does.
        driver: version of the driver, where it is known.
    """

    def __init__(self) -> None:
        import torch

        self.unavailable, self.driver = "", ""
        self._nvml: Any = None
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            self.unavailable = "NVML's package is not installed: pip install nvidia-ml-py"
            return
        uuid = getattr(torch.cuda.get_device_properties(0), "uuid", None)
        try:
            nvml.nvmlInit()
            # CUDA_VISIBLE_DEVICES counts otherwise than NVML does.
            self._handle = (
                nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
                if uuid
                else nvml.nvmlDeviceGetHandleByIndex(0)
            )
            self.driver = str(nvml.nvmlSystemGetDriverVersion())
            self._nvml = nvml
        except nvml.NVMLError as error:
            self.unavailable = str(error)

    def reading(self) -> Reading:
        """What it reports now; that takes milliseconds."""
        if (nvml := self._nvml) is None:
            return Reading()
        clock = power = None
        bits = 0
        # The older name, before NVML 12.2.
        old = "nvmlDeviceGetCurrentClocksThrottleReasons"
        reasons_of = getattr(
            nvml, "nvmlDeviceGetCurrentClocksEventReasons", getattr(nvml, old, None)
        )
        with contextlib.suppress(nvml.NVMLError):
            clock = float(nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM))
        with contextlib.suppress(nvml.NVMLError):
            power = nvml.nvmlDeviceGetPowerUsage(self._handle) / 1000
        with contextlib.suppress(nvml.NVMLError):
            bits = int(reasons_of(self._handle)) if reasons_of else 0
        reasons = frozenset(name for bit, name in _REASONS.items() if bits & bit)
        return Reading(sm_mhz=clock, power_w=power, reasons=reasons)
