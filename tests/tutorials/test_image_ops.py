# SPDX-License-Identifier: Apache-2.0
"""Tutorial E, image operators: grey values of ``uchar3`` pixels, and a 12-bit volume to floats."""

import json
import sys

import pytest
import torch
from support.tutorials import BUILT

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
USE = """
import sys
import torch
import kernforge
kernel = kernforge.get_local_kernel(sys.argv[1])
device = "{device}"
value = torch.arange(256, dtype=torch.uint8, device=device)
volume = torch.arange(65536, dtype=torch.int32, device=device).to(torch.uint16).view(4, 128, 128)
assert torch.equal(
    kernel.normalize_volume(volume, 4095.0),
    volume.float() / torch.tensor(4095.0, device=device),
)
differ = 0
for red in range(0, 256, 64):
    image = torch.cartesian_prod(value[red : red + 64], value, value).view(2048, 2048, 3)
    r, g, b = image.float().unbind(-1)
    weight = lambda text: torch.tensor(float(text), dtype=torch.float32, device=device)
    {formula}
    differ += int((kernel.rgb_to_gray(image) != gray.to(torch.uint8)).sum())
print(differ)
"""
ROUNDED = 'gray = weight("0.299") * r + weight("0.587") * g + weight("0.114") * b'
# nvcc rounds green's product and joins the other two to the sums: one operation, one rounding each.
# In float64 such a product and sum are exact. A tensor without dimensions would stay float32.
FUSED = """gray = (weight("0.587") * g).double()
    gray = (weight("0.299").double() * r.double() + gray).float()
    gray = (weight("0.114").double() * b.double() + gray.double()).float()"""


def test_device_code_builds_as_it_is(kernforge_cli, tutorial):
    root = tutorial("image-ops")
    done = kernforge_cli("build", root, "--variant", CUDA, "--arch", "9.0", "--json")
    assert list(json.loads(done.stdout)["variants"]) == [CUDA]


def test_the_cpu_twin_has_the_formulas_values(kernforge_cli, tutorial, fork_server):
    root = tutorial("image-ops")
    kernforge_cli("build", root, "--variant", CPU)
    code = USE.format(device="cpu", formula=ROUNDED)
    done = fork_server.run([sys.executable, "-c", code, root])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0\n"


def test_a_second_struct_uchar3_is_named_with_its_line(kernforge_cli, tutorial):
    root = tutorial("image-ops", edits=[AGAIN])
    done = kernforge_cli("build", root, "--variant", CUDA, "--arch", "9.0", expect=5)
    line = (root / SOURCE).read_text().splitlines().index("struct uchar3 {") + 1
    said = done.stdout + done.stderr
    assert f"{SOURCE}({line}): error: " in said
    assert "uchar3" in said


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
def test_the_gpu_has_the_formulas_values(fork_server):
    assert (BUILT / "image-ops").is_dir(), "build it before: python -m support.tutorials"
    code = USE.format(device="cuda", formula=FUSED)
    done = fork_server.run([sys.executable, "-c", code, BUILT / "image-ops"])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0\n"
