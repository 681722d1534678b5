# SPDX-License-Identifier: Apache-2.0
"""Workloads and candidates of the kernels' benchmarks."""

import sys
from pathlib import Path

import pytest

from kernforge.bench import project as bench
from kernforge.bench.project import BenchRequest
from kernforge.bench.verify import Inputs

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

KERNELS = sorted(
    p.parents[1] for p in Path(__file__).parents[2].glob("kernels/*/benchmarks/workloads.py")
)
SIZED = [path for path in KERNELS if path.name != "img2gray"]
MOST = 8 << 20  # Bytes of a tensor of the workloads that are computed here.


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    """Forget the modules of a kernel, which another one has by the same names."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(KERNELS[0].parent) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def torch_functions(project):
    """Candidates besides the kernel, without compiled ones."""
    found = bench.candidates(BenchRequest(project=project))
    return {c.name: c.function for c in found if c.kind != "kernel" and "compile" not in c.name}


@pytest.mark.parametrize("project", KERNELS, ids=lambda path: path.name)
def test_peers_agree_with_the_reference(project):
    request = BenchRequest(project=project, sizes=(4096,) if project in SIZED else ())
    work = [w for w in bench.workloads(request) if max(t.nbytes for t in w.tensors) <= MOST]
    assert work
    functions, computed = torch_functions(project), set()
    for each in work:
        inputs = Inputs(each, "cpu")
        for name, function in functions.items():
            inputs.renew(1, 1)
            if (result := function(*inputs.calls[0])) is not NotImplemented:
                computed.add(name)
                assert inputs.verify(0, result) == "", (each.name, name)
    assert "torch eager" in computed


@pytest.mark.parametrize("project", SIZED, ids=lambda path: path.name)
def test_a_size_gives_each_family_once(project):
    small, large = (
        bench.workloads(BenchRequest(project=project, sizes=(n,))) for n in (1024, 4096)
    )
    assert [each.family for each in small] == [each.family for each in large]
    assert len({each.family for each in small}) == len(small) >= 2
    assert {each.size for each in small} == {1024}
