# SPDX-License-Identifier: Apache-2.0
"""Large results are compared part by part, and reported as a whole."""

import pytest
import torch

from kernforge.testing import gpu
from kernforge.testing.case import OpDeclaration, Trial
from kernforge.testing.inputs import Draw


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(gpu, "PART", 64)


def trial(op, reference=lambda x: x * 2, shape=(1000,), **options):
    declared = OpDeclaration(
        op="", reference=reference, inputs=lambda draw, shape: (draw(shape),), **options
    )
    draw = Draw(device="cpu", dtype=torch.float32)
    return Trial(declared=declared, op=op, draw=draw, shape=shape)


def twice_but_at(*places):
    def op(x):
        out = x * 2
        for place in places:
            out[place] += 1
        return out

    return op


@pytest.mark.parametrize("options", [{"elementwise": True}, {"rowwise": True}, {}])
def test_the_coordinate_is_of_the_whole_result(options):
    gpu.assert_large(trial(twice_but_at(), large=(50, 7), **options))
    with pytest.raises(AssertionError, match=r"result[ 0]*\[49, 5\]: got .*\(1 of 350 elements"):
        gpu.assert_large(trial(twice_but_at((49, 5)), large=(50, 7), **options))


def test_a_row_may_depend_on_its_whole_input_row():
    options = {"reference": lambda x: x.sum(1), "large": (50, 7), "rowwise": True}
    gpu.assert_large(trial(lambda x: x.sum(1), **options))
    with pytest.raises(AssertionError, match=r"result 0\[0\]"):
        gpu.assert_large(trial(lambda x: x.sum(1) + 1, **options))


def test_differences_of_parts_become_one_sentence():
    wrong = trial(twice_but_at(3, 149), large=(150,), elementwise=True)
    with pytest.raises(AssertionError, match=r"result 0\[3\]: .*\(2 of 150 elements differ"):
        gpu.assert_large(wrong)


def test_a_case_without_memory_is_skipped_with_its_size(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (80 * 10**9, 80 * 10**9))
    with pytest.raises(pytest.skip.Exception, match=r"needs 281475 GB of the GPU, 76 GB can"):
        gpu.skip_without_memory(trial(lambda x: x * 2, large=(2**45,), elementwise=True))
    gpu.skip_without_memory(trial(lambda x: x * 2, large=(2**10,), elementwise=True))
