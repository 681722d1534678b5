# SPDX-License-Identifier: Apache-2.0
"""``kernforge dev`` as a process that watches a real project: edits, mistakes, interruptions."""

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from support import processes, projects

from kernforge.dev import watch

pytestmark = [pytest.mark.native, pytest.mark.torch]

CPU = "torch-stable-abi210-cpu-x86_64-linux"
TEST = """import pytest
import torch
import times_two

@pytest.mark.parametrize("n", [1, 5])
def test_twice(n):
    x = torch.arange(float(n))
    assert torch.equal(times_two.times_two(x), 2 * x)
"""
OTHER = "def test_other():\n    assert 1 == 1\n"
WORKLOADS = """from kernforge import Tensor, Workload

WORKLOADS = [
    Workload(name="small", inputs=(Tensor(shape=(1 << 16,)),), reference=lambda x: 2 * x.double()),
    Workload(name="never", inputs=(Tensor(shape=(8,)),), reference=lambda x: 2 * x.double()),
]
"""
CANDIDATES = "def kernel(module, x):\n    return module.times_two(x)\n"
# A minute of a compiler's time.
# The number is new in each run, so that the store never has the result.
ENDLESS = (
    f"// {time.time_ns()}"
    """
#include <map>
#include <string>
#include <utility>
template <size_t N> int f(int x) {
  static std::map<std::string, std::map<int, std::string>> m; m["a"][x] = "b"; return m.size() + N;
}
template <size_t... I> int all(std::index_sequence<I...>) {
  int n = 0; ((n += f<I>(1)), ...); return n;
}
int total = all(std::make_index_sequence<30000>());
"""
)
# An idle machine needs ten seconds.
WAIT_S = 300


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.fixture
def project(tmp_path):
    root = projects.write(tmp_path / "times-two")
    (root / "tests").mkdir()
    (root / "tests" / "test_twice.py").write_text(TEST)
    (root / "tests" / "test_other.py").write_text(OTHER)
    return root


@pytest.fixture
def home(kept_home, tmp_path, monkeypatch):
    """The kept store, without the files of earlier sessions of the test's projects."""
    monkeypatch.setenv("KERNFORGE_HOME", str(kept_home))

    def clean():
        for name in ("times-two", "times-two-cuda"):
            shutil.rmtree(watch.place(tmp_path / name, kept_home), ignore_errors=True)

    clean()  # A run that was killed left it, and pytest may name its directories as before.
    yield kept_home
    clean()


class Dev:
    """A running ``kernforge dev --json``."""

    def __init__(self, project: Path, home: Path, *options: str) -> None:
        argv = [sys.executable, "-m", "kernforge", "dev", str(project), "--json", *options]
        self.process = processes.start(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "KERNFORGE_HOME": str(home)},
        )
        self.rounds: queue.Queue[dict] = queue.Queue()
        self.notes: queue.Queue[str] = queue.Queue()
        self.said: list[str] = []
        self._readers = [
            threading.Thread(
                target=self._read, args=(self.process.stdout, self.rounds, json.loads)
            ),
            threading.Thread(target=self._read, args=(self.process.stderr, self.notes, self._note)),
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream, into, parse):
        for line in stream:
            into.put(parse(line))

    def _note(self, line: str) -> str:
        self.said.append(line.strip())
        return self.said[-1]

    def _get(self, of: queue.Queue, what: str):
        try:
            return of.get(timeout=WAIT_S)
        except queue.Empty:
            end = self.process.poll()
            pytest.fail(f"no {what} in {WAIT_S} s, exit code {end}; it said last: {self.said[-9:]}")

    def next(self) -> dict:
        return self._get(self.rounds, "round")

    def until(self, words: str) -> None:
        while words not in self._get(self.notes, f"note {words!r}"):
            pass

    def interrupt(self) -> tuple[int, list[psutil.Process]]:
        """Its exit code after Ctrl-C, and what it left running."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(timeout=WAIT_S)
        return code, psutil.wait_procs(children, timeout=WAIT_S)[1]

    def _close(self) -> None:
        self.process.wait()
        for reader in self._readers:
            reader.join()
        self.process.stdout.close()
        self.process.stderr.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        processes.kill_trees([self.process.pid])
        self._close()


def left_over(project):
    """Files of a session besides the last good build and the cache of pytest."""
    place = watch.place(project, Path(os.environ["KERNFORGE_HOME"]))
    return sorted(path.name for path in place.iterdir() if path.name not in {"good", "pytest"})


def test_a_session_builds_tests_and_recovers(project, home):
    with Dev(project, home, "--no-bench") as session:
        first = session.next()
        assert first["ok"], first
        assert first["tested"][0]["counts"]["passed"] == 3
        good = Path(first["last_good"]["variants"][CPU])
        assert good.is_dir()

        # A test file alone touches no other; nothing is built.
        edit(project / "tests" / "test_other.py", "1 == 1", "2 == 2")
        one = session.next()
        assert one["ok"]
        assert one["files"] == one["work"]["tests"] == ["tests/test_other.py"]
        assert one["tested"][0]["counts"]["passed"] == 1
        assert "build" not in one["seconds"]

        # The manifest alone.
        time.sleep(1)  # what was saved before the session is idle is seen without the watch
        with (project / "build.toml").open("a") as manifest:
            manifest.write("# words\n")
        told = session.next()
        assert told["ok"], told["error"] or told["failed"]
        assert told["files"] == ["build.toml"]

        # Prose and a file that is saved as it was make no round: the next one is the mistake's.
        (project / "README.md").write_text("words\n")
        os.utime(project / "times_two.cpp")
        time.sleep(1)
        edit(project / "times_two.cpp", "y[i] = 2 * x[i];", "y[i] = 2 * z[i];")
        broken = session.next()
        assert broken["exit_code"] == 5, broken
        assert broken["number"] == told["number"] + 1
        assert broken["diagnostics"], broken["output"] or broken["error"]
        (said,) = [d for d in broken["diagnostics"] if d["severity"] == "error"]
        assert (said["file"], said["line"]) == ("times_two.cpp", 3)
        assert said["source"][2] == "> 3 |   for (int64_t i = 0; i < n; ++i) y[i] = 2 * z[i];"
        assert said["source"][3].index("^") == said["source"][2].index("z[i]")
        assert broken["last_good"]["variants"][CPU] == str(good)
        assert good.is_dir()

        # It builds, and computes something else: still not good. What fails is named.
        edit(project / "times_two.cpp", "y[i] = 2 * z[i];", "y[i] = 3 * x[i];")
        wrong = session.next()
        assert (wrong["exit_code"], wrong["work"]["tests"]) == (6, None)
        assert [row["test"].rpartition("::")[2] for row in wrong["failed"]] == ["test_twice[5]"]
        assert wrong["last_good"]["round"] == told["number"]

        # A test that has nothing to do with it does not make it good: all run again.
        edit(project / "tests" / "test_other.py", "2 == 2", "3 == 3")
        other = session.next()
        assert (other["exit_code"], other["work"]["tests"]) == (6, None)
        assert other["last_good"]["round"] == told["number"]

        edit(project / "times_two.cpp", "y[i] = 3 * x[i];", "y[i] = x[i] + x[i];")
        fixed = session.next()
        assert fixed["ok"]
        assert fixed["last_good"]["round"] == fixed["number"]
        code, alive = session.interrupt()
    assert code == 130
    assert not alive
    assert left_over(project) == []


def test_a_change_ends_the_running_round(project, home):
    slow = "import time\n\ndef test_slow():\n    time.sleep(600)\n"
    with Dev(project, home, "--no-bench") as session:
        assert session.next()["ok"]
        (project / "tests" / "test_slow.py").write_text(slow)
        session.until("testing tests/test_slow.py")
        time.sleep(1)
        (project / "tests" / "test_slow.py").write_text(slow.replace("600", "0"))
        edit(project / "tests" / "test_other.py", "1 == 1", "2 == 2")
        both = session.next()
        assert both["ok"], both["error"] or both["failed"]
        assert both["work"]["tests"] == ["tests/test_other.py", "tests/test_slow.py"]

        # While a compiler runs.
        source = project / "times_two.cpp"
        before = source.read_text()
        source.write_text(before + ENDLESS)
        session.until("compiling")
        time.sleep(3)
        source.write_text(before + "// the end\n")
        start = time.monotonic()
        ended = session.next()
        assert ended["ok"], ended["error"] or ended["output"]
        assert ended["number"] > both["number"] + 1, "the round that was ended is not told"
        assert time.monotonic() - start < WAIT_S

        source.write_text(before + ENDLESS)
        session.until("compiling")
        time.sleep(3)
        code, alive = session.interrupt()
    assert code == 130
    assert not alive
    assert left_over(project) == []


@pytest.fixture
def once(kernforge_cli, home):
    """A function that gives the document of a forked ``kernforge dev --once``."""

    def call(project, *options):
        done = kernforge_cli("dev", project, "--once", "--json", *options, home=home, expect=None)
        (line,) = done.stdout.splitlines()
        told = json.loads(line)
        assert told["exit_code"] == done.returncode, done.stderr
        return told

    return call


# The same work again and again: far above the time of a copy, even on a machine that is busy.
REPEATED = """#include "times_two.h"
void times_two_cpu(const float* x, float* y, int64_t n) {
  for (int k = 0; k < TIMES; ++k) {
    for (int64_t i = 0; i < n; ++i) y[i] = 2 * x[i];
    asm volatile("" ::: "memory");
  }
}
"""


def test_a_round_measures_beside_the_last_good_build(project, home, once):
    (project / "benchmarks").mkdir()
    (project / "benchmarks" / "workloads.py").write_text(WORKLOADS)
    (project / "benchmarks" / "candidates.py").write_text(CANDIDATES)
    source = project / "times_two.cpp"
    # A busy machine may give no time.
    for _ in range(3):
        source.write_text(REPEATED.replace("TIMES", "400"))
        first = once(project, "--no-test")
        assert {row["workload"] for row in first["times"]} == {"small"}, (
            first["error"],
            first["unmeasured"],
        )
        assert {row["mode"] for row in first["times"]} == {"cold", "hot"}
        # Five times the work is slower beyond doubt.
        source.write_text(REPEATED.replace("TIMES", "2000"))
        slower = once(project, "--no-test")
        hot = next(row for row in slower["times"] if row["mode"] == "hot")
        assert hot["refused"] or hot["low_ns"] > 0
        if hot["ratio"]:
            break
    assert 1 < hot["ratio"]["low"] <= hot["ratio"]["value"] <= hot["ratio"]["high"]


def test_an_error_has_its_exit_code(project, home, once):
    edit(project / "build.toml", "version = 1", 'version = "one"')
    assert once(project, "--no-bench")["error"]["error"] == "ManifestError"
    edit(project / "build.toml", 'version = "one"', "version = 1")
    edit(project / "times_two.h", "#include <cstdint>", '#include "nowhere.h"')
    told = once(project, "--no-bench")
    assert told["exit_code"] == 5
    files = {d["file"] for d in told["diagnostics"]}
    assert "times_two.h" in files
    assert told["last_good"] is None


def test_a_round_of_skipped_tests_is_not_good(project, home, once):
    for path, mark in (("test_twice.py", "import pytest\n"), ("test_other.py", "import pytest\n")):
        source = project / "tests" / path
        text = source.read_text().removeprefix(mark)
        source.write_text(f"{mark}pytestmark = pytest.mark.skip('no such GPU')\n{text}")
    told = once(project)
    assert (told["exit_code"], told["ok"], told["error"]) == (13, True, None)
    assert told["untested"] == {CPU: "every test was skipped: no such GPU"}
    assert told["unmeasured"] == "no test ran"
    assert told["last_good"] is None
    (project / "tests" / "test_other.py").write_text(OTHER)
    told = once(project, "--no-bench")
    assert (told["exit_code"], told["untested"]) == (0, {})
    assert told["last_good"]["round"] == 1


def test_device_code_has_resources_and_diagnostics(tmp_path, home, once):
    root = projects.write(tmp_path / "times-two-cuda", backends=("cuda",))
    options = ("--variant", "*-cu130-*", "--arch", "9.0", "--no-bench")
    told = once(root, *options)
    assert told["ok"], told
    (kernel,) = told["kernels"]
    assert kernel["name"] == "times_two_kernel(float const*, float*, long)"
    assert (kernel["arch"], kernel["spill_stores"], kernel["shared"]) == ("9.0", 0, 0)
    assert 0 < kernel["registers"] <= 32
    assert [one["share"] for one in kernel["occupancy"]] == [1, 1, 1, 1]
    (why,) = told["untested"].values()
    assert why in {"no GPU here", "not for this machine"} or told["tested"]
    edit(root / "times_two.cu", "y[i] = 2 * x[i];", "y[i] = 2 * xx[i];")
    broken = once(root, *options)
    assert broken["exit_code"] == 5
    said = broken["diagnostics"][0]
    assert (said["file"], said["line"]) == ("times_two.cu", 4)
    assert 'identifier "xx" is undefined' in said["message"]
    assert said["source"][3].index("^") == said["source"][2].index("xx[i]")
