# SPDX-License-Identifier: Apache-2.0
import threading

from kernforge.setuptools import progress
from kernforge.system.console import Console


def test_what_goes_on_for_long_within_pip_is_shown(tmp_path, capsys):
    """pip keeps the output of a build until it ends: its lines come by a file."""
    path, seen = tmp_path / "progress", threading.Event()

    class Waiting(Console):
        def note(self, text):
            super().note(text)
            if "1 running" in text:
                seen.set()

    with progress.followed(path, Waiting()):
        inner = progress.AppendingConsole(path)
        inner._every_s = 0.01
        inner.note("building")
        inner.planned(3, dict)
        inner.started("a", "a.cu")
        assert seen.wait(60)
        inner.finished()
    lines = path.read_text().splitlines()
    assert lines[0] == "building"
    assert "  0 of 3 actions ended, 1 running: a.cu (0 s)" in lines
    assert set(lines) <= set(capsys.readouterr().err.splitlines())
