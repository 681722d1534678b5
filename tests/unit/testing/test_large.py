# SPDX-License-Identifier: Apache-2.0
"""Large cases are judged part by part, and told as if they had been judged whole."""

import pytest
import torch

from kernforge.testing import large
from kernforge.testing.case import OpDeclaration
from kernforge.testing.inputs import Draw

PART = 64


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setitem(large.PART, "cpu", PART)
    monkeypatch.setitem(large.PART, "cuda", PART)


def declare(reference=lambda x: x * 2, **options):
    return OpDeclaration(
        op="", reference=reference, inputs=lambda draw, shape: (draw(shape),), **options
    )


def twice_but_at(*places):
    def op(x):
        out = x * 2
        for place in places:
            out[place] += 1
        return out

    return op


DRAW = Draw(device="cpu", dtype=torch.float32)


@pytest.mark.parametrize("options", [{"elementwise": True}, {"rowwise": True}, {}])
def test_the_coordinate_is_the_whole_results(options):
    declared = declare(large=(50, 7), **options)
    large.assert_large(declared, twice_but_at(), DRAW)
    with pytest.raises(AssertionError, match=r"result[ 0]*\[49, 5\]: got .*\(1 of 350 elements"):
        large.assert_large(declared, twice_but_at((49, 5)), DRAW)


def test_a_row_may_depend_on_all_of_itself():
    declared = declare(lambda x: x.sum(1), large=(50, 7), rowwise=True)
    large.assert_large(declared, lambda x: x.sum(1), DRAW)
    with pytest.raises(AssertionError, match=r"result 0\[0\]"):
        large.assert_large(declared, lambda x: x.sum(1) + 1, DRAW)


def test_every_part_is_judged_on_a_gpu_and_three_places_on_a_cpu():
    assert [p.start for p in large._parts(200, 1, "cuda")] == [0, 64, 128, 192]
    assert [p.start for p in large._parts(2**32, 1, "cpu")] == [0, 2**31 - 32, 2**32 - 64]
    assert [p.start for p in large._parts(2**29, 8, "cpu")] == [0, 2**28 - 4, 2**29 - 8]
    assert list(large._parts(10, 1, "cpu")) == [slice(0, 10)]


def test_what_parts_say_becomes_one_sentence():
    declared = declare(large=(150,), elementwise=True)
    with pytest.raises(AssertionError, match=r"result 0\[3\]: .*\(2 of 150 elements differ"):
        large.assert_large(declared, twice_but_at(3, 149), DRAW)


def test_what_does_not_fit_is_skipped_with_its_size():
    declared = declare(large=(2**45,), elementwise=True)
    with pytest.raises(pytest.skip.Exception, match=r"needs 281475 GB on cpu"):
        large.skip_without_memory(declared, lambda x: x * 2, DRAW, (1000,))
    fits = declare(large=(2**10,), elementwise=True)
    large.skip_without_memory(fits, lambda x: x * 2, DRAW, (1000,))
