# SPDX-License-Identifier: Apache-2.0
"""Tutorials D and F: scripts with ``load`` and ``load_inline``, with one changed import."""

import json
import re
import shutil
import sys

import pytest
import torch
from support import jit_homes
from support.programs import output
from support.tutorials import FOLDER

pytestmark = [pytest.mark.native, pytest.mark.torch]

CUSTOM_OPS, GELU = FOLDER / "custom_ops_jit", FOLDER / "fused_linear_gelu"
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
TORCHS, OURS = "from torch.utils.cpp_extension import", "from kernforge import"


@pytest.fixture(autouse=True)
def home(kept_home, monkeypatch):
    jit_homes.use_kept(kept_home, monkeypatch)
    if not torch.cuda.is_available():
        monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    return kept_home


def run(path, monkeypatch):
    """Run a script with its import changed, in its directory; returns its names."""
    text = path.read_text()
    assert text.count(TORCHS) == 1
    monkeypatch.chdir(path.parent)
    names = {}
    exec(compile(text.replace(TORCHS, OURS), str(path), "exec"), names)  # noqa: S102
    return names


@pytest.mark.parametrize("name", ["inline_add", "load_add"])
@NEEDS_GPU
@pytest.mark.gpu
def test_the_scripts_of_custom_ops_run(name, monkeypatch):
    run(CUSTOM_OPS / f"{name}.py", monkeypatch)


@pytest.mark.road
@pytest.mark.parametrize(
    ("script", "module"), [("inline_add.py", "inline_add"), ("load_add.py", "add")]
)
def test_scripts_of_custom_ops_compile_without_a_gpu(script, module, monkeypatch):
    """And the module refuses what is not on a GPU."""
    names = run(CUSTOM_OPS / script, monkeypatch)
    with pytest.raises(RuntimeError, match="a must be a CUDA tensor"):
        names[module].add_cuda(torch.ones(2), torch.ones(2))


def _script_and_bench(home, tmp_path, monkeypatch, capsys):
    """The tutorial's script, and the same measured by ``kernforge bench``."""
    run(GELU / "benchmark.py", monkeypatch)
    printed = capsys.readouterr().out
    assert re.search(r"native: [\d.]+ ms, fused: [\d.]+ ms", printed)
    assert float(printed.split()[-1]) < 1e-3
    project = tmp_path / "fused_linear_gelu"
    shutil.copytree(GELU, project)
    argv = [sys.executable, "-m", "kernforge", "bench", str(project), "--json", "--rounds", "6"]
    # A process of its own: one that was forked cannot use a GPU that its parent has asked for.
    argv += ["--mode", "hot", "--candidate", "kernel"]
    printed = output(argv, KERNFORGE_HOME=home, OMP_NUM_THREADS="1")
    (case,) = json.loads(printed)["workloads"]
    (kernel,) = case["results"]
    assert (kernel["candidate"], kernel["refused"]) == ("kernel", "")
    assert kernel["median_ns"] > 0


def test_the_benchmark_script_runs_and_is_three_definitions_here(
    home, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    _script_and_bench(home, tmp_path, monkeypatch, capsys)


@NEEDS_GPU
@pytest.mark.gpu
def test_the_benchmark_script_runs_on_a_gpu(home, tmp_path, monkeypatch, capsys):
    _script_and_bench(home, tmp_path, monkeypatch, capsys)
