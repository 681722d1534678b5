# SPDX-License-Identifier: Apache-2.0
"""Kernels that cheat the hub's benchmark classes are refused; the honest one is not."""

import pytest
from unit.conftest import _write_variant

from kernforge import bench_hub
from kernforge.bench_plan import Settings

pytestmark = pytest.mark.torch

SCRIPT = """
import torch
from kernels.benchmark import Benchmark

class Relu(Benchmark):
    seed = 42

    def setup(self):
        self.x = torch.randn(400, 1000, device=self.device)

    def benchmark_relu(self):
        self.out = self.kernel.relu(self.x)

    def verify_relu(self):
        return self.x.clamp(min=0)
"""
HONEST = "def relu(x):\n    return x.relu()\n"
WRONG = "the result is wrong"
BY_SHAPE = """
known = {}

def relu(x):
    if x.shape not in known:
        known[x.shape] = x.relu()
    return known[x.shape].clone()
"""
LATER = """
import threading, torch

def relu(x):
    out = torch.zeros_like(x)
    threading.Timer(0.05, lambda: out.copy_(x.relu())).start()
    return out
"""
AGREEING = """
import torch

torch.allclose = lambda *a, **k: True
torch.Tensor.clamp = lambda self, **k: torch.zeros_like(self)

def relu(x):
    return torch.zeros_like(x)
"""
ONE_BUFFER = """
import torch

buffer = None

def relu(x):
    global buffer
    buffer = torch.empty_like(x) if buffer is None else buffer
    return buffer.copy_(x.relu())
"""
HALF = """
import torch

def relu(x):
    out = torch.zeros_like(x)
    out[:200] = x[:200].relu()
    return out
"""
# Name, source, and words of the reason.
CHEATS = [
    ("remembers-by-shape", BY_SHAPE, WRONG),
    ("computes-later", LATER, WRONG),
    ("makes-the-reference-agree", AGREEING, WRONG),
    ("one-buffer-for-all", ONE_BUFFER, "in the storage of call"),
    ("half-the-work", HALF, WRONG),
]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """What came of everyone, by name."""
    root = tmp_path_factory.mktemp("hub")
    (root / "benchmarks").mkdir()
    (root / "benchmarks" / "benchmark.py").write_text(SCRIPT)
    places = {}
    for number, (name, text, _) in enumerate([("honest", HONEST, ""), *CHEATS]):
        files = {"__init__.py": text}
        _write_variant(root / name / "build", files=files, unique=f"abcdef{number}")
        places[str(root / name)] = name
    honest, *others = places
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        document = bench_hub.run(
            bench_hub.Wanted(repo=root, kernel=honest, against=tuple(others)),
            Settings(device="cpu", modes=("hot",), least=6, most=6),
            lambda _text: None,
        )
    (case,) = document["workloads"]
    assert case["reference"] == "apart"
    names = {**places, bench_hub.OURS: "honest", bench_hub.REFERENCE: "reference"}
    return {names[row["candidate"]]: row for row in case["results"]}


@pytest.mark.parametrize("name", ["honest", "reference"])
def test_the_honest_are_timed(rows, name):
    assert rows[name]["refused"] == ""
    assert rows[name]["checked"] > 0
    assert rows[name]["median_ns"] > 0


@pytest.mark.parametrize(("name", "why"), [(name, why) for name, _, why in CHEATS])
def test_cheats_are_refused(rows, name, why):
    assert why in rows[name]["refused"]
