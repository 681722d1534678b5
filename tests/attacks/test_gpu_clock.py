# SPDX-License-Identifier: Apache-2.0
"""The clock of a GPU: the gate shuts everything out, and what it measures is what events measure."""

import json
import os
import statistics
import subprocess
import sys
import time

import pytest

from kernforge.bench.engine import workload
from kernforge.bench.engine.cuda_driver import Driver
from kernforge.bench.engine.exchange import DeviceBuffer
from kernforge.bench.engine.timer import CudaTimer

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

ELEMENTS = 1 << 26
MODES = workload.modes_of("cuda")
WORKLOADS = """
from kernforge import Tensor, Workload
def sized(elements):
    return Workload(name=f"relu {elements}", inputs=(Tensor(shape=(elements,)), 2.0), size=elements,
                    reference=lambda x, alpha: x.double().relu() * alpha)
"""
CANDIDATES = """
def kernel(_module, x, alpha):
    return x.relu().mul_(alpha)

def eager(x, alpha):
    return x.relu() * alpha
"""
CHILD = """
import sys, torch
from kernforge.bench.engine import exchange
from kernforge.bench.engine.messages import BufferAddress
theirs = exchange.open_buffer(BufferAddress(size=1024, handle=sys.argv[1]))
assert theirs[:4].tolist() == [1, 2, 3, 4]
theirs[4:8].fill_(9)
torch.cuda.synchronize()
"""


@pytest.fixture(scope="module")
def timer():
    return CudaTimer()


def test_the_gate_says_what_events_say(timer):
    data = torch.randn(ELEMENTS, device="cuda")
    spent = []
    for _ in range(15):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(500_000)
        start.record()
        data.clone()
        end.record()
        end.synchronize()
        spent.append(start.elapsed_time(end) * 1e6)
    for cold in (False, True):
        gated = [timer.time(data.clone, (), cold=cold)[1] for _ in range(15)]
        assert statistics.median(gated) == pytest.approx(statistics.median(spent), rel=0.2)


def test_nothing_runs_on_any_stream_while_the_gate_is_shut(timer):
    data = torch.zeros(1 << 20, device="cuda")
    side, done = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(side):
        data.add_(1)  # the kernel is loaded now
    torch.cuda.synchronize()
    timer._gate.close(flush=False)
    with torch.cuda.stream(side):
        data.add_(1)
        done.record()
    time.sleep(0.001)
    early = done.query()
    timer._gate.open()
    torch.cuda.synchronize()
    assert not early
    assert done.query()


def test_a_call_that_waits_for_the_device_ends(timer):
    data = torch.zeros(1 << 20, device="cuda")

    def waits():
        total = data.sum().item()
        return data + total

    result, spent = timer.time(waits, ())
    assert result.sum().item() == 0.0
    assert spent > 0


def test_another_process_sees_the_same_memory():
    buffer = DeviceBuffer(Driver(), 1024)
    buffer.bytes[:4] = torch.tensor([1, 2, 3, 4], dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    argv = [sys.executable, "-c", CHILD, buffer.address.handle]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert buffer.bytes[4:8].tolist() == [9] * 4
    buffer.close()


def test_the_command_measures_all_modes_and_sizes(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "workloads.py").write_text(WORKLOADS)
    (tmp_path / "benchmarks" / "candidates.py").write_text(CANDIDATES)
    argv = [sys.executable, "-m", "kernforge", "bench", tmp_path, "--device", "cuda", "--json"]
    argv += ["--sizes", "2^10:2^26:8", "--rounds", "6", "--html", tmp_path / "page.html"]
    done = subprocess.run(argv, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["machine"]["gpu"] == torch.cuda.get_device_name(0)
    for case in document["workloads"]:
        for row in case["results"]:
            if row["mode"] == "graph-hot" and case["size"] == ELEMENTS:
                assert "do not fit into half of the L2 cache" in row["skipped"]
            else:
                assert row["low_ns"] <= row["median_ns"] <= row["high_ns"], (case["name"], row)
        assert {row["mode"] for row in case["results"]} == set(MODES)
    assert (tmp_path / "page.html").read_text().count("<figure>") == len(MODES) * 2
    small = {
        row["mode"]: row
        for row in document["workloads"][0]["results"]
        if row["candidate"] == "kernel"
    }
    assert small["graph-hot"]["in_a_row"] == 128
    assert small["graph-hot"]["median_ns"] < small["hot"]["median_ns"]
