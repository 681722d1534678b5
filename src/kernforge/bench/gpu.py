# SPDX-License-Identifier: Apache-2.0
"""What a GPU reports by NVML: its clock, and what holds the clock back.

The reasons are ``nvmlClocksEventReasons`` of nvml.h: power, heat, and faults of the hardware.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


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
        try:
            nvml.nvmlInit()
            # CUDA_VISIBLE_DEVICES counts otherwise than NVML does.
            uuid = torch.cuda.get_device_properties(0).uuid
            self._handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
            self.driver = str(nvml.nvmlSystemGetDriverVersion())
            self._nvml = nvml
        except (nvml.NVMLError, AttributeError) as error:  # a torch before 2.5 has no uuid
            self.unavailable = str(error)

    def reading(self) -> tuple[float, frozenset[str]]:
        """The clock of the multiprocessors in MHz, 0 where unknown, and what holds it back."""
        clock, bits = 0.0, 0
        if nvml := self._nvml:
            with contextlib.suppress(nvml.NVMLError):
                clock = float(nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM))
                bits = int(nvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle))
        return clock, frozenset(name for bit, name in _REASONS.items() if bits & bit)
