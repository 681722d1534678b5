# SPDX-License-Identifier: Apache-2.0
"""``kernforge bench``: a project's two files, results, published versions, the client's scripts."""

import json
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

import pytest
from support.programs import run
from support.variants import contents

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

def medium(x, alpha):
    torch.set_float32_matmul_precision("medium")
    torch.set_num_threads(2)
    return x.relu() * alpha

def watch(x, alpha):
    assert (torch.get_num_threads(), torch.get_default_dtype()) == (1, torch.float32)
    return x.relu() * alpha

import torch
torch.set_default_dtype(torch.float64)
PEERS = {"no relu": lambda x, alpha: x * alpha, "absent": lambda *_: NotImplemented,
         "medium": medium, "watch": watch}
"""
BENCH = ("-m", "kernforge", "bench")
HOT = ("--device", "cpu", "--rounds", "6", "--mode", "hot")


@pytest.fixture
def bench(forked):
    def call(project, *more, **options):
        return forked(*BENCH, project, *HOT, "--json", *more, OMP_NUM_THREADS="1", **options)

    return call


@pytest.fixture
def project(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "workloads.py").write_text(WORKLOADS)
    (tmp_path / "benchmarks" / "candidates.py").write_text(CANDIDATES)
    return tmp_path


def test_a_wrong_peer_is_refused_with_an_exit_code(project, bench):
    done = bench(project, "--out", project / "now.json", expect=6)
    assert "relu 40000, no relu, hot: call" in done.stderr
    stored = json.loads((project / "now.json").read_text())
    (case,) = stored["workloads"]
    kernel, wrong, absent, medium, watch = case["results"]
    assert wrong["refused"]
    assert "benchmarks/candidates.py changed settings of torch" in done.stderr
    assert "default_dtype: torch.float32 -> torch.float64" in done.stderr
    assert "medium changed settings of torch" in medium["changed"]
    assert "float32_matmul_precision: highest -> medium" in medium["changed"]
    assert [each["changed"] for each in (kernel, watch)] == ["", ""]
    assert not watch["refused"]
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
    assert [case["size"] for case in json.loads(done.stdout)["workloads"]] == [256, 4096]
    ET.fromstring(pictures[0].read_text())  # noqa: S314 - our own picture
    assert pictures[1].read_bytes().startswith(b"\x89PNG")
    text = pictures[2].read_text()
    assert text.count("<img") == 2  # beside the kernel, and against the size
    assert "relu 4096" in text


def test_profile_says_where_the_time_goes(project):
    (project / "benchmarks" / "candidates.py").write_text(CANDIDATES.partition("PEERS")[0])
    done = run((sys.executable, *BENCH, project, *HOT, "--profile"))
    assert "relu 40000, kernel, hot: median of a call" in done.stderr
    assert "aten::relu" in done.stderr


def test_an_interrupted_run_is_written_as_partial(project):
    many = WORKLOADS.replace("[sized(40000)]", "[sized(40000 + n) for n in range(40)]")
    (project / "benchmarks" / "workloads.py").write_text(many)
    (project / "benchmarks" / "candidates.py").write_text(CANDIDATES.partition("PEERS")[0])
    out = project / "now.json"
    argv = [sys.executable, *BENCH, project, "--device", "cpu", "--mode", "hot", "--out", out]
    with subprocess.Popen(argv, stdout=-1, stderr=-1, text=True) as process:
        for line in process.stderr:
            if line.startswith("relu 40000: measured"):
                break
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        shown, notes = process.communicate(timeout=300)
    assert process.returncode == 130, notes
    assert shown.startswith("PARTIAL: the run was interrupted")
    stored = json.loads(out.read_text())
    assert stored["partial"]
    assert stored["workloads"][0]["results"][0]["median_ns"] > 0


def test_an_error_of_a_benchmark_file_has_its_line(project, bench):
    path = project / "benchmarks" / "workloads.py"
    for text, message in (("\nimport nowhere_at_all\n", "line 2"), ("def (\n", "SyntaxError")):
        path.write_text(text)
        assert message in json.loads(bench(project, expect=2).stdout)["message"]
    path.unlink()
    assert "workloads.py does not exist" in bench(project, expect=2).stderr
    (project / "build.toml").write_text("")  # before a file is read, and a time measured
    assert "is not built" in json.loads(bench(project, expect=2).stdout)["message"]


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
    def call(builds, kernel, *more, expect):
        published = ("--against", f"{REPO}@1.0.0", "--registry", builds / "registry")
        return bench(builds, "--build-dir", builds / kernel, *published, *more, expect=expect)

    return call


def test_slower_than_published_is_an_exit_code(builds, against):
    done = against(builds, "slow", "--out", builds / "slow.json", expect=6)
    document = json.loads((builds / "slow.json").read_text())
    (slower,) = document["regressions"]
    assert f"{REPO}@1.0.0 takes" in slower
    assert slower in done.stderr
    kernel, published = document["workloads"][0]["results"]
    assert kernel["median_ns"] > published["median_ns"]
    assert published["checked"] > 0


def test_faster_than_published_and_than_a_directory_is_no_regression(builds, against):
    done = against(builds, "fast", "--against", builds / "slow", expect=0)
    document = json.loads(done.stdout)
    assert document["regressions"] == []
    rows = {row["candidate"]: row for row in document["workloads"][0]["results"]}
    assert rows[str(builds / "slow")]["ratio"]["verdict"] == "slower"


# -- scripts of ``kernels benchmark``, unchanged, beside that command ----------------------------

TOY = {
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
THEIRS = "import sys; from kernels.cli import main; sys.argv.insert(1, 'benchmark'); main()"


@pytest.fixture
def repo(tmp_path, write_variant):
    """A repository with one build in pure Python; a function that writes it."""

    def write(script=SCRIPT, kernel=TOY):
        root = tmp_path / "repo"
        write_variant(root / "build", variant="torch-universal", files=kernel)
        (root / "benchmarks").mkdir()
        (root / "benchmarks" / "benchmark.py").write_text(script)
        return root

    return write


@pytest.fixture
def theirs(forked):
    """The command of the client."""
    pytest.importorskip("tabulate")
    torch = pytest.importorskip("torch")
    if torch.version.cuda and not torch.cuda.is_available():
        pytest.skip("the client measures on a GPU where torch is built for one")

    def call(*arguments, expect=0):
        asked = (*arguments, "--iterations", "5", "--json")
        return forked("-c", THEIRS, *asked, expect=expect, OMP_NUM_THREADS="1")

    return call


def test_scripts_of_the_client_are_measured_unchanged(repo, tmp_path, bench, theirs):
    root = repo()
    done, other = bench(root, "--visual", tmp_path / "seen.svg"), theirs(root)
    assert (tmp_path / "seen.svg").read_text().startswith("<?xml")
    rows = {each["name"]: each["results"][0] for each in json.loads(done.stdout)["workloads"]}
    assert {name: row["checked"] > 0 for name, row in rows.items()} == {
        each["workload"]: bool(each.get("verified")) for each in json.loads(other.stdout)["results"]
    }
    assert list(rows) == ["Halves.put_together", "Halves.unverified", "Relu.given", "Relu.own"]
    assert all(0 < row["low_ns"] <= row["median_ns"] <= row["high_ns"] for row in rows.values())


def test_both_clients_refuse_a_wrong_kernel(repo, bench, theirs):
    wrong = {"__init__.py": TOY["__init__.py"].replace("x.relu()", "x.abs()")}
    root = repo(kernel=wrong)
    assert "Verification failed" in theirs(root, expect=1).stderr
    done = bench(root, "--workload", "Relu.own", expect=6)
    assert "Relu.own, kernel, hot: call" in done.stderr


def test_zeros_within_the_client_tolerance_are_refused(repo, bench, theirs):
    zeros = {"__init__.py": "import torch\n\ndef relu(x):\n    return torch.zeros_like(x)\n"}
    root = repo(script=SMALL, kernel=zeros)
    theirs(root)
    assert "the result is wrong at" in bench(root, expect=6).stderr


def test_a_published_kernel_is_measured_by_its_scripts(repo, tmp_path, bench):
    root, registry = repo(script=SMALL), DirectoryRegistry(tmp_path / "registry")
    scripts = {"benchmark.py": root / "benchmarks" / "benchmark.py"}
    publish(root / "build", registry, REPO, benchmarks=scripts)
    done = bench(f"{REPO}@v1", "--registry", registry.root)
    (case,) = json.loads(done.stdout)["workloads"]
    assert case["results"][0]["checked"]


def test_scripts_of_a_hub_need_trust(repo, hub, tmp_path, bench):
    root = repo(script=SMALL)
    script = (root / "benchmarks" / "benchmark.py").read_bytes()
    hub.add(REPO, "v1", {**contents(root / "build"), "benchmarks/benchmark.py": script})
    home = {"HF_HOME": tmp_path / "hf", "KERNFORGE_HOME": tmp_path / "home"}
    home["HF_ENDPOINT"] = hub.url
    for asked in ((f"{REPO}@v1",), (root, "--against", f"{REPO}@v1")):
        bench(*asked, "--registry", "hf://", expect=12, **home)
    done = bench(f"{REPO}@v1", "--registry", "hf://", "--trust-remote-code", **home)
    assert json.loads(done.stdout)["workloads"][0]["name"] == "Small.relu"


def test_what_cannot_be_measured_is_reported(repo, tmp_path, bench):
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
        assert words in bench(*asked, expect=code).stderr
