# SPDX-License-Identifier: Apache-2.0
"""What a GPU reports of its clocks, and what it does not report."""

from types import SimpleNamespace

import pytest

from kernforge.bench.engine.nvml import Gpu
from kernforge.bench.engine.samples import Reading


class NotSaidError(Exception):
    pass


def nvml(**answers):
    """A module as pynvml: what is asked for and not given here is refused."""

    def question(name):
        def ask(*_arguments):
            if name not in answers:
                raise NotSaidError("Not Supported")
            return answers[name]

        return ask

    names = ["nvmlInit", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetHandleByIndex"]
    names += ["nvmlDeviceGetClockInfo", "nvmlDeviceGetTemperature", "nvmlDeviceGetPowerUsage"]
    names += ["nvmlSystemGetDriverVersion", answers.pop("called", EVENTS)]
    constants = {"NVML_CLOCK_SM": 1, "NVML_CLOCK_MEM": 2, "NVML_TEMPERATURE_GPU": 0}
    functions = {name: question(name) for name in names}
    return SimpleNamespace(NVMLError=NotSaidError, **constants, **functions)


EVENTS = "nvmlDeviceGetCurrentClocksEventReasons"
OLDER = "nvmlDeviceGetCurrentClocksThrottleReasons"
OPEN = {"nvmlInit": None, "nvmlDeviceGetHandleByIndex": "0"}


@pytest.mark.parametrize("called", [EVENTS, OLDER])
def test_a_reading_is_in_the_units_that_it_says(called):
    said = {"nvmlDeviceGetClockInfo": 1980, "nvmlDeviceGetTemperature": 44}
    said |= {"nvmlDeviceGetPowerUsage": 129_262, called: 0x24, "called": called}
    gpu = Gpu(nvml(**OPEN, **said), None)
    assert gpu.reading() == Reading(
        sm_mhz=1980,
        memory_mhz=1980,
        temperature_c=44,
        power_w=129.262,
        reasons=frozenset({"power cap", "software thermal slowdown"}),
    )
    assert gpu.missing() == {}


def test_what_nvml_does_not_give_is_reported():
    gpu = Gpu(nvml(**OPEN, nvmlDeviceGetClockInfo=1410, nvmlSystemGetDriverVersion="580.1"), "x")
    found = gpu.reading()
    assert (found.sm_mhz, found.power_w, found.reasons) == (1410, None, None)
    assert gpu.driver() == "580.1"
    refused = ["temperature", "power", "reasons for lower clocks"]
    assert gpu.missing() == dict.fromkeys(refused, "Not Supported")


@pytest.mark.parametrize("gpu", [Gpu(None, None, "not installed"), Gpu(nvml(), None)])
def test_without_nvml_everything_is_missing_and_nothing_breaks(gpu):
    assert gpu.reading() == Reading()
    assert gpu.driver() is None
    assert len(gpu.missing()) == 5


def test_the_gpu_is_found_by_what_torch_calls_it():
    asked = []
    module = nvml(**OPEN, nvmlDeviceGetClockInfo=1)
    module.nvmlDeviceGetHandleByUUID = asked.append
    Gpu(module, "5a2-b")
    assert asked == ["GPU-5a2-b"]
