# SPDX-License-Identifier: Apache-2.0
"""``kernforge bench`` beside ``kernels benchmark``: the same scripts, unchanged."""

import json
import os
import sys
from pathlib import Path

import pytest
from support.variants import contents

import kernforge
from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry

pytestmark = pytest.mark.torch
pytest.importorskip("tabulate")
pytest.importorskip("matplotlib")

REPO = "owner/toy"
KERNEL = {
    "__init__.py": """
import torch

def relu(x):
    return x.relu()

def relu_into(out, x):
    out.copy_(x.relu())
"""
}
SCRIPT = """
import torch
from kernels.benchmark import Benchmark

class Relu(Benchmark):
    seed = 42

    def setup(self):
        self.x = torch.randn(64, 1000, device=self.device)
        self.out = torch.empty_like(self.x)

    def benchmark_given(self):
        self.kernel.relu_into(self.out, self.x)

    def verify_given(self):
        return self.x.clamp(min=0)

    def setup_own(self):
        self.x = torch.randn(70000, device=self.device, dtype=torch.float16)

    def benchmark_own(self):
        self.out = self.kernel.relu(self.x)

    def verify_own(self):
        return self.x.clamp(min=0)

class Halves(Benchmark):
    def setup(self):
        self.a, self.b = torch.randn(2, 30000, device=self.device)

    def benchmark_put_together(self):
        self.c, self.d = self.kernel.relu(self.a), self.kernel.relu(self.b)

    def verify_put_together(self):
        self.out = torch.cat([self.c, self.d])
        return torch.cat([self.a.clamp(min=0), self.b.clamp(min=0)])

    def benchmark_unverified(self):
        self.kernel.relu(self.a)
"""
# Every value is so small that the client's check accepts anything.
SMALL = """
import torch
from kernels.benchmark import Benchmark

class Small(Benchmark):
    def setup(self):
        self.x = torch.rand(50000, device=self.device) * 1e-3

    def benchmark_relu(self):
        self.out = self.kernel.relu(self.x)

    def verify_relu(self):
        return self.x.clamp(min=0)
"""
SRC = Path(kernforge.__file__).parents[1]
THEIRS = "from kernels.cli import main; main()"


@pytest.fixture
def repo(tmp_path, write_variant):
    """A repository with one build in pure Python; a function that writes it."""

    def write(script=SCRIPT, kernel=KERNEL):
        root = tmp_path / "repo"
        write_variant(root / "build", files=kernel)
        (root / "benchmarks").mkdir()
        (root / "benchmarks" / "benchmark.py").write_text(script)
        return root

    return write


@pytest.fixture
def call(fork_server):
    """A Python program, forked."""

    def start(*arguments, **environ):
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SRC), **environ}
        return fork_server.run([sys.executable, *map(str, arguments)], env=env)

    return start


@pytest.fixture
def ours(call):
    quick = ("--device", "cpu", "--mode", "hot", "--rounds", "6", "--json")
    return lambda *arguments, **environ: call(
        "-m", "kernforge", "bench", *arguments, *quick, **environ
    )


@pytest.fixture
def theirs(call):
    return lambda *arguments: call(
        "-c", THEIRS, "benchmark", *arguments, "--iterations", "5", "--json"
    )


def test_scripts_of_the_client_are_measured_unchanged(repo, tmp_path, ours, theirs):
    root = repo()
    done, other = ours(root, "--visual", tmp_path / "seen.svg"), theirs(root)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "seen.svg").read_text().startswith("<?xml")
    assert other.returncode == 0, other.stderr
    rows = {each["name"]: each["results"][0] for each in json.loads(done.stdout)["workloads"]}
    assert {name: row["checked"] > 0 for name, row in rows.items()} == {
        each["workload"]: bool(each.get("verified")) for each in json.loads(other.stdout)["results"]
    }
    assert list(rows) == ["Halves.put_together", "Halves.unverified", "Relu.given", "Relu.own"]
    assert all(0 < row["low_ns"] <= row["median_ns"] <= row["high_ns"] for row in rows.values())


def test_both_clients_refuse_a_wrong_kernel(repo, ours, theirs):
    wrong = {"__init__.py": KERNEL["__init__.py"].replace("x.relu()", "x.abs()")}
    root = repo(kernel=wrong)
    other, done = theirs(root), ours(root, "--workload", "Relu.own")
    assert other.returncode == 1
    assert "Verification failed" in other.stderr
    assert done.returncode == 6, done.stderr
    assert "Relu.own, kernel, hot: call" in done.stderr


def test_zeros_within_the_client_tolerance_are_refused(repo, ours, theirs):
    zeros = {"__init__.py": "import torch\n\ndef relu(x):\n    return torch.zeros_like(x)\n"}
    root = repo(script=SMALL, kernel=zeros)
    assert theirs(root).returncode == 0
    done = ours(root)
    assert done.returncode == 6
    assert "the result is wrong at" in done.stderr


def test_a_published_kernel_is_measured_by_its_scripts(repo, tmp_path, ours):
    root, registry = repo(script=SMALL), DirectoryRegistry(tmp_path / "registry")
    scripts = {"benchmark.py": root / "benchmarks" / "benchmark.py"}
    publish(root / "build", registry, REPO, benchmarks=scripts)
    done = ours(f"{REPO}@v1", "--registry", registry.root)
    assert done.returncode == 0, done.stderr
    (case,) = json.loads(done.stdout)["workloads"]
    assert case["results"][0]["checked"]


def test_scripts_of_a_hub_need_trust(repo, hub, tmp_path, ours):
    root = repo(script=SMALL)
    script = (root / "benchmarks" / "benchmark.py").read_bytes()
    hub.add(REPO, "v1", {**contents(root / "build"), "benchmarks/benchmark.py": script})
    home = {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "hf"),
        "KERNFORGE_HOME": str(tmp_path / "home"),
    }
    for asked in ((f"{REPO}@v1",), (root, "--against", f"{REPO}@v1")):
        refused = ours(*asked, "--registry", "hf://", **home)
        assert refused.returncode == 12, refused.stderr
    done = ours(f"{REPO}@v1", "--registry", "hf://", "--trust-remote-code", **home)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["workloads"][0]["name"] == "Small.relu"


def test_what_cannot_be_measured_is_reported(repo, tmp_path, ours):
    root, registry = repo(), DirectoryRegistry(tmp_path / "registry")
    publish(root / "build", registry, REPO)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "benchmark_relu.py").write_text(SCRIPT)
    for asked, code, words in (
        ((tmp_path,), 2, "has no build/ to measure"),
        (("owner/toy",), 2, "owner/toy needs a version"),
        (("owner/toy@v1", "--registry", "nowhere"), 8, "has no kernel 'owner/toy'"),
        ((f"{REPO}@v1", "--registry", registry.root), 8, "has no benchmarks/"),
    ):
        done = ours(*asked)
        assert (done.returncode, words in done.stderr) == (code, True), done.stderr
