# SPDX-License-Identifier: Apache-2.0
# SPDX-License-Identifier: Apache-2.0
import itertools

import pytest

from kernforge.errors import LayerError, LayerTypeError
from kernforge.layers.mapping import choose_kernel, extend_mapping
from kernforge.layers.modes import CUDAProperties, Device, KernelizeFallback, Mode, ROCMProperties

I, T, F = Mode.INFERENCE, Mode.TRAINING, Mode.FALLBACK  # noqa: E741 - short in the tables


IC, TC = I | Mode.TORCH_COMPILE, T | Mode.TORCH_COMPILE


def gpus(low, high):
    return Device("cuda", CUDAProperties(low, high))


def choice(devices, *, mode=I, device="cuda", capability=90):
    return choose_kernel(
        extend_mapping({}, {"Norm": devices}),
        "Norm",
        device=device,
        capability=capability,
        mode=mode,
    )


def test_of_equally_narrow_ranges_that_for_newer_gpus_is_taken():
    for devices in itertools.permutations([gpus(80, 90), gpus(85, 95), gpus(89, 99)]):
        assert choice({d: str(d) for d in devices}).chosen.repo == "cuda 8.9 to 9.9"


def test_without_a_gpu_only_what_asks_for_none_is_taken():
    assert choice({gpus(0, 999): "a", "cuda": "b"}, capability=None).chosen.repo == "b"
    refused = choice({gpus(0, 999): "a"}, capability=None)
    assert refused.missing is KernelizeFallback.NO_COMPATIBLE_PROPERTIES
    assert "no GPU" in refused.reason


@pytest.mark.parametrize(
    ("devices", "missing", "reason"),
    [
        ({}, "NO_DEVICE", "nothing is registered for cuda"),
        ({"cpu": "a"}, "NO_DEVICE", "nothing is registered for cuda"),
        (
            {gpus(70, 89): "a"},
            "NO_COMPATIBLE_PROPERTIES",
            "no registered range of capabilities holds 9.0",
        ),
        (
            {gpus(90, 90): {T: "a"}, "cuda": "b"},
            "NO_COMPATIBLE_MODE",
            "nothing is registered for cuda 9.0 to 9.0 that serves INFERENCE|TORCH_COMPILE",
        ),
    ],
)
def test_what_is_missing_is_named(devices, missing, reason):
    found = choice(devices, mode=IC)
    assert (found.chosen, found.missing.name, found.reason) == (None, missing, reason)


def test_each_candidate_says_what_speaks_against_it():
    devices = {
        "cpu": "1",
        gpus(70, 80): "2",
        gpus(70, 99): "3",
        gpus(90, 99): {T: "4", IC: "5", F: "6", TC: "7"},
    }
    found = {c.repo: c.reason for c in choice(devices, mode=IC).candidates}
    assert found == {
        "1": "it is for cpu, the model runs on cuda",
        "2": "it is for capability 7.0 to 8.0, not 9.0",
        "3": "the range 9.0 to 9.9 is narrower",
        "4": "a kernel for TRAINING does not serve INFERENCE|TORCH_COMPILE",
        "5": "",
        "6": "a kernel for INFERENCE|TORCH_COMPILE is preferred",
        "7": "a kernel for INFERENCE|TORCH_COMPILE is preferred",
    }


def test_registering_again_replaces_the_same_device_and_range_alone():
    one = extend_mapping({}, {"Norm": {gpus(70, 80): "a", gpus(70, 90): "b", "cpu": "c"}})
    two = extend_mapping(one, {"Norm": {gpus(70, 80): "d"}, "Act": {"cpu": "e"}})
    # Thrice the same start: a search tree that keeps equal starts on one side loses count here.
    two = extend_mapping(two, {"Norm": {gpus(70, 99): "f"}})
    two = extend_mapping(two, {"Norm": {gpus(70, 80): "g"}})
    assert sorted(r for e in two["Norm"].values() for r in e.values()) == ["b", "c", "f", "g"]
    assert [list(e.values()) for e in one["Norm"].values()] == [["a"], ["b"], ["c"]]
    assert "Act" not in one


def test_a_mapping_that_changes_later_changes_nothing_here():
    modes = {I: "a"}
    registered = extend_mapping({}, {"Norm": {"cpu": modes}})
    modes[I] = "b"
    assert registered["Norm"][Device("cpu")] == {I: "a"}


@pytest.mark.parametrize(
    ("mapping", "kind", "words"),
    [
        ({"Norm": {"gpu": "a"}}, LayerError, "Unknown device type: gpu"),
        ({"Norm": "a"}, LayerTypeError, "mapping of layer 'Norm' is 'a'"),
        ({"Norm": {3: "a"}}, LayerTypeError, "mapped for 3"),
        ({"Norm": {"cpu": {"INFERENCE": "a"}}}, LayerTypeError, "kernel for 'INFERENCE'"),
        ({"Norm": {"cpu": {Mode.TORCH_COMPILE: "a"}}}, LayerTypeError, "TORCH_COMPILE"),
        ({"Norm": {Device("cpu", 5): "a"}}, LayerTypeError, "5 are not properties"),
    ],
)
def test_a_wrong_mapping_is_refused(mapping, kind, words):
    with pytest.raises(kind, match=words):
        extend_mapping({}, mapping)


@pytest.mark.parametrize("kind", [CUDAProperties, ROCMProperties])
def test_a_range_has_whole_numbers_in_order(kind):
    assert kind(75, 75) == kind(min_capability=75, max_capability=75)
    with pytest.raises(LayerError, match=r"min_capability \(90\) must be <= max_capability"):
        kind(90, 75)
    with pytest.raises(LayerTypeError, match="'75', not an integer"):
        kind("75", 90)
