# SPDX-License-Identifier: Apache-2.0
"""Every published kernel runs on a GPU, loaded by the hub's unmodified client and by ours.

What was built before, here or on another machine, lies in each project's ``build``.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.parent.name for path in ROOT.glob("kernels/*/build.toml"))
# Each compares one call with the kernel's own reference, which is given whole numbers or float64.
CALLS = {
    "bitonic-sort": """
x = random(300 * 1000).view(300, 1000)
for got, want in zip(kernel.sort(x), reference.sort(x), strict=True):
    same(got, want)
for got, want in zip(kernel.topk(x, 20, 0), reference.topk(x, 20, 0), strict=True):
    same(got, want)
""",
    "gelu-approx": """
x = 4 * random(1 << 20)
near(kernel.gelu_approx(x), reference.gelu_approx(x.double()))
""",
    "img2gray": """
image = torch.randint(0, 256, (241, 319, 3), dtype=torch.uint8, device="cuda")
same(kernel.img2gray(image), reference.img2gray(image))
truncated = reference.img2gray(image, "default", "truncate")
same(kernel.img2gray(image, rounding="truncate"), truncated)
""",
    "layer-norm": """
x, residual = random(33 * 96).view(33, 96), random(33 * 96).view(33, 96)
weight, bias = random(96), random(96)
wide = reference.layer_norm(x.double(), weight.double(), bias.double())
near(kernel.layer_norm(x, 96, weight, bias), wide)
y, total = kernel.add_rms_norm(x, residual, 96, weight, 1e-6)
same(total, x + residual)
near(y, reference.rms_norm(total.double(), weight.double()))
""",
    "linear-gelu": """
x, weight, bias = random(33 * 96).view(33, 96), random(200 * 96).view(200, 96) / 10, random(200)
wide = reference.linear_gelu(x.double(), weight.double(), bias.double())
near(kernel.linear_gelu(x, weight, bias), wide)
""",
    "matmul": """
a, b, bias = random(33 * 96).view(33, 96), random(96 * 200).view(96, 200) / 10, random(200)
wide = reference.matmul(a.double(), b.double(), bias.double(), "silu")
near(kernel.matmul(a, b, bias=bias, activation="silu"), wide)
near(kernel.matmul(a, b.t().contiguous().t()), a.double() @ b.double())
""",
    "moe": """
x, logits = random(33 * 96).view(33, 96), random(33 * 8).view(33, 8)
w1, w2 = random(8 * 80 * 96).view(8, 80, 96) / 10, random(8 * 96 * 40).view(8, 96, 40) / 10
near(kernel.moe(x, logits, w1, w2, 2), reference.moe(*(t.double() for t in (x, logits, w1, w2)), 2))
""",
    "normalize-volume": """
volume = torch.randint(0, 4096, (17, 129, 65), device="cuda").to(torch.uint16)
whole = volume.to(torch.int64)
wanted = reference.normalize_volume(whole, 1000.0, 300.0)
near(kernel.normalize_volume(volume, 1000.0, 300.0), wanted)
near(kernel.normalize_volume(volume, 4095.0), whole.double() / 4095)
near(kernel.normalize_volume(volume), reference.normalize_volume(whole))
""",
    "relu-scale": """
x = random(1 << 20)
near(kernel.relu_scale(x, 1.7), reference.relu_scale(x, 1.7))
""",
    "vector-add": """
a, b = random(1 << 20), random(1 << 20)
near(kernel.vector_add(a, b), reference.vector_add(a, b))
""",
}
USE = """
import importlib.util, sys
import {client}
import torch

spec = importlib.util.spec_from_file_location("reference", sys.argv[1])
reference = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reference)
torch.manual_seed(0)

def random(count):
    return torch.randn(count, device="cuda")

def near(got, want):
    assert got.is_cuda and got.dtype == torch.float32, got
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=2e-6)

def same(got, want):
    assert got.is_cuda and torch.equal(got, want)

kernel = {client}.get_kernel({repo!r}, version=1)
{call}
print(kernel.__name__, kernel.__file__)
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    root = tmp_path_factory.mktemp("registry")
    for name in NAMES:
        project = ROOT / "kernels" / name
        if list(project.glob("build/*-cu*")):
            argv = [
                sys.executable,
                "-m",
                "kernforge",
                "publish",
                project,
            ]
            argv += ["--registry", root, "--repo-id", f"kernforge/{name}"]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
    return root


def test_there_is_a_call_of_every_kernel():
    assert list(CALLS) == NAMES


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
@pytest.mark.parametrize("client", ["kernels", "kernforge"])
@pytest.mark.parametrize("name", NAMES)
def test_a_published_kernel_gives_its_references_results(registry, tmp_path, name, client):
    pytest.importorskip(client)
    place = registry / f"kernels--kernforge--{name}"
    if not place.is_dir():
        pytest.skip(f"kernels/{name}/build has no variant for CUDA")
    env = {
        **os.environ,
        "KERNFORGE_REGISTRY": str(registry),
        "KERNELS_CACHE": str(registry),
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(tmp_path),
    }
    program = USE.format(client=client, repo=f"kernforge/{name}", call=CALLS[name])
    argv = [sys.executable, "-c", program, ROOT / "kernels" / name / "reference.py"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    module, path = done.stdout.split()
    assert module.startswith(f"_{name.replace('-', '_')}_cuda_")
    assert Path(path).is_relative_to(registry)
