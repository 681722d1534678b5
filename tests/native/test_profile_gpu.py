# SPDX-License-Identifier: Apache-2.0
"""``kernforge profile`` of a small project on the GPU, by each tool that is there.

pytest tests/native/test_profile_gpu.py
"""

import json
import subprocess
import sys

import pytest

from kernforge.bench.profiler import api
from kernforge.bench.profiler.api import ProfileRequest

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.native,
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]

WORKLOADS = """
from kernforge import Tensor, Workload

MATRIX = Tensor(shape=(4096, 4096), dtype="bfloat16")
WORKLOADS = [
    Workload(
        name="scale", inputs=("scale", Tensor(shape=(1 << 27,))), outputs=("float32",),
        reference=lambda _, x: x.double() * 2, flops=0,
    ),
    Workload(
        name="product", inputs=("product", MATRIX, MATRIX), outputs=("bfloat16",),
        reference=lambda _, a, b: a.float() @ b.float(), tolerance=0.05,
    ),
    Workload(
        name="unsigned", inputs=("scale", Tensor(shape=(1 << 20,), dtype="uint16", high=9)),
        outputs=("uint16",), reference=lambda _, x: (x.int() * 2).to(x.dtype), flops=0,
    ),
]
"""
CANDIDATES = """
import torch


def kernel(_module, what, *given):
    if what == "scale" and given[0].dtype != torch.float32:
        return (given[0].int() * 2).to(given[0].dtype)
    return given[0] * 2 if what == "scale" else given[0] @ given[1]


def left_out(what, *given):
    return NotImplemented if what == "scale" else given[0].mm(given[1])


PEERS = {"another": left_out}
"""


@pytest.fixture
def project(tmp_path):
    there = tmp_path / "project" / "benchmarks"
    there.mkdir(parents=True)
    (there / "workloads.py").write_text(WORKLOADS)
    (there / "candidates.py").write_text(CANDIDATES)
    return there.parent


def by_name(document):
    return {work["name"]: work for work in document["workloads"]}


def test_ncu_counts_what_binds_each_kernel(project):
    request = ProfileRequest(
        project=project,
        only=("scale", "product"),
        candidates=("kernel", "another"),
        tool="ncu",
    )
    try:
        document = api.run(request, print)
    except api.UsageError as error:
        pytest.skip(error.message)
    found = by_name(document)
    scale, skipped = found["scale"]["profiles"]
    (launch,) = scale["launches"]
    moved = found["scale"]["roofline"]["bytes"]
    assert moved == 1 << 30
    assert 0.85 * moved < scale["dram_bytes"] < 1.15 * moved
    assert launch["limit"]["by"] == "memory"
    assert skipped["skipped"]
    assert not skipped["launches"]
    for profile in found["product"]["profiles"]:
        launch = max(profile["launches"], key=lambda each: each["time_ns"])
        assert launch["tensor"] > 0.5
        assert launch["limit"]["by"] == "tensor"
        assert launch["registers"] > 32
        assert launch["shared_bytes"] > 1 << 15
        assert 0 < launch["warps_active"] <= launch["warps_possible"] * 1.05
    assert found["product"]["roofline"]["bound"] == "arithmetic"


def test_torch_profiler_sees_times_and_launches(project, tmp_path):
    out = tmp_path / "profile.json"
    command = ["profile", str(project), "--tool", "torch", "--workload", "scale", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "kernforge", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "no counters" in done.stdout
    (profile,) = json.loads(out.read_text())["workloads"][0]["profiles"]
    (launch,) = profile["launches"]
    # The same call, by the events of the benchmark and by CUPTI.
    assert 0.6 < launch["time_ns"] / profile["median_ns"] < 1.2
    assert profile["span_ns"] == pytest.approx(launch["time_ns"])
    assert 0.25 <= launch["warps_possible"] <= 1
    assert "dram_read" not in launch


def test_unsigned_integers_of_two_bytes_reach_the_candidates(project):
    request = ProfileRequest(project=project, only=("unsigned",), tool="torch")
    (work,) = api.run(request, print)["workloads"]
    (profile,) = work["profiles"]
    assert not profile["refused"]
    assert len(profile["launches"]) == 3  # to int32, the product, and back
