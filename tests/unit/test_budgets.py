# SPDX-License-Identifier: Apache-2.0

import pytest

from kernforge import budgets
from kernforge.errors import NetworkError


def test_a_server_that_sends_too_much_is_left():
    with pytest.raises(NetworkError, match="more than the 10 bytes"):
        list(budgets.bounded(iter([b"0123", b"456789a"]), "the server", 10))


def ticking(step):
    now = -step

    def clock():
        nonlocal now
        now += step
        return now

    return clock


def test_a_server_that_drips_is_left_and_a_slow_one_is_not():
    drip = (b"x" for _ in range(100))
    with pytest.raises(NetworkError, match=r"sent 6 bytes in 30 seconds"):
        list(budgets.bounded(drip, "the server", 1000, ticking(5)))
    slow = [bytes(5000)] * 100
    assert list(budgets.bounded(slow, "the server", 10**6, ticking(5))) == slow
