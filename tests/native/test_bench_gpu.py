# SPDX-License-Identifier: Apache-2.0
"""``kernforge bench`` on a GPU: all modes, the roof, and a profile."""

import json
import sys

import pytest
from support import programs

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

WORKLOADS = """
from kernforge import Tensor, Workload
WORKLOADS = [Workload(name="add", inputs=(Tensor(shape=(1 << 24,)),) * 2,
                      reference=lambda a, b: a.double() + b),
             Workload(name="mm", inputs=(Tensor(shape=(2048, 2048), dtype="bfloat16"),) * 2,
                      reference=lambda a, b: a.double() @ b.double())]
"""
CANDIDATES = """
import torch

def kernel(_module, a, b):
    return a + b if a.ndim == 1 else a @ b

def waits(a, b):
    float(a.flatten()[0])
    return kernel(None, a, b)

def twice(a, b):
    kernel(None, a, b)
    return kernel(None, a, b)

PEERS = {"waits for the GPU": waits, "twice the work": twice}
"""


def run(project, *more):
    argv = [sys.executable, "-m", "kernforge", "bench", project, "--rounds", "8"]
    return programs.run([*argv, *more])


@pytest.fixture
def project(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "workloads.py").write_text(WORKLOADS)
    (tmp_path / "benchmarks" / "candidates.py").write_text(CANDIDATES)
    return tmp_path


def test_times_are_near_the_roof_in_every_mode(project):
    done = run(project, "--device", "cuda", "--json")
    document = json.loads(done.stdout)
    assert document["machine"]["gpu"]["name"]
    for case in document["workloads"]:
        rows = {(row["candidate"], row["mode"]): row for row in case["results"]}
        for mode in ("cold", "hot", "graph"):
            kernel = rows["kernel", mode]
            assert 0.3 < kernel["roof_ns"] / kernel["median_ns"] < 1.6, (case["name"], mode)
            assert rows["twice the work", mode]["ratio"]["verdict"] == "slower"
        assert "captured" in rows["waits for the GPU", "graph"]["skipped"]


def test_profile_prints_the_kernels_of_a_call(project):
    done = run(project, "--device", "cuda", "--mode", "cold", "--workload", "mm", "--profile")
    assert "of the roof" in done.stderr
    assert "gemm" in done.stderr or "nvjet" in done.stderr or "cutlass" in done.stderr
