# SPDX-License-Identifier: Apache-2.0
import re

import pytest

from kernforge.artifact.gpu import Arch
from kernforge.artifact.version import Version2
from kernforge.errors import ManifestError, UsageError
from kernforge.toolchain import cuda_arch


@pytest.mark.parametrize("text", ["9", "sm_90", "9.0b", "9.0+ptx", "", "9.0.1"])
def test_what_is_not_an_architecture_is_refused(text):
    with pytest.raises(ManifestError, match="is not a CUDA compute capability"):
        Arch.parse(text)


def names(found):
    return [str(one) for one in found]


@pytest.mark.parametrize(
    ("wanted", "toolkit", "expected"),
    [
        # The case of the reference builder's relu-archs-subset example.
        (["5.0", "7.5", "8.0", "9.0"], Version2(12, 6), ["7.5", "8.0", "9.0"]),
        (["5.0", "7.5", "8.0", "9.0"], Version2(13, 0), ["7.5", "8.0", "9.0"]),
        (["9.0a", "8.0"], Version2(13, 0), ["8.0", "9.0a"]),
        (["9.0", "9.0a"], Version2(13, 0), ["9.0a"]),
        (["8.0"], Version2(13, 0), ["8.0"]),
        (["8.0+PTX"], Version2(13, 0), ["8.0+PTX"]),
        (["10.0f", "9.0"], Version2(13, 0), ["9.0", "10.0f"]),
        # nvcc 13 compiles nothing before 7.5.
        (["7.0", "8.0"], Version2(13, 0), ["7.5", "8.0"]),
        (["5.0+PTX", "8.0"], Version2(13, 2), ["7.5+PTX", "8.0"]),
        (["6.0+PTX"], Version2(13, 0), ["7.5+PTX"]),
        (["6.0+PTX", "7.5"], Version2(13, 0), ["7.5+PTX"]),
        (["7.0"], Version2(12, 8), ["7.0"]),
        # PTX that is named stays, whatever else has its number.
        (["8.0+PTX", "8.0"], Version2(13, 0), ["8.0+PTX"]),
        (["9.0a+PTX", "9.0a"], Version2(13, 0), ["9.0a+PTX"]),
        (["12.0a", "12.0+PTX"], Version2(12, 8), ["12.0+PTX", "12.0a"]),
    ],
)
def test_the_loose_intersection(wanted, toolkit, expected):
    assert names(cuda_arch.choose(wanted, toolkit)) == expected


def test_nothing_left_is_an_error_that_names_what_there_is():
    with pytest.raises(ManifestError, match="empty set of capabilities") as caught:
        cuda_arch.choose(["10.0f"], Version2(12, 6))
    assert "9.0" in caught.value.hint


def test_without_a_wish_the_toolkit_decides():
    assert names(cuda_arch.choose(None, Version2(13, 2)))[-1] == "12.1+PTX"
    assert names(cuda_arch.choose(None, Version2(12, 9)))[-1] == "12.0+PTX"
    assert names(cuda_arch.choose(None, Version2(12, 6)))[0] == "7.0"


@pytest.mark.parametrize(
    ("chosen", "only", "expected"),
    [
        (["8.0", "9.0"], [], ["8.0", "9.0"]),
        (["8.0", "9.0", "12.0+PTX"], ["9.0"], ["9.0"]),
        (["8.0", "9.0a"], ["9.0"], ["9.0a"]),
        (["8.0", "9.0"], ["8.6", "9.0"], ["8.0", "9.0"]),
        (["8.0", "9.0"], ["8.0+PTX"], ["8.0+PTX"]),
        (["8.0", "9.0"], ["8.0", "8.6+PTX"], ["8.0+PTX"]),
        (["8.0+PTX", "9.0"], ["8.0"], ["8.0+PTX"]),
        (["7.5+PTX", "8.0+PTX"], ["9.0"], ["8.0+PTX"]),  # the driver compiles its PTX
        (["9.0", "9.0a"], ["9.0+PTX"], ["9.0+PTX", "9.0a"]),
        (["9.0a"], ["9.0a+PTX"], ["9.0a+PTX"]),  # as torch does
        (["10.0f", "12.0"], ["10.3"], ["10.0f"]),  # of its family
        (["9.0a", "10.0a"], ["9.0+PTX"], ["9.0a"]),
        (["10.0a", "11.0"], ["9.0"], ["10.0a", "11.0"]),  # serves none: as it was
    ],
)
def test_a_build_narrowed_to_some_gpus(chosen, only, expected):
    found = cuda_arch.narrow(tuple(map(Arch.parse, chosen)), tuple(map(Arch.parse, only)))
    assert names(found) == expected


@pytest.mark.parametrize(
    ("chosen", "only", "problem"),
    [
        (["9.0a"], "9.1", "serves a GPU of capability"),
        (["8.6"], "8.0", "serves a GPU of capability"),
        (["8.0"], "9.0", "serves a GPU of capability"),
        (["10.0f+PTX"], "12.0", "serves a GPU of capability"),
        (["8.0", "9.0a"], "9.0+PTX", "--arch 9.0+PTX: no architecture of 8.0, 9.0a has PTX"),
        (["10.0f"], "10.0a+PTX", "10.0f is for its own GPUs alone"),
    ],
)
def test_narrowing_to_what_nothing_serves_is_an_error(chosen, only, problem):
    archs = tuple(map(Arch.parse, chosen))
    with pytest.raises(ManifestError, match=re.escape(problem)):
        cuda_arch.require(archs, (Arch.parse(only),))


def test_what_can_have_ptx_is_not_refused():
    archs = tuple(map(Arch.parse, ["8.0", "9.0", "9.0a"]))
    cuda_arch.require(archs, (Arch.parse("8.6+PTX"), Arch.parse("9.0+PTX")))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("9.0", "9.0"),
        ("9.0; 8.0+PTX", "8.0+PTX 9.0"),
        ("9.0;9.0+PTX", "9.0+PTX"),
        (" Hopper 9.0a", "9.0+PTX 9.0a"),
        ("Ampere", "8.0 8.6+PTX"),
    ],
)
def test_a_list_as_torchs_loader_reads_it(text, found):
    assert " ".join(map(str, cuda_arch.listed(text))) == found


@pytest.mark.parametrize("text", ["9", "hopper", "8.0,9.0", "8.0 9.0A", "9.0+ptx", ";", "all"])
def test_what_is_not_a_list_is_refused_with_what_to_write(text):
    with pytest.raises(UsageError, match="TORCH_CUDA_ARCH_LIST is ") as told:
        cuda_arch.listed(text)
    assert "write it like '8.0;9.0+PTX'" in told.value.hint
