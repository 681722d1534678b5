# SPDX-License-Identifier: Apache-2.0
"""The live view of a round."""

import io

import pytest
from rich.console import Console

from kernforge.dev.rounds import GoodBuild
from kernforge.dev.view import View


@pytest.fixture
def seen():
    """What a terminal is sent of a round and the states around it."""

    def show(one, last_good=None):
        console = Console(file=io.StringIO(), width=160, force_terminal=True, color_system=None)
        view = View(console)
        with view:
            view.state("compiling", "k.cu, CUDA 13.0")
            view.round(one, last_good)
            view.state("idle", "")
        return console.file.getvalue()

    return show


def test_the_view_shows_a_mistake_with_its_line(broken, seen):
    text = seen(broken, GoodBuild(round=1, variants={}))
    for words in (
        "compiling k.cu, CUDA 13.0",
        'k.cu:2:3: error: "z" is undefined',
        "> 2 | z",
        "the last good build stays",
        "waiting for a change",
    ):
        assert words in text, words


def test_the_view_shows_tests_machine_code_and_times(good, seen):
    text = seen(good)
    for words in (
        "1 passed, 1 failed",
        "failed: tests/test_a.py::test_y",
        "8 B out, 12 B in",
        "256: 50% (registers)",
        "1.500",
        "from 1.300 to 1.700",
        "a short run",
    ):
        assert words in text, words
