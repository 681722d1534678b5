# SPDX-License-Identifier: Apache-2.0
import io

import pytest
from rich.console import Console
from support import graphs

from kernforge.build.execute.outcome import Done, Outcome, Spent
from kernforge.system import console as system_console
from kernforge.system.live_view import Live
from kernforge.system.process import Completed


def draw(live):
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    console.print(live._draw())
    return console.file.getvalue()


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=100, force_terminal=True)


def test_the_view_shows_what_runs_with_time_and_memory(console):
    one, two = graphs.action("one.cu", ""), graphs.action("two.cu", "")
    live = Live(7, lambda: {one.key: 2_500_000_000}, console)
    live.started(one)
    live.started(two)
    text = draw(live)
    assert "2.5 GB" in text
    assert "one.cu" in text
    live.ended(two)
    live.stop()
    text = draw(live)
    assert "two.cu" not in text
    assert "1 of 7" in text
    assert "1 running" in text


def test_many_running_actions_do_not_fill_the_screen(console):
    live = Live(50, dict, console)
    for number in range(40):
        live.started(graphs.action(f"unit{number}.cu", ""))
    live.stop()
    assert len(draw(live).splitlines()) < 15
    assert "28 of them not shown" in draw(live)


def test_a_build_with_nothing_to_do_draws_nothing(console):
    live = Live(3, dict, console)
    live.ended(graphs.action("a", ""))
    live.stop()
    assert console.file.getvalue() == ""


def test_without_a_terminal_each_long_action_is_a_line(capsys):
    said = system_console.Report()
    one = graphs.action("one.cu", "")
    said.planned(1, dict)
    said.started(one)
    done = Completed(returncode=0, stdout="", stderr="", wall_s=12.0, peak_bytes=3 * 10**9)
    said.ended(one, Done(origin="ran", completed=done, where="worker-7"))
    said.finished()
    assert capsys.readouterr().err.split() == ["12.0", "s", "3.0", "GB", "one.cu", "on", "worker-7"]


def outcome(*spent, shared=0):
    return Outcome(
        variants={},
        failures=(),
        left_out=(),
        ran=len(spent),
        reused=4,
        shared=shared,
        cpu_s=9.0,
        wall_s=5.0,
        spent=spent,
    )


def spent(title, wall_s):
    return Spent(
        title=title, key=title, start_s=0.0, wall_s=wall_s, cpu_s=1.0, peak_bytes=10**9, where=""
    )


def test_the_summary_names_the_longest_actions():
    text = system_console.spent_text(outcome(spent("long.cu", 4.0), spent("tiny", 0.01), shared=3))
    assert "2 actions ran in 5.0 s (9.0 CPU-s), 4 from the store, 3 of them from the shared" in text
    assert "long.cu" in text
    assert "tiny" not in text


def test_the_summary_for_programs_adds_up():
    document = system_console.spent_document(outcome(spent("long.cu", 4.0)))
    assert document["spent"][0]["title"] == "long.cu"
    assert (document["ran"], document["peak_bytes"]) == (1, 10**9)
