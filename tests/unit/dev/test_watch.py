# SPDX-License-Identifier: Apache-2.0
"""What a change asks for, what counts as one, and how a round is told."""

import io
import json
import os
import types
from pathlib import Path

import pytest
from rich.console import Console

from kernforge.binary import kernel_usage, occupancy
from kernforge.binary.cubin_usage import FunctionUsage
from kernforge.dev import bench as dev_bench
from kernforge.dev import build as dev_build
from kernforge.dev import report, rounds
from kernforge.dev import watch as dev_watch
from kernforge.dev.rounds import EVERYTHING, GoodBuild, QuotedDiagnostic, Round, TimeRatio
from kernforge.dev.session import DevOptions
from kernforge.dev.view import View
from kernforge.errors import StorageError
from kernforge.source.diagnostics import Diagnostic
from kernforge.testing import project_tests
from kernforge.toolchain.local_parts import NO_LOCAL_PARTS, LocalPartsOptions


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
def test_what_a_change_asks_for(files, build, tests, bench):
    found = rounds.work(files, built=True)
    assert (found.build, found.tests, found.bench) == (build, tests, bench)
    assert found.reason
    assert found.nothing == (not build and tests == () and not bench)


def test_without_a_build_a_test_needs_one():
    assert rounds.work(("tests/test_a.py",), built=False).build
    assert rounds.work(("README.md",), built=False).nothing


def test_content_counts(tmp_path):
    for name in ("k.cu", "tests/test_a.py", "build/x/k.so", ".git/index", "kernforge.lock", "a~"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    before = dev_watch.snapshot(tmp_path)
    assert set(before) == {"k.cu", "tests/test_a.py"}
    os.utime(tmp_path / "k.cu", (1, 1))
    assert dev_watch.snapshot(tmp_path) == before
    (tmp_path / "k.cu").write_text("2")
    (tmp_path / "tests" / "test_a.py").unlink()
    (tmp_path / "new.h").write_text("")
    now = dev_watch.snapshot(tmp_path)
    assert rounds.changed(before, now) == ("k.cu", "new.h", "tests/test_a.py")


def row(candidate, mode, low, median, high):
    return {
        "candidate": candidate,
        "mode": mode,
        "median_ns": median,
        "low_ns": low,
        "high_ns": high,
    }


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.h")
    (tmp_path / "nothing.h").symlink_to("nowhere")
    (tmp_path / "a.h").write_text("")
    assert list(dev_watch.snapshot(tmp_path)) == ["a.h"]


def test_a_project_that_cannot_be_watched_is_an_error(tmp_path, monkeypatch):
    def watch(*_args, **_options):
        raise OSError(28, "OS file watch limit reached")

    monkeypatch.setattr(pytest.importorskip("watchfiles"), "watch", watch)
    options = DevOptions(root=tmp_path, place=tmp_path / "place", test=False, bench=False)
    monkeypatch.setenv("KERNFORGE_HOME", str(tmp_path / "home"))
    silent = types.SimpleNamespace(state=lambda *_: None, round=lambda *_: None)
    with pytest.raises(StorageError, match=r"cannot be watched: .*limit reached"):
        dev_watch.watch(options, silent)


def test_a_ratio_that_was_told_by_rounds_is_turned_about():
    told = {"candidate": "kernel", "value": 0.5, "low": 0.4, "high": 0.625, "rounds": 6}
    rows = [row("kernel", "hot", 90, 100, 120), row("last good", "hot", 40, 50, 60)]
    rows[1]["beside"] = told | {"verdict": "faster"}
    (hot,) = dev_bench.ratios({"workloads": [{"name": "w", "results": rows}]})
    assert (hot.ratio, hot.low, hot.high) == (2.0, 1.6, 2.5)


def test_a_ratio_lies_between_the_ends_of_both_intervals():
    refused = {"candidate": "kernel", "mode": "hot", "refused": "a lie", "skipped": ""}
    case = {
        "name": "w",
        "results": [
            row("kernel", "cold", 90, 100, 120),
            row("last good", "cold", 40, 50, 60),
            refused,
        ],
    }
    cold, hot = dev_bench.ratios({"workloads": [case]})
    assert (cold.ratio, cold.low, cold.high) == (2.0, 1.5, 3.0)
    assert report.verdict(cold) == "slower"
    assert hot.refused == "a lie"
    assert (
        report.verdict(TimeRatio(workload="w", mode="hot", ratio=1.0, low=0.9, high=1.1)) == "same"
    )


@pytest.fixture
def broken():
    said = Diagnostic(file="k.cu", line=2, column=3, severity="error", message='"z" is undefined')
    return Round(
        number=2,
        files=("k.cu",),
        work=rounds.work(("k.cu",), built=True),
        diagnostics=(QuotedDiagnostic(diagnostic=said, source=("> 2 | z", "    | ^")),),
        output=(("k.cu, CUDA 13.0", "k.cu(2): error"),),
        seconds={"build": 1.5},
        exit_code=5,
    )


@pytest.fixture
def good():
    use = FunctionUsage(
        symbol="_Z1kPf",
        kernel=True,
        registers=64,
        stack=16,
        spill_stores=8,
        spill_loads=12,
        shared=1024,
        barriers=1,
        threads=256,
        required=0,
    )
    limits = occupancy.limits("9.0")
    fills = (occupancy.occupancy(limits, threads=256, registers=64, shared=1024, barriers=1),)
    tests = (
        {"test": "tests/test_a.py::test_x", "outcome": "passed", "reason": ""},
        {"test": "tests/test_a.py::test_y", "outcome": "failed", "reason": "1 != 2"},
    )
    return Round(
        number=1,
        files=(),
        work=EVERYTHING,
        tested=(
            project_tests.Tested(variant="v", where="here", tests=tests, output="", wall_s=1.0),
        ),
        kernels=(kernel_usage.Kernel(name="k(float*)", arch="9.0", use=use, fills=fills),),
        ratios=(
            TimeRatio(
                workload="w",
                mode="cold",
                median_ns=1500.0,
                low_ns=1400.0,
                high_ns=1600.0,
                before_ns=1000.0,
                ratio=1.5,
                low=1.3,
                high=1.7,
            ),
        ),
        exit_code=6,
    )


def drawn(view, size=160):
    console = Console(file=io.StringIO(), width=size, force_terminal=False)
    console.print(view._draw())
    return console.file.getvalue()


def test_the_view_shows_a_mistake_with_its_line(broken, good):
    view = View("k", Console(file=io.StringIO()))
    assert "starting" in drawn(view)
    view.state("compiling", "k.cu, CUDA 13.0")
    assert "compiling" in drawn(view)
    view.round(broken, GoodBuild(round=1, variants={}, figures={}))
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
        "1.300 and 1.700",
        "a short run",
        "waiting for a change",
    ):
        assert words in text, words


def test_a_round_is_a_line_of_json_and_plain_text(broken, good):
    for one in (broken, good):
        found = json.loads(json.dumps(report.document(one)))
        assert (found["ok"], found["exit_code"]) == (False, one.exit_code)
    text = report.text(good, None)
    assert "w, cold: 1.5 us, 1.500 of the last good build's (from 1.300 to 1.700)" in text
    assert "tests fail" in text
    assert "it cannot be built: build 1.5 s" in report.text(broken, None)
    assert json.loads(json.dumps(report.document(good)))["kernels"][0]["spill_stores"] == 8


def test_the_last_line_names_what_could_not_be_done(broken):
    for stage, word in (("test", "tested"), ("bench", "measured")):
        broken.seconds[stage] = 1.0
        assert f"it cannot be {word}: build 1.5 s" in report.text(broken, None)


def test_what_could_not_be_tested_is_not_called_good():
    work = EVERYTHING
    one = Round(number=1, files=(), work=work, untested={"v": "no GPU here"}, unread="compressed")
    assert report.text(one, None).splitlines() == [
        "round 1: the first round",
        "not read: compressed",
        "v: not tested: no GPU here",
        "built, not tested: ",
    ]


@pytest.mark.parametrize(
    ("outcome", "last"), [("skipped", "built, not tested: "), ("passed", "good: ")]
)
def test_a_round_whose_tests_were_all_skipped_is_not_called_good(outcome, last):
    tests = tuple(
        {"test": f"tests/test_a.py::test_{name}", "outcome": each, "reason": "Skipped: no GPU"}
        for name, each in (("x", "skipped"), ("y", outcome))
    )
    tested = project_tests.Tested(variant="v", where="here", tests=tests, output="", wall_s=1.0)
    untested = {"v": f"every test was skipped: {tested.idle}"} if tested.idle else {}
    one = Round(number=1, files=(), work=EVERYTHING, tested=(tested,), untested=untested)
    assert report.text(one, None).splitlines()[-1] == last
    assert bool(untested) is (outcome == "skipped")


@pytest.mark.parametrize(("exit_code", "ok"), [(0, True), (13, True), (5, False), (6, False)])
def test_skipped_tests_are_no_failure(exit_code, ok):
    assert Round(number=1, files=(), work=EVERYTHING, exit_code=exit_code).ok is ok


def test_short_names():
    name = "void a::(anonymous namespace)::k<a::(anonymous namespace)::F<float (*)(int)>, 4>(a::F*, long)"
    use = FunctionUsage(
        **dict.fromkeys(("registers", "stack", "spill_stores", "spill_loads", "shared"), 0),
        **dict.fromkeys(("barriers", "threads", "required"), 0),
        symbol="s",
        kernel=True,
    )
    one = kernel_usage.Kernel(name=name, arch="9.0", use=use, fills=())
    assert one.short == "a::k<a::F<float (*)(int)>, 4>"


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks", "limits"),
    [
        (256, 32, 0, 8, ("warps", "registers")),
        (1024, 64, 0, 1, ("registers",)),
        (128, 16, 64 << 10, 3, ("shared memory",)),
        (32, 16, 0, 32, ("blocks",)),
        (1024, 65, 0, 0, ("registers",)),
        (256, 16, 228 << 10, 0, ("shared memory",)),
    ],
)
def test_occupancy_of_hopper(threads, registers, shared, blocks, limits):
    found = occupancy.occupancy(
        occupancy.limits("9.0a"), threads=threads, registers=registers, shared=shared
    )
    assert (found.blocks, found.limits) == (blocks, limits)
    assert found.share == blocks * (threads // 32) / 64
    assert occupancy.limits("99.9") is None


def test_the_machine_is_looked_at_once_for_a_manifest(monkeypatch):
    asked = []

    def open_workspace(project, events, options, *, cxx, local_parts):
        asked.append((cxx, local_parts))
        return types.SimpleNamespace(compiler="g++", local_parts="torch")

    monkeypatch.setattr(dev_build.build_workspace, "open_workspace", open_workspace)
    project = types.SimpleNamespace(manifest=types.SimpleNamespace(content="a"))
    kept = {}
    library = LocalPartsOptions(depends={"cutlass": Path("cutlass")})
    for brought in (NO_LOCAL_PARTS, NO_LOCAL_PARTS, library):
        dev_build.open_workspace(project, None, brought, kept)
    # A library may be edited between rounds.
    assert asked == [(None, None), ("g++", "torch"), ("g++", None)]
    project.manifest.content = "b"
    dev_build.open_workspace(project, None, NO_LOCAL_PARTS, kept)
    assert asked[-1] == (None, None)
