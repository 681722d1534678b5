# SPDX-License-Identifier: Apache-2.0
"""``kernforge bench``: a project's two files, results, pictures, exit code, published versions."""

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

import pytest

from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry

pytestmark = pytest.mark.torch
pytest.importorskip("matplotlib")

WORKLOADS = """
from kernforge import Tensor, Workload

def sized(elements):
    return Workload(name=f"relu {elements}", inputs=(Tensor(shape=(elements,)), 2.0), size=elements,
                    reference=lambda x, alpha: x.double().relu() * alpha)

WORKLOADS = [sized(40000)]
"""
CANDIDATES = """
def kernel(_module, x, alpha):
    return x.relu() * alpha

PEERS = {"no relu": lambda x, alpha: x * alpha, "absent": lambda *_: NotImplemented}
"""
BENCH = (sys.executable, "-m", "kernforge", "bench")


def arguments(project, *more):
    return [*BENCH, project, "--device", "cpu", "--json", "--rounds", "6", "--mode", "hot", *more]


@pytest.fixture
def bench(fork_server):
    def call(project, *more):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return fork_server.run(arguments(project, *more), env=environment)

    return call


@pytest.fixture
def project(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "workloads.py").write_text(WORKLOADS)
    (tmp_path / "benchmarks" / "candidates.py").write_text(CANDIDATES)
    return tmp_path


def test_a_wrong_peer_is_refused_with_an_exit_code(project, bench):
    done = bench(project, "--out", project / "now.json")
    assert done.returncode == 6, done.stderr
    assert "relu 40000, no relu, hot: call" in done.stderr
    stored = json.loads((project / "now.json").read_text())
    (case,) = stored["workloads"]
    kernel, wrong, absent = case["results"]
    assert wrong["refused"]
    assert absent["skipped"] == "it does not compute this workload"
    assert kernel["low_ns"] <= kernel["median_ns"] <= kernel["high_ns"]
    assert case["bytes"] == 320_000
    assert stored["table"]["rows"]


def test_a_sweep_is_drawn_as_picture_and_page(project, bench):
    (project / "benchmarks" / "candidates.py").write_text(
        CANDIDATES.partition("PEERS")[0] + "PEERS = {'other': lambda x, alpha: x.relu() * alpha}\n"
    )
    pictures = [project / f"seen.{kind}" for kind in ("svg", "png", "html")]
    for path in pictures:
        done = bench(project, "--sizes", "2^8:2^12:4", "--visual", path)
        assert done.returncode == 0, done.stderr
    assert [case["size"] for case in json.loads(done.stdout)["workloads"]] == [256, 4096]
    ET.fromstring(pictures[0].read_text())  # noqa: S314 - our own picture
    assert pictures[1].read_bytes().startswith(b"\x89PNG")
    text = pictures[2].read_text()
    assert text.count("<img") == 2  # beside the kernel, and against the size
    assert "relu 4096" in text


def test_profile_says_where_the_time_goes(project):
    (project / "benchmarks" / "candidates.py").write_text(CANDIDATES.partition("PEERS")[0])
    argv = [*BENCH, project, "--device", "cpu", "--rounds", "6", "--mode", "hot", "--profile"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "relu 40000, kernel, hot: median of a call" in done.stderr
    assert "aten::relu" in done.stderr


def test_an_interrupted_run_is_written_as_partial(project):
    many = WORKLOADS.replace("[sized(40000)]", "[sized(40000 + n) for n in range(40)]")
    (project / "benchmarks" / "workloads.py").write_text(many)
    (project / "benchmarks" / "candidates.py").write_text(CANDIDATES.partition("PEERS")[0])
    out = project / "now.json"
    argv = [*BENCH, project, "--device", "cpu", "--mode", "hot", "--out", out]
    with subprocess.Popen(argv, stdout=-1, stderr=-1, text=True) as run:
        for line in run.stderr:
            if line.startswith("relu 40000: measured"):
                break
        time.sleep(0.2)
        run.send_signal(signal.SIGINT)
        shown, notes = run.communicate(timeout=300)
    assert run.returncode == 130, notes
    assert shown.startswith("PARTIAL: the run was interrupted")
    stored = json.loads(out.read_text())
    assert stored["partial"]
    assert stored["workloads"][0]["results"][0]["median_ns"] > 0


def test_an_error_of_a_benchmark_file_has_its_line(project, bench):
    path = project / "benchmarks" / "workloads.py"
    for text, message in (("\nimport nowhere_at_all\n", "line 2"), ("def (\n", "SyntaxError")):
        path.write_text(text)
        done = bench(project)
        assert done.returncode == 2
        assert message in json.loads(done.stdout)["message"]
    path.unlink()
    assert "workloads.py does not exist" in bench(project).stderr


def test_an_unbuilt_project_is_reported_before_the_measurement(project, bench):
    (project / "build.toml").write_text("")
    done = bench(project)
    assert done.returncode == 2
    assert "is not built" in json.loads(done.stdout)["message"]


# -- beside published versions ----------------------------------------------------------------

# Each so much slower than the one before that it shows in each round of a busy machine.
TIMES = {"fast": 1, "published": 10, "slow": 100}
KERNEL = """
def relu_scale(x, alpha):
    for _ in range(TIMES):
        result = (x.double().relu() * alpha).float()
    return result
"""
REPO = "owner/relu"


@pytest.fixture
def builds(project, write_variant):
    """The project with three builds of its kernel, of which one is published as 1.0.0."""
    called = "def kernel(module, x, alpha):\n    return module.relu_scale(x, alpha)\n"
    (project / "benchmarks" / "candidates.py").write_text(called)
    for name, times in TIMES.items():
        files = {"__init__.py": KERNEL.replace("TIMES", str(times))}
        unique = f"against_{name}"
        write_variant(project / name, variant="torch-universal", unique=unique, files=files)
    publish(project / "published", DirectoryRegistry(project / "registry"), REPO, "1.0.0")
    return project


@pytest.fixture
def against(bench):
    def call(builds, kernel, *more):
        published = ("--against", f"{REPO}@1.0.0", "--registry", builds / "registry")
        return bench(builds, "--build-dir", builds / kernel, *published, *more)

    return call


def test_slower_than_published_is_an_exit_code(builds, against):
    done = against(builds, "slow", "--out", builds / "slow.json")
    assert done.returncode == 6, done.stderr
    document = json.loads((builds / "slow.json").read_text())
    (slower,) = document["regressions"]
    assert f"{REPO}@1.0.0 takes" in slower
    assert slower in done.stderr
    kernel, published = document["workloads"][0]["results"]
    assert kernel["median_ns"] > published["median_ns"]
    assert published["checked"] > 0


def test_faster_than_published_and_than_a_directory_is_no_regression(builds, against):
    done = against(builds, "fast", "--against", builds / "slow")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["regressions"] == []
    rows = {row["candidate"]: row for row in document["workloads"][0]["results"]}
    assert rows[str(builds / "slow")]["ratio"]["verdict"] == "slower"
