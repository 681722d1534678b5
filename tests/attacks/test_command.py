# SPDX-License-Identifier: Apache-2.0
"""``kernforge bench`` from a project's two files to a result, and its exit code."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from support import processes

pytestmark = pytest.mark.torch

WORKLOADS = """
from kernforge import Tensor, Workload
WORKLOADS = [Workload(name="relu", inputs=(Tensor(shape=(40000,)), 2.0),
                      reference=lambda x, alpha: x.double().relu() * alpha)]
"""
MORE = """
MORE = [Workload(name=f"relu {n}", inputs=(Tensor(shape=(n,)), 2.0),
                 reference=lambda x, alpha: x.double().relu() * alpha)
        for n in range(40001, 40040)]
"""
CANDIDATES = """
def kernel(_module, x, alpha):
    return x.relu() * alpha

PEERS = {"no relu": lambda x, alpha: x * alpha}
"""


BENCH = (sys.executable, "-m", "kernforge", "bench")


def arguments(project, *more):
    return [*BENCH, project, "--device", "cpu", "--json", "--rounds", "6", "--mode", "hot", *more]


@pytest.fixture
def bench(fork_server):
    def call(project, *more):
        return fork_server.run(
            arguments(project, *more), env={**os.environ, "OMP_NUM_THREADS": "1"}
        )

    return call


@pytest.fixture
def project(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "workloads.py").write_text(WORKLOADS)
    (tmp_path / "benchmarks" / "candidates.py").write_text(CANDIDATES)
    return tmp_path


def test_a_wrong_peer_and_a_regression_are_reported(project, bench):
    # Here every process starts by itself, as a user's do; elsewhere they are forked.
    first = subprocess.run(
        arguments(project, "--out", project / "first.json"),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert first.returncode == 6, first.stderr
    assert "relu, no relu, hot: call" in first.stderr
    stored = json.loads((project / "first.json").read_text())
    kernel, peer = stored["workloads"][0]["results"]
    assert peer["refused"]
    assert kernel["low_ns"] <= kernel["median_ns"] <= kernel["high_ns"]
    assert stored["workloads"][0]["ceilings"]["hot"]["bytes"] == 320_000

    (project / "benchmarks" / "candidates.py").write_text(CANDIDATES.partition("PEERS")[0])
    for end in ("median_ns", "low_ns", "high_ns"):
        kernel[end] /= 20
    (project / "fast.json").write_text(json.dumps(stored))
    second = bench(project, "--baseline", project / "fast.json")
    assert second.returncode == 6, second.stderr
    assert "relu, hot: " in second.stderr

    for end in ("median_ns", "low_ns", "high_ns"):
        kernel[end] *= 20 * 20
    (project / "slow.json").write_text(json.dumps(stored))
    (project / "now.json").write_text(json.dumps(stored))
    page = ("--out", project / "now.json", "--html", project / "now.html")
    third = bench(project, "--baseline", project / "slow.json", *page)
    assert third.returncode == 0, third.stderr
    assert "Since the last run" in (project / "now.html").read_text()
    assert json.loads(third.stdout)["regressions"] == []


def is_stopped(process):
    with contextlib.suppress(psutil.NoSuchProcess):  # some live for a moment
        return process.status() == psutil.STATUS_STOPPED
    return False


def test_a_killed_judge_leaves_no_process(project):
    """Not even those that it had stopped."""
    with processes.start([*BENCH, project, "--device", "cpu"], stderr=subprocess.DEVNULL) as judge:
        seen, until = [], time.monotonic() + 300
        while not any(map(is_stopped, seen)):
            assert time.monotonic() < until
            time.sleep(0.1)
            seen = psutil.Process(judge.pid).children(recursive=True)
        judge.kill()
    assert psutil.wait_procs(seen, timeout=120)[1] == []


def test_an_interrupted_run_keeps_what_it_measured(project):
    path = project / "benchmarks" / "workloads.py"
    path.write_text(
        WORKLOADS.replace("]\n", ", *MORE]\n").replace("WORKLOADS =", MORE + "WORKLOADS =")
    )
    out = project / "now.json"
    argv = [*BENCH, project, "--device", "cpu", "--mode", "hot", "--out", out]
    argv += ["--rounds", "12", "--no-eager"]
    with subprocess.Popen(argv, stdout=-1, stderr=-1, text=True) as run:
        for line in run.stderr:
            if line.startswith("relu: measured"):
                break
        time.sleep(0.5)
        run.send_signal(signal.SIGINT)
        shown, said = run.communicate(timeout=300)
    assert run.returncode == 130, said
    assert "interrupted" in said
    assert shown.startswith("PARTIAL: the run was interrupted")
    assert "relu, hot" in shown
    stored = json.loads(out.read_text())
    assert stored["partial"]
    first = stored["workloads"][0]
    assert (first["name"], first["results"][0]["candidate"]) == ("relu", "kernel")
    assert "median_ns" in first["results"][0]


def test_what_is_missing_is_reported(tmp_path, bench):
    done = bench(tmp_path)
    assert done.returncode == 2
    assert "workloads.py does not exist" in done.stderr


def test_a_workload_file_that_cannot_be_run_is_reported_with_its_line(project, bench):
    path = project / "benchmarks" / "workloads.py"
    for text, said in (("\nimport nowhere_at_all\n", "line 2"), ("def (\n", "SyntaxError")):
        path.write_text(text)
        done = bench(project)
        assert done.returncode == 2
        assert said in json.loads(done.stdout)["message"]


def test_a_project_that_is_not_built_is_reported_before_anything_is_measured(project, bench):
    (project / "build.toml").write_text("")
    done = bench(project)
    assert done.returncode == 2
    assert "is not built" in json.loads(done.stdout)["message"]


SCRIPT = """
import torch
from kernels.benchmark import Benchmark

class Relu(Benchmark):
    def setup(self):
        self.x = torch.randn(40000, device=self.device)

    def benchmark_relu(self):
        self.out = self.kernel.relu(self.x)

    def verify_relu(self):
        return self.x.clamp(min=0)
"""


def test_a_project_with_the_hubs_classes_alone_needs_nothing_else(tmp_path, write_variant, bench):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "benchmark_relu.py").write_text(SCRIPT)
    unbuilt = bench(tmp_path)
    assert unbuilt.returncode == 2
    assert "has no build/ to measure" in unbuilt.stderr
    files = {"__init__.py": "def relu(x):\n    return x.relu()\n"}
    write_variant(tmp_path / "build", files=files)
    page = bench(tmp_path, "--html", tmp_path / "page.html")
    assert page.returncode == 2
    assert "neither a roof to draw nor sizes" in page.stderr
    done = bench(tmp_path, "--no-eager", "--out", tmp_path / "now.json")
    assert done.returncode == 0, done.stderr
    stored = json.loads((tmp_path / "now.json").read_text())
    (case,) = stored["workloads"]
    assert [row["candidate"] for row in case["results"]] == ["kernel"]
    for end in ("median_ns", "low_ns", "high_ns"):
        case["results"][0][end] /= 20
    (tmp_path / "fast.json").write_text(json.dumps(stored))
    slower = bench(tmp_path, "--no-eager", "--baseline", tmp_path / "fast.json")
    assert slower.returncode == 6
    assert "Relu.relu, hot: " in slower.stderr
