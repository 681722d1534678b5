# SPDX-License-Identifier: Apache-2.0
import itertools

import pytest

from kernforge import CUDAProperties, Device, Mode, ROCMProperties, use_kernel_mapping
from kernforge.errors import LayerError, LayerTypeError
from kernforge.layers.mapping import choose_kernel, extend_mapping

I, T, F = Mode.INFERENCE, Mode.TRAINING, Mode.FALLBACK  # noqa: E741 - short in the tables
CUDA, NONE, IC_ = "registered for cuda", "nothing is registered for cuda", "INFERENCE|TORCH_COMPILE"
IC, TC = I | Mode.TORCH_COMPILE, T | Mode.TORCH_COMPILE


class Named(str):
    """A repository that is its name."""

    __slots__ = ()
    load = None


def extended(registered, mapping):
    """As ``extend_mapping``; texts become repositories."""

    def named(value):
        return {k: named(v) for k, v in value.items()} if isinstance(value, dict) else Named(value)

    return extend_mapping(registered, named(mapping))


def gpus(low, high):
    return Device("cuda", CUDAProperties(low, high))


def choice(devices, *, mode=IC, capability=90):
    registered = extended({}, {"Norm": devices})
    return choose_kernel(registered, "Norm", device="cuda", capability=capability, mode=mode)


def test_of_equally_narrow_ranges_the_newest_gpus_win():
    for devices in itertools.permutations([gpus(80, 90), gpus(85, 95), gpus(89, 99)]):
        assert choice({d: str(d) for d in devices}).repo == "cuda 8.9 to 9.9"


ALL, MANY = {gpus(0, 999): "a"}, {T: "b", IC: "c", F: "d", TC: "e"}
NEEDS_A_GPU = "every registered range of capabilities needs a GPU, and torch sees none"


@pytest.mark.parametrize(
    ("devices", "capability", "repo", "reason"),
    [
        ({}, 90, None, "nothing is registered for cuda"),
        ({gpus(70, 89): "a"}, 90, None, "no registered range of capabilities contains 9.0"),
        ({gpus(90, 90): {T: "a"}, "cuda": "b"}, 90, None, f"{NONE} 9.0 to 9.0 that serves {IC_}"),
        ({gpus(70, 80): "a", gpus(70, 99): "b"}, 90, "b", f"{CUDA} 7.0 to 9.9 FALLBACK"),
        ({"cuda": "a", gpus(90, 99): MANY}, 90, "c", f"{CUDA} 9.0 to 9.9 {IC_}"),
        ({**ALL, "cuda": "b"}, None, "b", f"{CUDA} FALLBACK"),
        (ALL, None, None, NEEDS_A_GPU),
    ],
)
def test_the_choice_and_its_reason(devices, capability, repo, reason):
    result = choice(devices, capability=capability)
    assert (result.repo, result.reason) == (repo, reason)


def test_registering_again_replaces_the_same_device_and_range_alone():
    one = extended({}, {"Norm": {gpus(70, 80): "a", gpus(70, 90): "b", "cpu": "c"}})
    two = extended(one, {"Norm": {gpus(70, 80): "d"}, "Act": {"cpu": "e"}})
    # Thrice the same start: a search tree that keeps equal starts on one side loses count here.
    two = extended(two, {"Norm": {gpus(70, 99): "f"}})
    two = extended(two, {"Norm": {gpus(70, 80): "g"}})
    assert sorted(r for e in two["Norm"].values() for r in e.values()) == ["b", "c", "f", "g"]
    assert [list(e.values()) for e in one["Norm"].values()] == [["a"], ["b"], ["c"]]
    assert "Act" not in one


def test_dropped_modes_are_logged(caplog):
    """As in the client, the later mapping of a device counts alone."""
    one = extended({}, {"Norm": {"cpu": {T: "a", F: "b"}, "cuda": "c"}})
    two = extended(one, {"Norm": {"cpu": {T: "d"}, "cuda": "e"}})
    assert two["Norm"][Device("cpu")] == {T: "d"}
    (record,) = caplog.records
    assert "mapping of layer Norm for cpu drops its kernel for FALLBACK" in record.getMessage()


def test_later_changes_of_a_mapping_are_ignored():
    modes = {I: "a"}
    registered = extended({}, {"Norm": {"cpu": modes}})
    modes[I] = "b"
    assert registered["Norm"][Device("cpu")] == {I: "a"}


@pytest.mark.parametrize(
    ("mapping", "kind", "words"),
    [
        ({"Norm": {"gpu": "a"}}, LayerError, "Unknown device type: gpu"),
        ({"Norm": "a"}, LayerTypeError, "mapping of layer 'Norm' is 'a'"),
        ({"Norm": {3: "a"}}, LayerTypeError, "mapped for 3"),
        ({"Norm": {"cpu": None}}, LayerTypeError, "'Norm' is mapped for cpu to None, which is not"),
        ({"Norm": {"cpu": {I: "o/n"}}}, LayerTypeError, "to 'o/n', which is not a repository"),
        ({"Norm": {"cpu": {"INFERENCE": "a"}}}, LayerTypeError, "the mode 'INFERENCE'"),
        ({"Norm": {"cpu": {Mode.TORCH_COMPILE: "a"}}}, LayerTypeError, "TORCH_COMPILE"),
    ],
)
def test_a_wrong_mapping_is_refused(mapping, kind, words):
    with pytest.raises(kind, match=words), use_kernel_mapping(mapping):
        pytest.fail("the block was entered")


@pytest.mark.parametrize("kind", [CUDAProperties, ROCMProperties])
def test_a_range_has_whole_numbers_in_order(kind):
    assert kind(75, 75) == kind(min_capability=75, max_capability=75)
    with pytest.raises(LayerError, match=r"min_capability \(90\) must be <= max_capability"):
        kind(90, 75)
