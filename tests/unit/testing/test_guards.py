# SPDX-License-Identifier: Apache-2.0
"""Guards around memory, and poison in new memory."""

import ctypes
import functools

import pytest
import torch

from kernforge.testing import surround, watched


@pytest.mark.parametrize(
    ("at", "where"), [(-1, "before it were written, the nearest 1 bytes away"), (12, "after it")]
)
def test_a_written_guard_is_reported_with_its_distance(at, where):
    one = surround(torch.zeros(3))
    assert not one.broken()
    one.buffer[512 + at] = 0
    assert where in one.broken()


def test_memory_of_the_c_library_holds_poison():
    libc, place = ctypes.CDLL(None), ctypes.c_void_p()
    if not hasattr(libc, "mallopt"):
        pytest.skip("the C library is not glibc")
    allocate = functools.partial(libc.posix_memalign, ctypes.byref(place), 64, 4096)
    status, _ = watched(allocate)
    held = ctypes.string_at(place.value, 4096)
    libc.free(place)
    assert (status, set(held)) == (0, {0xA5})
