# SPDX-License-Identifier: Apache-2.0
"""Kernels that cheat the hub's benchmark classes are refused; the honest one is not."""

import pytest
import torch
from support.variants import write_variant

from kernforge.bench.engine.workload import Settings
from kernforge.bench.hub import run

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


SIDE_STREAM = """
import torch

stream = torch.cuda.Stream()

def relu(x):
    out = torch.zeros_like(x)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        out.copy_(x.relu())
    return out
"""


def measured(root, cheats, settings):
    """What came of everyone, by name."""
    (root / "benchmarks").mkdir()
    (root / "benchmarks" / "benchmark.py").write_text(SCRIPT)
    variant, backend = f"torch-{settings.device}", settings.device
    places = {}
    for number, (name, text) in enumerate([("honest", HONEST), *cheats]):
        write_variant(
            root / name / "build",
            variant=variant,
            backend=backend,
            files={"__init__.py": text},
            unique=f"abcdef{number}",
        )
        places[str(root / name)] = name
    honest, *others = places
    document = run.run(
        run.HubBenchRequest(repo=root, kernel=honest, against=tuple(others)),
        settings,
        lambda _text: None,
    )
    (case,) = document["workloads"]
    assert case["reference"] == "apart"
    names = {**places, run.OURS: "honest", run.REFERENCE: "reference"}
    return {(names[row["candidate"]], row["mode"]): row for row in case["results"]}


def test_two_scripts_may_have_a_class_of_one_name(tmp_path, monkeypatch, fork_server):
    fork_server.fork_workers(monkeypatch)
    (tmp_path / "benchmarks").mkdir()
    for name in ("benchmark_a.py", "benchmark_b.py"):
        (tmp_path / "benchmarks" / name).write_text(SCRIPT.replace("400, 1000", "40"))
    write_variant(tmp_path / "build", variant="torch-cpu", files={"__init__.py": HONEST})
    request = run.HubBenchRequest(repo=tmp_path, kernel=str(tmp_path), reference=False)
    settings = Settings(device="cpu", modes=("hot",), least=6, most=6)
    found = run.run(request, settings, lambda _text: None)["workloads"]
    assert [(case["name"], case["script"]) for case in found] == [
        ("Relu.relu", "benchmark_a.py"),
        ("Relu.relu (benchmark_b.py)", "benchmark_b.py"),
    ]


@pytest.fixture(scope="module")
def rows(tmp_path_factory, fork_server):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        fork_server.fork_workers(patch)
        found = measured(
            tmp_path_factory.mktemp("hub"),
            [(name, text) for name, text, _ in CHEATS],
            Settings(device="cpu", modes=("hot",), least=6, most=6),
        )
    return {name: row for (name, _), row in found.items()}


@pytest.mark.parametrize("name", ["honest", "reference"])
def test_the_honest_are_timed(rows, name):
    assert rows[name]["refused"] == ""
    assert rows[name]["checked"] > 0
    assert rows[name]["median_ns"] > 0


@pytest.mark.parametrize(("name", "why"), [(name, why) for name, _, why in CHEATS])
def test_cheats_are_refused(rows, name, why):
    assert why in rows[name]["refused"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_on_the_gpu_work_on_another_stream_is_wrong_or_timed(tmp_path):
    cheats = [("elsewhere", SIDE_STREAM), ("remembers", BY_SHAPE), ("agreeing", AGREEING)]
    modes = ("cold", "hot", "launch")
    found = measured(tmp_path, cheats, Settings(device="cuda", modes=modes, least=6, most=6))
    for mode in modes:
        for name in ("honest", "reference"):
            row = found[name, mode]
            assert (row["refused"], row["skipped"]) == ("", ""), (name, mode)
            assert row["checked"] > 0
        for name in ("remembers", "agreeing"):
            assert WRONG in found[name, mode]["refused"]
        elsewhere = found["elsewhere", mode]
        # Twenty million cycles are 10 ms at 2 GHz.
        assert elsewhere["refused"] or elsewhere["median_ns"] > 5e6, mode
