# SPDX-License-Identifier: Apache-2.0
"""``kernforge test --scheduler``: a client that sees no GPU, and workers that have it.

What was built before, here or on another machine, lies in ``kernels/relu-scale/build``.
"""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support import processes
from support.clusters import Cluster, wait_for

torch = pytest.importorskip("torch")
pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here"),
]

PROJECT = Path(__file__).parents[2] / "kernels" / "relu-scale"
BUILT = PROJECT / "build"
SOME = "views or cuda_graph or side_stream"
WRONG = """
import torch
from kernforge.testing import assert_near

def test_wrong(kernel):
    want = torch.full((3,), 5.0, dtype=torch.float64, device="cuda")
    assert_near(kernel.relu_scale(torch.full_like(want, 2.0).float(), 2.0), want, want.float())
"""
WAITS = """
import os, pathlib
import torch

def test_it_waits_the_first_time(kernel):
    x = torch.ones(1 << 20, device="cuda")
    begun = pathlib.Path({begun!r})
    if not begun.exists():
        begun.write_text(str(os.getpid()))
        while True:
            kernel.relu_scale(x)
    assert bool((kernel.relu_scale(x, 3.0) == 3.0).all())
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, kept_home):
    if not list(BUILT.glob("*-cu*")):
        pytest.skip(f"{BUILT} has no variant for CUDA")
    found = Cluster(tmp_path_factory.mktemp("farm") / "cluster", kept_home / "store" / "toolchains")
    found.add("plain")
    found.add("first", GPU=1)
    yield found
    found.close()


def client(project, *arguments):
    """``kernforge test`` where no GPU is seen, as it runs; with what is built of relu-scale."""
    argv = [sys.executable, "-m", "kernforge", "test", project, "--build-dir", BUILT]
    argv += ["--variant", "*-cu*", *arguments, "--json"]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    pipe = subprocess.PIPE
    return processes.start([*map(str, argv)], env=env, stdout=pipe, stderr=pipe, text=True)


def told(process, expect=0):
    out, err = process.communicate(timeout=300)
    assert process.returncode == expect, out + err
    (variant,) = json.loads(out)["variants"]
    return variant


def names(variant):
    return [one["test"].partition("::")[2] for one in variant["tests"]]


@pytest.fixture
def away(cluster):
    return ("--scheduler", cluster.address, "--worker-resource", "GPU=1")


@pytest.fixture
def project(tmp_path):
    """The project with one test."""

    def make(test):
        root = tmp_path / "project"
        shutil.copytree(PROJECT, root, ignore=shutil.ignore_patterns("build", "tests"))
        (root / "tests").mkdir()
        (root / "tests" / "test_it.py").write_text(textwrap.dedent(test))
        return root

    return make


def test_the_worker_runs_what_the_client_cannot(away):
    chosen = ("--pytest=-m", "--pytest=gpu", "--pytest=-k", f"--pytest={SOME}")
    here = told(client(PROJECT, *chosen), expect=13)  # nothing ran
    assert (here["where"], here["counts"]["passed"]) == ("here", 0)
    assert any("no NVIDIA GPU here" in one["reason"] for one in here["tests"])
    there = told(client(PROJECT, *chosen, *away))
    assert there["where"].startswith("tcp://")
    assert there["counts"]["passed"] >= 60
    assert there["counts"]["failed"] + there["counts"]["error"] == 0
    assert names(there) == names(here)


def test_a_failure_comes_back_with_its_words(away, project):
    variant = told(client(project(WRONG), "--pytest=-k", "--pytest=cuda", *away), expect=6)
    (one,) = [one for one in variant["tests"] if one["outcome"] == "failed"]
    assert "result[0]: got 4.0, wanted 5.0" in one["reason"]


def test_a_worker_that_is_killed_is_replaced(cluster, away, project, tmp_path):
    begun = tmp_path / "begun"
    root = project(WAITS.format(begun=str(begun)))
    process = client(root, "--pytest=-k", "--pytest=cuda", *away)
    try:
        wait_for(lambda: begun.exists() and begun.read_text(), "the test to begin on the worker")
        cluster.kill("first")
        left = Path("/proc") / begun.read_text()
        wait_for(lambda: not left.exists(), "the end of the tests that the dead worker had begun")
        cluster.add("second", GPU=1)
        assert told(process)["counts"]["passed"] == 1
    finally:
        process.kill()
