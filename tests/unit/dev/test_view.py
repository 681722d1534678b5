# SPDX-License-Identifier: Apache-2.0
"""The live view of a round."""

import io

from rich.console import Console

from kernforge.dev.rounds import GoodBuild
from kernforge.dev.view import View


def drawn(view, size=160):
    console = Console(file=io.StringIO(), width=size, force_terminal=False)
    console.print(view._draw())
    return console.file.getvalue()


def test_the_view_shows_a_mistake_with_its_line(broken, good):
    view = View("k", Console(file=io.StringIO()))
    assert "starting" in drawn(view)
    view.state("compiling", "k.cu, CUDA 13.0")
    assert "compiling" in drawn(view)
    view.round(broken, GoodBuild(round=1, variants={}))
    text = drawn(view)
    assert 'k.cu:2:3: error: "z" is undefined' in text
    assert "> 2 | z" in text
    assert "the last good build stays" in text


def test_the_view_shows_tests_machine_code_and_times(good):
    view = View("k", Console(file=io.StringIO()))
    view.round(good, None)
    view.state("idle", "")
    text = drawn(view)
    for words in (
        "1 passed, 1 failed",
        "failed: tests/test_a.py::test_y",
        "8 B out, 12 B in",
        "256: 50% (registers)",
        "1.500",
        "from 1.300 to 1.700",
        "a short run",
        "waiting for a change",
    ):
        assert words in text, words
