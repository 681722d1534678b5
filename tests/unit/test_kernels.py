# SPDX-License-Identifier: Apache-2.0
"""What kernels of the collection hold in common without a place to hold it in."""

from pathlib import Path

KERNELS = Path(__file__).parents[2] / "kernels"


def test_direct_h_is_one_file():
    """Each project is whole by itself, so each has a copy."""
    copies = sorted(KERNELS.glob("*/torch-ext/direct.h"))
    assert len(copies) >= 2
    assert len({copy.read_bytes() for copy in copies}) == 1
