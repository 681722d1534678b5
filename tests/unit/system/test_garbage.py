# SPDX-License-Identifier: Apache-2.0
"""Python's collector in programs that are ours alone."""

import gc

import pytest

from kernforge.cli import main
from kernforge.system import garbage


@pytest.fixture
def registered(monkeypatch):
    """What is to be done when the process ends; its collector works as before after the test."""
    before, found = gc.get_threshold(), []
    monkeypatch.setattr(garbage.atexit, "register", found.append)
    yield found
    gc.set_threshold(*before)


def test_a_command_is_a_program_of_its_own_and_who_calls_it_is_not(registered, monkeypatch):
    before = gc.get_threshold()
    with pytest.raises(SystemExit):
        main.main(["--version"])
    assert (gc.get_threshold(), registered) == (before, [])
    monkeypatch.setattr("sys.argv", ["kernforge", "--version"])
    with pytest.raises(SystemExit):
        main.main()
    assert gc.get_threshold()[0] > before[0]
    assert registered == [gc.freeze]
