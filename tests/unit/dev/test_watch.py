# SPDX-License-Identifier: Apache-2.0
"""What a change asks for, what counts as one, and how a round is told."""

import os
import types

import pytest

from kernforge.dev import watch as dev_watch
from kernforge.dev.session import DevOptions
from kernforge.errors import StorageError
from kernforge.system.environment import Environment


def test_what_is_not_a_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.h")
    (tmp_path / "nothing.h").symlink_to("nowhere")
    (tmp_path / "a.h").write_text("")
    assert list(dev_watch.snapshot(tmp_path)) == ["a.h"]


def test_a_project_that_cannot_be_watched_is_an_error(tmp_path, monkeypatch):
    def watch(*_args, **_options):
        raise OSError(28, "OS file watch limit reached")

    monkeypatch.setattr(pytest.importorskip("watchfiles"), "watch", watch)
    options = DevOptions(
        root=tmp_path,
        place=tmp_path / "place",
        environment=Environment.read(),
        test=False,
        bench=False,
    )
    monkeypatch.setenv("KERNFORGE_HOME", str(tmp_path / "home"))
    silent = types.SimpleNamespace(state=lambda *_: None, round=lambda *_: None)
    with pytest.raises(StorageError, match=r"cannot be watched: .*limit reached"):
        dev_watch.watch(options, silent)
