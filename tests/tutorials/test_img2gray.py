# SPDX-License-Identifier: Apache-2.0
"""Tutorial A, img2gray with build.toml of edition 2 or 1: built, run, published, loaded."""

import json
import os
import sys

import pytest
import torch
from support.tutorials import BUILT, FIXED, FORMS

pytestmark = [pytest.mark.native, pytest.mark.torch]

SERIES = "torch" + "".join(torch.__version__.split(".")[:2])
CPU = f"{SERIES}-cxx11-cpu-x86_64-linux"
CUDA = f"{SERIES}-cxx11-cu130-x86_64-linux"
# Edition and backends of each form.
READ_AS = {
    "only-a-name": (2, ["cuda"]),
    "not-universal": (2, ["cuda"]),
    "fixed-namespace": (2, ["cuda"]),
}
# The formula as it is written, every operation rounded to float32; torch's CPU does the same.
USE = """
import sys
import torch
{load}
value = torch.arange(256, dtype=torch.uint8, device="{device}")
differ = 0
for red in range(0, 256, 64):
    image = torch.cartesian_prod(value[red : red + 64], value, value).view(2048, 2048, 3)
    r, g, b = image.float().unbind(-1)
    weight = lambda text: torch.tensor(float(text), dtype=torch.float32, device="{device}")
    {formula}
    differ += int((kernel.img2gray(image) != gray.to(torch.uint8)).sum())
print(differ, kernel.__name__)
"""
ROUNDED = 'gray = weight("0.21") * r + weight("0.72") * g + weight("0.07") * b'
# nvcc rounds green's product and joins the other two to the sums: one operation, one rounding each.
# In float64 such a product and sum are exact. A tensor without dimensions would stay float32.
FUSED = """gray = (weight("0.72") * g).double()
    gray = (weight("0.21").double() * r.double() + gray).float()
    gray = (weight("0.07").double() * b.double() + gray.double()).float()"""
OURS = "import kernforge; kernel = kernforge.get_kernel('tutorial/img2gray', version=1)"
THEIRS = (
    "import kernels; kernel = kernels.get_kernel('tutorial/img2gray', version=1, backend='cpu')"
)
LOCAL = "import kernforge; kernel = kernforge.get_local_kernel(sys.argv[1])"


@pytest.mark.parametrize("form", FORMS)
def test_every_form_builds_as_it_is_for_one_architecture(kernforge_cli, tutorial, form):
    edits, (edition, backends) = FORMS[form], READ_AS[form]
    root = tutorial("img2gray", edits=edits)
    before = (root / "build.toml").read_bytes()
    done = kernforge_cli("build", root, "--variant", CUDA, "--arch", "9.0", "--json")
    assert list(json.loads(done.stdout)["variants"]) == [CUDA]
    (note,) = (line for line in done.stderr.splitlines() if "is of edition" in line)
    assert (
        f"is of edition {edition}, read as edition 5 with backends = {json.dumps(backends)}" in note
    )
    assert (root / "build.toml").read_bytes() == before


@pytest.mark.parametrize("edits", [(), FIXED], ids=["own namespace", "fixed namespace"])
def test_the_cpu_twin_has_the_bytes_of_the_formula(kernforge_cli, tutorial, fork_server, edits):
    root = tutorial("img2gray", "img2gray-cpu", edits=edits)
    kernforge_cli("build", root, "--variant", CPU)
    code = USE.format(load=LOCAL, device="cpu", formula=ROUNDED)
    done = fork_server.run([sys.executable, "-c", code, root])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0 ")


def test_what_was_never_edited_is_published_and_loaded(
    kernforge_cli, tutorial, tmp_path, fork_server
):
    root, registry = tutorial("img2gray", "img2gray-cpu"), tmp_path / "registry"
    kernforge_cli("build", root, "--variant", CPU)
    kernforge_cli("publish", root, "--registry", registry, "--repo-id", "tutorial/img2gray")
    environment = {
        **os.environ,
        "KERNFORGE_REGISTRY": str(registry),
        "KERNELS_CACHE": str(registry),
        "HF_HUB_OFFLINE": "1",
    }
    for load in (OURS, THEIRS):
        code = USE.format(load=load, device="cpu", formula=ROUNDED)
        done = fork_server.run([sys.executable, "-c", code], env=environment)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("0 _img2gray_cpu_")


@pytest.mark.parametrize("form", FORMS)
def test_what_is_migrated_is_the_same_plan(kernforge_cli, tutorial, form):
    edits, (_, backends) = FORMS[form], READ_AS[form]
    root = tutorial("img2gray", edits=edits)

    def plan():
        done = kernforge_cli("build", root, "--variant", CUDA, "--dry-run", "--json")
        # The license is part of the op namespace, which comes at link time.
        actions = json.loads(done.stdout)["actions"]
        return [action["key"] for action in actions if action["title"].startswith("csrc/")]

    before = plan()
    assert before
    refused = kernforge_cli("adopt", root, expect=3)
    assert "--license" in refused.stderr
    kernforge_cli("adopt", root, "--license", "MIT")
    text = (root / "build.toml").read_text()
    assert f"backends = {json.dumps(backends)}" in text
    assert "universal" not in text
    assert "language" not in text
    assert ('backend = "rocm"' in text) == ("rocm" in backends)
    assert plan() == before
    assert "edition" not in kernforge_cli("build", "--list", root).stderr


def test_export_leaves_the_tutorials_flake_alone(kernforge_cli, tutorial):
    root = tutorial("img2gray")
    before = (root / "flake.nix").read_bytes()
    done = kernforge_cli("export", root, "--json")
    document = json.loads(done.stdout)
    assert document["kept"] == [str(root / "flake.nix")]
    assert (root / "flake.nix").read_bytes() == before
    names = {path.name for path in root.iterdir()}
    assert names >= {"CMakeLists.txt", "compile_commands.json", "setup.py"}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
@pytest.mark.parametrize("form", FORMS)
def test_the_gpu_has_the_bytes_of_the_formula(fork_server, form):
    """With the products and sums joined, as nvcc does unless it is told not to."""
    assert (BUILT / form).is_dir(), "build it before: python -m support.tutorials"
    code = USE.format(load=LOCAL, device="cuda", formula=FUSED)
    done = fork_server.run([sys.executable, "-c", code, BUILT / form])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0 ")
