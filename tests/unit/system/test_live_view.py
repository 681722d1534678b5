# SPDX-License-Identifier: Apache-2.0
import io

import pytest
from rich.console import Console as RichConsole

from kernforge.system.console import Console
from kernforge.system.live_view import Live


def draw(live):
    console = RichConsole(file=io.StringIO(), width=100, force_terminal=False)
    console.print(live._draw())
    return console.file.getvalue()


@pytest.fixture
def console():
    return RichConsole(file=io.StringIO(), width=100, force_terminal=True)


def test_the_view_shows_what_runs_with_time_and_memory(console):
    live = Live(7, lambda: {"1": 2_500_000_000}, console)
    live.started("1", "one.cu")
    live.started("2", "two.cu")
    text = draw(live)
    assert "2.5 GB" in text
    assert "one.cu" in text
    live.ended("2")
    live.stop()
    text = draw(live)
    assert "two.cu" not in text
    assert "1 of 7" in text
    assert "1 running" in text


def test_many_running_actions_do_not_fill_the_screen(console):
    live = Live(50, dict, console)
    for number in range(40):
        live.started(str(number), f"unit{number}.cu")
    live.stop()
    assert len(draw(live).splitlines()) < 15
    assert "28 of them not shown" in draw(live)


def test_a_build_with_nothing_to_do_draws_nothing(console):
    live = Live(3, dict, console)
    live.ended("a")
    live.stop()
    assert console.file.getvalue() == ""


def test_without_a_terminal_each_long_action_is_a_line(capsys):
    said = Console()
    said.planned(2, dict)
    said.started("1", "one.cu")
    said.ended("1", "one.cu  on worker-7", seconds=12.0, peak_bytes=3 * 10**9, failed=False)
    said.ended("2", "short.cu", seconds=0.1, peak_bytes=3 * 10**9, failed=False)
    said.finished()
    assert capsys.readouterr().err.split() == ["12.0", "s", "3.0", "GB", "one.cu", "on", "worker-7"]


@pytest.mark.parametrize("wanted", [True, False])
def test_a_failure_is_reported_as_it_comes_unless_an_error_will_hold_it(capsys, wanted):
    said = Console(quiet=True, failures=wanted)
    said.ended("1", "one.cu: exit status 1", seconds=0.0, peak_bytes=0, failed=True)
    assert capsys.readouterr().err == ("one.cu: exit status 1\n" if wanted else "")
