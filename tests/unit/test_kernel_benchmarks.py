# SPDX-License-Identifier: Apache-2.0
"""What the kernels' benchmarks compute, and that the peers of a kernel compute it."""

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
PEERS = {
    "gelu-approx": {"torch's kernel through torch.ops"},
    "img2gray": {"torch.compile, untuned", "torch.compile, any shape", "torchvision"},
    "layer-norm": {"liger-kernel", "kernels-community"},
    "linear-gelu": {"torch._addmm_activation"},
    "moe": {
        "torch._grouped_mm",
        "torch._grouped_mm, torch.compile",
        "megablocks",
        "scattermoe",
        "triton-kernels",
    },
    "vector-add": {"torch's kernel through torch.ops"},
}


def torch_functions(project):
    """What competes and is not ours, but for what has to be compiled."""
    found = bench.candidates(BenchRequest(project=project))
    return {c.name: c.function for c in found if c.kind != "kernel" and "compile" not in c.name}


@pytest.mark.parametrize("project", KERNELS, ids=lambda path: path.name)
def test_who_competes_computes_what_is_right(project):
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
                assert inputs.wrong(0, result) == "", (each.name, name)
    assert "torch eager" in computed


@pytest.mark.parametrize("project", KERNELS, ids=lambda path: path.name)
def test_peers_stand_beside_the_kernel_and_torch(project):
    names = [each.name for each in bench.candidates(BenchRequest(project=project))]
    assert names[:3] == ["kernel", "torch eager", "torch.compile"]
    assert set(names[3:]) == PEERS.get(project.name, set())


@pytest.mark.parametrize("project", SIZED, ids=lambda path: path.name)
def test_a_size_gives_every_type_and_way_once(project):
    small, large = (
        bench.workloads(BenchRequest(project=project, sizes=(n,))) for n in (1024, 4096)
    )
    assert [each.family for each in small] == [each.family for each in large]
    assert len({each.family for each in small}) == len(small) >= 2
    assert {each.size for each in small} == {1024}
