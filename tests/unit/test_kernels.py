# SPDX-License-Identifier: Apache-2.0
"""What kernels of the collection hold in common without a place to hold it in."""

import re
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[2] / "kernels"


@pytest.mark.parametrize("name", ["torch-ext/direct.h", "early.cuh"])
def test_every_copy_is_the_same(name):
    """Each project is whole by itself, so each has a copy."""
    copies = sorted(KERNELS.glob(f"*/{name}"))
    assert len(copies) >= 2
    assert len({copy.read_bytes() for copy in copies}) == 1


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*/early.cuh")), ids=lambda p: p.parent.name)
def test_kernels_that_are_launched_early_wait(path):
    """No test of values can see it: without the wait they come out right nearly always."""
    for source in path.parent.glob("*.cu"):
        text = source.read_text()
        bodies = re.findall(r"__global__[^{;]*\{(.*?)\n\}", text, re.DOTALL)
        assert len(bodies) == text.count("__global__")
        for body in bodies:
            before = body.partition("early::wait();")[0]
            assert before != body, "a kernel does not wait"
            assert "[" not in before.replace("[kPacks]", ""), "memory is read before the wait"
        assert "<<<" not in text, "a launch is not early::launch"
        assert "__ldg" not in text
        assert not re.search(r"const \w+\* __restrict__", text), "a read may be moved"
