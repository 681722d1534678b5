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


def collections(objects):
    """How often the collector works while so many objects are made."""
    began = []

    def note(phase, _info):
        began.append(phase)

    gc.collect()
    gc.callbacks.append(note)
    try:
        made = [[] for _ in range(objects)]
    finally:
        gc.callbacks.remove(note)
    assert len(made) == objects
    return began.count("start")


def test_it_works_seldom_and_not_at_the_end(registered):
    assert collections(40_000) > 10
    garbage.collect_rarely()
    assert collections(40_000) == 0
    assert collections(120_000) >= 1
    assert registered == [gc.freeze]


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
