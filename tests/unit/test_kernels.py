# SPDX-License-Identifier: Apache-2.0
"""What kernels of the collection hold in common without a place to hold it in."""

from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[2] / "kernels"


@pytest.mark.parametrize("name", ["torch-ext/direct.h", "early.cuh"])
def test_every_copy_is_the_same(name):
    """Each project is whole by itself, so each has a copy."""
    copies = sorted(KERNELS.glob(f"*/{name}"))
    assert len(copies) >= 2
    assert len({copy.read_bytes() for copy in copies}) == 1
