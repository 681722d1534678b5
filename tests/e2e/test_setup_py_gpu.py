# SPDX-License-Identifier: Apache-2.0
"""Wheels of setup.py projects, of the tutorials and others, that were built on another machine.

    KERNFORGE_EXTENSION_WHEELS=DIR pytest tests/e2e/test_setup_py_gpu.py

on a machine with a GPU and the torch and Python that they were built for. It needs neither a
compiler nor a network; ``scripts/sdists.py --wheels DIR`` makes them.
"""

import os
import sys
import zipfile
from pathlib import Path

import pytest
from support.programs import run

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]

START = """
import torch
torch.manual_seed(0)
device = "cuda"
near = torch.testing.assert_close
"""
# The reference is torch's own operators; what a package needs besides torch is not loaded.
CHECKS = {
    "my_ops": """
import my_ops
x = torch.randn(1 << 20, device=device)
near(my_ops.fused_relu_scale(x, 2.5), torch.relu(x) * 2.5)
""",
    "cuda_ops": """
from cuda_ops import relu, vector_add
a, b = torch.randn(2, 100_003, device=device)
near(relu.forward(a), torch.relu(a))
near(vector_add.forward(a, b), a + b)
""",
    "cuda_add": """
import cuda_add
a, b = (torch.randn(4096, device=device, requires_grad=True) for _ in range(2))
out = cuda_add.add(a, b)
near(out, a + b)
out.backward(torch.full_like(out, 3.0))
near(a.grad, torch.full_like(a, 3.0)); near(b.grad, torch.full_like(b, 3.0))
""",
    "torchsort": """
import torchsort
x = (torch.rand(8, 64, device=device).argsort() - 32.0) / 8
# With little regularization a soft sort is a sort, and a soft rank a rank: of values that are
# apart, in float64. It divides by the strength, so that float32 loses as many digits.
ranks = (x.argsort().argsort() + 1).double()
near(torchsort.soft_sort(x.double(), regularization_strength=1e-4), x.sort()[0].double())
near(torchsort.soft_rank(x.double(), regularization_strength=1e-4), ranks)
near(torchsort.soft_sort(x, regularization_strength=1e-2), x.sort()[0], atol=1e-3, rtol=1e-3)
y = torch.randn(8, 64, device=device, requires_grad=True)
torchsort.soft_sort(y).pow(2).sum().backward()
z = y.detach().cpu().requires_grad_()
torchsort.soft_sort(z).pow(2).sum().backward()
near(y.grad.cpu(), z.grad)
""",
    "torch_scatter": """
import torch_scatter
source = torch.randn(1000, 16, device=device)
index = torch.randint(0, 50, (1000,), device=device)
want = torch.zeros(50, 16, device=device).index_add_(0, index, source)
near(torch_scatter.scatter_sum(source, index, 0, dim_size=50), want, atol=1e-4, rtol=1e-4)
where = index[:, None].expand_as(source)
want = torch.full((50, 16), -torch.inf, device=device).scatter_reduce(0, where, source, "amax")
near(torch_scatter.scatter_max(source, index, 0, dim_size=50)[0], want)
ordered = index.sort()[0]
want = torch.zeros(50, 16, device=device).index_add_(0, ordered, source)
rows = torch.searchsorted(ordered, torch.arange(51, device=device))
near(torch_scatter.segment_csr(source, rows, reduce="sum"), want, atol=1e-4, rtol=1e-4)
""",
    "causal_conv1d": """
import causal_conv1d_cuda
from causal_conv1d.causal_conv1d_interface import causal_conv1d_fn, causal_conv1d_ref
for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 2e-2)):
    x = torch.randn(2, 64, 512, device=device, dtype=dtype)
    weight = torch.randn(64, 4, device=device, dtype=dtype)
    bias = torch.randn(64, device=device, dtype=dtype)
    got = causal_conv1d_fn(x, weight, bias, activation="silu")
    near(got, causal_conv1d_ref(x, weight, bias, activation="silu"), atol=tolerance, rtol=tolerance)
""",
    "mamba_ssm": """
import selective_scan_cuda
batch, dim, length, state = 2, 8, 256, 16
u, delta = (torch.randn(batch, dim, length, device=device) for _ in range(2))
A = -torch.rand(dim, state, device=device)
B, C = (torch.randn(batch, 1, state, length, device=device) for _ in range(2))
out, *_ = selective_scan_cuda.fwd(u, delta, A, B, C, None, None, None, True)
step = torch.nn.functional.softplus(delta)
h, want = torch.zeros(batch, dim, state, device=device), []
for t in range(length):
    h = torch.exp(step[:, :, t, None] * A) * h + (step * u)[:, :, t, None] * B[:, 0, :, t][:, None]
    want.append((h * C[:, 0, :, t][:, None]).sum(-1))
near(out, torch.stack(want, -1), atol=1e-3, rtol=1e-3)
""",
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_wheel_gives_the_results_of_torch(name, tmp_path):
    directory = os.environ.get("KERNFORGE_EXTENSION_WHEELS")
    if not directory:
        pytest.skip("KERNFORGE_EXTENSION_WHEELS names no directory of wheels")
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    release = ".".join(torch.__version__.split(".")[:2])
    wheels = sorted(Path(directory).glob(f"{name}-*torch{release}.*-{python}-*.whl"))
    if not wheels:
        pytest.skip(f"there is no wheel of {name} for torch {release} and {python}")
    with zipfile.ZipFile(wheels[-1]) as archive:
        archive.extractall(tmp_path)
    run((sys.executable, "-c", START + CHECKS[name]), cwd=tmp_path, PYTHONPATH=tmp_path)
