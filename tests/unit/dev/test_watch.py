# SPDX-License-Identifier: Apache-2.0
"""What counts as a change."""

import _thread
import os
import types

import pytest

from kernforge.dev import watch as dev_watch
from kernforge.dev.rounds import EVERYTHING, Round
from kernforge.dev.session import DevOptions
from kernforge.errors import StorageError
from kernforge.system.environment import Environment


@pytest.fixture
def options(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNFORGE_HOME", str(tmp_path / "home"))
    root = tmp_path / "project"
    root.mkdir()
    return DevOptions(
        root=root,
        place=tmp_path / "place",
        environment=Environment.read(),
        test=False,
        bench=False,
    )


def test_a_pipe_and_a_dangling_link_are_ignored(tmp_path):
    os.mkfifo(tmp_path / "pipe.h")
    (tmp_path / "nothing.h").symlink_to("nowhere")
    (tmp_path / "a.h").write_text("")
    assert list(dev_watch.snapshot(tmp_path)) == ["a.h"]


def test_too_few_inotify_watches_are_an_error(options, monkeypatch):
    def watch(*_args, **_options):
        raise OSError(28, "OS file watch limit reached")

    monkeypatch.setattr(pytest.importorskip("watchfiles"), "watch", watch)
    silent = types.SimpleNamespace(state=lambda *_: None, round=lambda *_: None)
    with pytest.raises(StorageError, match=r"cannot be watched: .*limit reached"):
        dev_watch.watch(options, silent)


def test_a_file_saved_before_the_watch_is_a_change(options, monkeypatch):
    def watch(*_args, stop_event, **_options):
        stop_event.wait()
        return iter(())

    source = options.root / "a.cu"
    source.write_text("first")
    changes = []

    def run(_session, number, changed, _work, _events):
        changes.append(changed)
        source.write_text("second")
        return Round(number=number, files=changed, work=EVERYTHING)

    def show(result, _good):
        if result.number == 2:
            _thread.interrupt_main()

    monkeypatch.setattr(pytest.importorskip("watchfiles"), "watch", watch)
    monkeypatch.setattr(dev_watch.Session, "run", run)
    with pytest.raises(KeyboardInterrupt):
        dev_watch.watch(options, types.SimpleNamespace(state=lambda *_: None, round=show))
    assert changes == [(), ("a.cu",)]
