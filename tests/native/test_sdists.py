# SPDX-License-Identifier: Apache-2.0
"""Source distributions from the package index, built unmodified for the installed torch.

They fetch the two smallest; ``scripts/sdists.py`` builds more of them, for a GPU.
"""

import sys
from pathlib import Path

import pytest
from support.programs import run

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.native, pytest.mark.torch, pytest.mark.network]

ROOT = Path(__file__).parents[2]
TORCHSORT = """
import torch, torchsort
x = torch.randn(4, 32)
torch.testing.assert_close(
    torchsort.soft_sort(x, regularization_strength=1e-4), x.sort()[0], atol=1e-2, rtol=1e-2
)
"""
SPLINE = """
import torch, torch_spline_conv
pseudo = torch.rand(100, 2)
size, is_open = torch.tensor([5, 5]), torch.ones(2, dtype=torch.uint8)
basis, index = torch_spline_conv.spline_basis(pseudo, size, is_open, 1)
torch.testing.assert_close(basis.sum(1), torch.ones(100))
x, weight = torch.randn(100, 8), torch.randn(25, 8, 4)
got = torch_spline_conv.spline_weighting(x, weight, basis, index)
want = torch.einsum("ni,nkio,nk->no", x, weight[index], basis)
torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
"""


@pytest.mark.parametrize(
    ("name", "code"),
    [("torchsort==0.1.10", TORCHSORT), ("torch-spline-conv==1.2.2", SPLINE)],
    ids=["torchsort", "torch-spline-conv"],
)
def test_a_source_distribution_runs_on_the_cpu(name, code, tmp_path, kept_home):
    env = {"KERNFORGE_HOME": kept_home, "TORCH_CUDA_ARCH_LIST": "9.0"}
    # Projects that ask for a toolkit and not for a GPU build CUDA code too: they find none.
    env |= {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "FORCE_ONLY_CPU": "1"}
    argv = [sys.executable, "-m", "kernforge", "pip", "install", "--no-deps", "--target"]
    done = run([*argv, tmp_path, name], PYTHONPATH=ROOT / "src", **env)
    assert "building" in done.stderr
    run((sys.executable, "-c", code), PYTHONPATH=tmp_path, **env)
