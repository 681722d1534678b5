# SPDX-License-Identifier: Apache-2.0
"""``kernforge bench --against``: a kernel beside its published version, by real runs on the CPU."""

import json
import os
import sys

import pytest

from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry

pytestmark = pytest.mark.torch

WORKLOADS = """
from kernforge import Tensor, Workload
def sized(elements):
    return Workload(name=f"relu {elements}", inputs=(Tensor(shape=(elements,)), 2.0), size=elements,
                    reference=lambda x, alpha: x.double().relu() * alpha)
WORKLOADS = [sized(1 << 16)]
"""
CANDIDATES = """
def kernel(module, x, alpha):
    return module.relu_scale(x, alpha)
"""
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
def project(tmp_path, write_variant):
    """A project with three builds of its kernel, of which one is published as 1.0.0."""
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "workloads.py").write_text(WORKLOADS)
    (tmp_path / "benchmarks" / "candidates.py").write_text(CANDIDATES)
    for name, times in TIMES.items():
        files = {"__init__.py": KERNEL.replace("TIMES", str(times))}
        unique = f"against_{name}"
        write_variant(tmp_path / name, variant="torch-universal", unique=unique, files=files)
    publish(tmp_path / "published", DirectoryRegistry(tmp_path / "registry"), REPO, "1.0.0")
    return tmp_path


@pytest.fixture
def bench(fork_server):
    def call(project, kernel, *more):
        argv = [
            sys.executable,
            "-m",
            "kernforge",
            "bench",
            project,
            "--build-dir",
            project / kernel,
        ]
        argv += ["--device", "cpu", "--mode", "hot", "--rounds", "8", "--json"]
        argv += ["--against", f"{REPO}@1.0.0", "--registry", project / "registry", *more]
        return fork_server.run(argv, env={**os.environ, "OMP_NUM_THREADS": "1"})

    return call


def test_slower_than_published_is_an_exit_code(project, bench):
    done = bench(project, "slow", "--out", project / "slow.json")
    assert done.returncode == 6, done.stderr
    document = json.loads((project / "slow.json").read_text())
    (told,) = document["regressions"]
    assert f"{REPO}@1.0.0 takes" in told
    assert told in done.stderr
    mine, published = document["workloads"][0]["results"]
    assert mine["median_ns"] > published["median_ns"]
    assert published["checked"] > 0


def test_faster_than_published_and_than_stored_is_no_regression(project, bench):
    first = bench(project, "slow", "--out", project / "slow.json")
    assert first.returncode == 6, first.stderr
    second = bench(project, "fast", "--baseline", project / "slow.json")
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout)["regressions"] == []


def test_a_version_that_is_not_published_is_reported_before_anything_is_measured(project, bench):
    done = bench(project, "fast", "--against", f"{REPO}@7")
    assert done.returncode == 8, done.stderr
    assert "7" in done.stderr
    assert "candidates" not in done.stderr


def test_a_directory_is_measured_beside_the_kernel(project, bench):
    done = bench(project, "fast", "--against", project / "slow")
    assert done.returncode == 0, done.stderr
    rows = {row["candidate"]: row for row in json.loads(done.stdout)["workloads"][0]["results"]}
    assert rows[str(project / "slow")]["ratio"]["verdict"] == "slower"
