# SPDX-License-Identifier: Apache-2.0
"""Tutorial E, image operators: grey values of ``uchar3`` pixels, and a 12-bit volume to floats."""

import json
import sys

import pytest
import torch
from support.tutorials import BUILT, GRAY, LOCAL, USE

pytestmark = [pytest.mark.native, pytest.mark.torch]

SERIES = "torch" + "".join(torch.__version__.split(".")[:2])
CPU = f"{SERIES}-cxx11-cpu-x86_64-linux"
CUDA = f"{SERIES}-cxx11-cu130-x86_64-linux"
SOURCE = "csrc/image_ops.cu"
AGAIN = (
    SOURCE,
    "// One pixel is one uchar3.\n",
    "// One pixel.\nstruct uchar3 {\n    unsigned char x, y, z;\n};\n",
)
VOLUME = """
volume = torch.arange(65536, dtype=torch.int32, device=device).to(torch.uint16).view(4, 128, 128)
scaled = volume.float() / torch.tensor(4095.0, device=device)
assert torch.equal(kernel.normalize_volume(volume, 4095.0), scaled)
"""


def program(device):
    weights, gray = "0.299 0.587 0.114", GRAY[device]
    names = {"load": LOCAL, "device": device, "weights": weights, "gray": gray}
    return USE.format(**names, function="rgb_to_gray") + VOLUME


def test_device_code_builds_as_it_is(kernforge_cli, tutorial):
    root = tutorial("image-ops")
    done = kernforge_cli("build", root, "--variant", CUDA, "--arch", "9.0", "--json")
    assert list(json.loads(done.stdout)["variants"]) == [CUDA]


def test_cpu_variant_matches_the_formula(kernforge_cli, tutorial, fork_server):
    root = tutorial("image-ops")
    kernforge_cli("build", root, "--variant", CPU)
    done = fork_server.run([sys.executable, "-c", program("cpu"), root])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0 ")


def test_redefined_uchar3_is_named_with_its_line(kernforge_cli, tutorial):
    root = tutorial("image-ops", edits=[AGAIN])
    done = kernforge_cli("build", root, "--variant", CUDA, "--arch", "9.0", expect=5)
    line = (root / SOURCE).read_text().splitlines().index("struct uchar3 {") + 1
    said = done.stdout + done.stderr
    assert f"{SOURCE}({line}): error: " in said
    assert "uchar3" in said


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
def test_gpu_variant_matches_the_formula(fork_server):
    assert (BUILT / "image-ops").is_dir(), "build it before: python -m support.tutorials"
    done = fork_server.run([sys.executable, "-c", program("cuda"), BUILT / "image-ops"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0 ")
