# SPDX-License-Identifier: Apache-2.0

import pytest

from kernforge.binary import occupancy


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks", "limits"),
    [
        (256, 32, 0, 8, ("warps", "registers")),
        (1024, 64, 0, 1, ("registers",)),
        (128, 16, 64 << 10, 3, ("shared memory",)),
        (32, 16, 0, 32, ("blocks",)),
        (1024, 65, 0, 0, ("registers",)),
        (256, 16, 228 << 10, 0, ("shared memory",)),
    ],
)
def test_occupancy_of_hopper(threads, registers, shared, blocks, limits):
    found = occupancy.occupancy(
        occupancy.limits("9.0a"), threads=threads, registers=registers, shared=shared
    )
    assert (found.blocks, found.limits) == (blocks, limits)
    assert found.share == blocks * (threads // 32) / 64
    assert occupancy.limits("99.9") is None
