# SPDX-License-Identifier: Apache-2.0
"""What counts as a change, and the work that it needs."""

import _thread
import os
import types

import pytest

from kernforge.dev import rounds, watch as dev_watch
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


@pytest.mark.parametrize(
    ("files", "build", "tests", "bench"),
    [
        (("k.cu",), True, None, False),
        (("torch-ext/k/__init__.py",), True, None, False),
        (("reference.py", "tests/test_a.py"), True, None, False),
        (("build.toml", "benchmarks/workloads.py"), True, None, True),
        (
            ("tests/test_a.py", "tests/deep/b_test.py"),
            False,
            ("tests/test_a.py", "tests/deep/b_test.py"),
            False,
        ),
        (("tests/conftest.py", "tests/test_a.py"), False, None, False),
        (("tests/data.npy",), False, None, False),
        (("benchmarks/workloads.py",), False, (), True),
        (("README.md", "docs/x.rst", "LICENSE"), False, (), False),
    ],
)
def test_changed_files_decide_build_tests_and_bench(files, build, tests, bench):
    found = rounds.work(files, built=True, passed=True)
    assert (found.build, found.tests, found.bench) == (build, tests, bench)
    assert found.reason
    assert found.nothing == (not build and tests == () and not bench)


def test_a_changed_test_needs_a_build_that_passed():
    assert rounds.work(("tests/test_a.py",), built=False, passed=False).build
    assert rounds.work(("tests/test_a.py",), built=True, passed=False).tests is None
    assert rounds.work(("README.md",), built=False, passed=False).nothing


def test_a_change_is_a_change_of_content(tmp_path):
    for name in (
        *("k.cu", "tests/test_a.py", "build/x/k.so", ".git/index", "kernforge.lock", "a~"),
        *("venv/pyvenv.cfg", "venv/lib/torch.h"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    os.mkfifo(tmp_path / "pipe.h")
    (tmp_path / "nothing.h").symlink_to("nowhere")
    before = dev_watch.snapshot(tmp_path)
    assert set(before) == {"k.cu", "tests/test_a.py"}
    os.utime(tmp_path / "k.cu", (1, 1))
    assert dev_watch.snapshot(tmp_path) == before
    (tmp_path / "k.cu").write_text("2")
    (tmp_path / "tests" / "test_a.py").unlink()
    (tmp_path / "new.h").write_text("")
    now = dev_watch.snapshot(tmp_path)
    assert rounds.changed(before, now) == ("k.cu", "new.h", "tests/test_a.py")
