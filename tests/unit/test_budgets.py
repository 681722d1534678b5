# SPDX-License-Identifier: Apache-2.0

import pytest

from kernforge import budgets
from kernforge.budgets import Budgets
from kernforge.errors import NetworkError, UsageError
from kernforge.system.environment import Environment


@pytest.fixture(autouse=True)
def usual():
    yield
    budgets.settle(None)


def test_settings_have_names_and_units():
    found = budgets.parse("document = 128MB,members=500,, slowest=2kB ,ratio=7")
    assert found == Budgets(document=128 * 10**6, members=500, slowest=2000, ratio=7)
    assert budgets.parse(" ") == Budgets()


@pytest.mark.parametrize("text", ["document", "documents=1", "document=-1", "file=1TB", "file=x"])
def test_a_wrong_setting_is_named_with_those_that_there_are(text):
    with pytest.raises(UsageError, match="KERNFORGE_BUDGETS has") as error:
        budgets.parse(text)
    assert "names are document, text, values" in error.value.hint


def test_the_environment_of_a_process_sets_them(monkeypatch):
    monkeypatch.setenv("KERNFORGE_BUDGETS", "nesting=3")
    Environment.read()
    assert budgets.current().nesting == 3
    monkeypatch.delenv("KERNFORGE_BUDGETS")
    Environment.read()
    assert budgets.current() == Budgets()


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
