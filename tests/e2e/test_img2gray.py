# SPDX-License-Identifier: Apache-2.0
"""The published img2gray, read by us and by the unmodified ``kernels``, turns a photo grey."""

import os
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.native, pytest.mark.torch]

KERNEL = Path(__file__).parents[2] / "kernels" / "img2gray"
USE = """
import sys
import numpy as np, torch
from PIL import Image
{load}
photo = torch.from_numpy(np.array(Image.open(sys.argv[1]).convert("RGB")))
rgb = photo.to(torch.int64)
exact = (21 * rgb[..., 0] + 72 * rgb[..., 1] + 7 * rgb[..., 2] + 50) // 100
assert torch.equal(kernel.img2gray(photo).to(torch.int64), exact)
print(kernel.__name__)
"""
OURS = 'import kernforge; kernel = kernforge.get_kernel("kernforge/img2gray", version=1)'
THEIRS = """
import kernels
assert kernels.__version__ == "0.17.2"
kernel = kernels.get_kernel("kernforge/img2gray", version=1, backend="cpu")
"""


# What `pip install torch` gives on a machine without a GPU. Only the version is not real: a build
# of CUDA has gigabytes.
WITHOUT_A_GPU = """
import torch
torch.version.cuda = "13.0"
torch.cuda.is_available = lambda: False
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory, kernforge_cli):
    root = tmp_path_factory.mktemp("registry")
    out = root / "build"
    kernforge_cli("build", KERNEL, "--build-dir", out, "--variant", "*-cpu-*")
    publish = ("publish", KERNEL, out, "--registry", root / "registry")
    kernforge_cli(*publish, "--repo-id", "kernforge/img2gray")
    return root / "registry"


@pytest.mark.road
@pytest.mark.parametrize(
    "load", [OURS, WITHOUT_A_GPU + OURS, THEIRS], ids=["kernforge", "no GPU", "kernels"]
)
def test_a_photo_turns_grey(registry, fork_server, load):
    env = {
        **os.environ,
        "KERNFORGE_REGISTRY": str(registry),
        "KERNELS_CACHE": str(registry),
        "HF_HUB_OFFLINE": "1",
    }
    argv = [sys.executable, "-c", USE.format(load=load), KERNEL / "assets" / "grace_hopper.jpg"]
    done = fork_server.run(argv, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("_img2gray_cpu_")
