# SPDX-License-Identifier: Apache-2.0
"""Progress: a line that is updated on a terminal, and without one a line from time to time."""

import io
import sys
import threading

import pytest

from kernforge.system import console
from kernforge.system.console import EVERY_S


class Said:
    """Lines that were printed; another thread prints them."""

    def __init__(self, enough=2):
        self.lines = []
        self._enough, self._done = enough, threading.Event()

    def __call__(self, text):
        self.lines.append(text)
        if len(self.lines) >= self._enough:
            self._done.set()

    def wait(self):
        assert self._done.wait(60)


def test_a_build_without_a_terminal_prints_lines_and_a_quiet_one_none(capsys, monkeypatch):
    assert EVERY_S == 10
    for quiet in (False, True):
        said = Said()
        one = console.Console(quiet=quiet, every_s=0.001)
        monkeypatch.setattr(console, "write", said)
        one.planned(3)
        one.started("a", "a.cu")
        if not quiet:
            said.wait()
        one.finished()
        assert bool(said.lines) is not quiet
    assert not capsys.readouterr().err


@pytest.mark.parametrize("quiet", [False, True])
def test_long_work_says_that_it_goes_on(quiet, monkeypatch):
    said = Said(enough=3)
    one = console.Console(quiet=quiet, every_s=0.001)
    monkeypatch.setattr(console, "write", said)
    with one.working("testing it"):
        if not quiet:
            said.wait()
    assert bool(said.lines) is not quiet
    assert said.lines[:1] == ([] if quiet else ["testing it\n"])


def test_a_download_without_a_terminal_has_a_line_every_ten_seconds(capsys):
    advance = console.Console().fetching("a.whl", 10**8)
    advance(10**6)
    assert capsys.readouterr().err == "fetching a.whl (100 MB)\n"
    advance = console.Console(every_s=0).fetching("a.whl", 10**8)
    advance(10**6)
    assert capsys.readouterr().err == "fetching a.whl (100 MB)\n  a.whl: 1.0 of 100 MB\n"


def test_the_line_on_a_terminal_names_what_runs_for_longest(monkeypatch):
    said, terminal = Said(), io.StringIO()
    terminal.isatty = lambda: True
    terminal.write = said
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "200")
    live = console.Console()
    live.planned(7)
    for number in range(5):
        live.started(str(number), f"unit{number}.cu")
    live.ended("4", "unit4.cu", seconds=0.1, peak_bytes=0, failed=False)
    said.wait()
    live.note("a note")
    live.finished()
    line = "1 of 7 actions ended, 4 running: unit0.cu (0 s), unit1.cu (0 s), unit2.cu (0 s), 1 more"
    assert f"\r\x1b[K  {line}" in said.lines
    assert "\r\x1b[Ka note\n" in said.lines
    assert said.lines[-1] == "\r\x1b[K"


def test_without_a_terminal_each_long_action_is_a_line(capsys):
    said = console.Console()
    said.planned(2)
    said.started("1", "one.cu")
    said.ended("1", "one.cu  on worker-7", seconds=12.0, peak_bytes=3 * 10**9, failed=False)
    said.ended("2", "short.cu", seconds=0.1, peak_bytes=3 * 10**9, failed=False)
    said.finished()
    assert capsys.readouterr().err.split() == ["12.0", "s", "3.0", "GB", "one.cu", "on", "worker-7"]


@pytest.mark.parametrize("wanted", [True, False])
def test_a_failure_is_reported_as_it_comes_unless_an_error_will_hold_it(capsys, wanted):
    said = console.Console(quiet=True, failures=wanted)
    said.ended("1", "one.cu: exit status 1", seconds=0.0, peak_bytes=0, failed=True)
    assert capsys.readouterr().err == ("one.cu: exit status 1\n" if wanted else "")
