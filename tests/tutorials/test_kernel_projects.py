# SPDX-License-Identifier: Apache-2.0
"""Tutorials A and E: img2gray of edition 2 or 1, and image operators, as kernel projects.

They are built, run, published and loaded. Image operators are grey values of ``uchar3`` pixels, and
a 12-bit volume to floats.
"""

import json

import pytest
import torch
from support import tutorials
from support.tutorials import BUILT, FIXED, FORMS, GRAY, LOCAL, USE

pytestmark = [pytest.mark.native, pytest.mark.torch]

SERIES = "torch" + "".join(torch.__version__.split(".")[:2])
CPU = f"{SERIES}-cxx11-cpu-x86_64-linux"
CUDA = f"{SERIES}-cxx11-cu130-x86_64-linux"
OURS = "import kernforge; kernel = kernforge.get_kernel('tutorial/img2gray', version=1)"
# What `pip install torch` gives on a machine without a GPU. Only the version is not real: a build
# of CUDA has gigabytes.
WITHOUT_A_GPU = """
torch.version.cuda = "13.0"
torch.cuda.is_available = lambda: False
"""
LOADS = {
    "kernforge": OURS,
    "no GPU": WITHOUT_A_GPU + OURS,
    "kernels": "import kernels; assert kernels.__version__ == '0.17.2'\n"
    "kernel = kernels.get_kernel('tutorial/img2gray', version=1, backend='cpu')",
}
ON_CPU = ("img2gray", "img2gray-cpu")
VOLUME = """
volume = torch.arange(65536, dtype=torch.int32, device=device).to(torch.uint16).view(4, 128, 128)
scaled = volume.float() / torch.tensor(4095.0, device=device)
assert torch.equal(kernel.normalize_volume(volume, 4095.0), scaled)
"""


@pytest.fixture
def tutorial(tmp_path):
    """A function that copies folders into a project of its own; see ``support.tutorials``."""

    def copy(*folders, edits=()):
        return tutorials.copy(tmp_path / folders[0], *folders, edits=edits)

    return copy


def program(device="cpu", load=LOCAL, *, image_ops=False):
    names = {"load": load, "device": device, "gray": GRAY[device]}
    if image_ops:
        return USE.format(**names, weights="0.299 0.587 0.114", function="rgb_to_gray") + VOLUME
    return USE.format(**names, weights="0.21 0.72 0.07", function="img2gray")


@pytest.mark.parametrize("form", FORMS)
def test_unchanged_project_builds_for_one_architecture(kernforge_cli, tutorial, form):
    root = tutorial("img2gray", edits=FORMS[form])
    before = (root / "build.toml").read_bytes()
    done = kernforge_cli("build", root, "--variant", CUDA, "--arch", "9.0", "--json")
    assert list(json.loads(done.stdout)["variants"]) == [CUDA]
    (note,) = (line for line in done.stderr.splitlines() if "is of edition" in line)
    assert 'is of edition 2, read as edition 5 with backends = ["cuda"]' in note
    assert (root / "build.toml").read_bytes() == before


@pytest.mark.parametrize(
    ("folders", "edits"),
    [
        (ON_CPU, ()),
        (ON_CPU, FIXED),
        (("image-ops",), ()),
    ],
    ids=["own namespace", "fixed namespace", "image-ops"],
)
def test_cpu_variant_matches_the_formula(kernforge_cli, tutorial, forked, folders, edits):
    root = tutorial(*folders, edits=edits)
    kernforge_cli("build", root, "--variant", CPU)
    code = program(image_ops=folders == ("image-ops",))
    assert forked("-c", code, root).stdout.startswith("0 ")


@pytest.fixture(scope="module")
def registry(kernforge_cli, tmp_path_factory):
    """A registry with the unchanged project, built for the CPU."""
    place = tmp_path_factory.mktemp("published")
    root = tutorials.copy(place / "img2gray", "img2gray", "img2gray-cpu")
    kernforge_cli("build", root, "--variant", CPU)
    words = ("--registry", place / "registry", "--repo-id", "tutorial/img2gray")
    kernforge_cli("publish", root, *words)
    return place / "registry"


@pytest.mark.road
@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_unchanged_project_is_published_and_loaded(registry, forked, load):
    env = {"KERNFORGE_REGISTRY": registry, "KERNELS_CACHE": registry, "HF_HUB_OFFLINE": "1"}
    done = forked("-c", program(load=load), **env)
    assert done.stdout.startswith("0 _img2gray_cpu_")


@pytest.mark.parametrize("form", FORMS)
def test_migrated_manifest_has_the_same_plan(kernforge_cli, tutorial, form):
    root = tutorial("img2gray", edits=FORMS[form])

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
    assert 'backends = ["cuda"]' in text
    assert "universal" not in text
    assert plan() == before
    assert "edition" not in kernforge_cli("build", "--list", root).stderr


def test_device_code_builds_as_it_is(kernforge_cli, tutorial):
    done = kernforge_cli("build", tutorial("image-ops"), "--variant", CUDA, "--arch", "9.0")
    assert CUDA in done.stdout


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
@pytest.mark.parametrize("form", [*FORMS, "image-ops"])
def test_gpu_variant_matches_the_formula(forked, form):
    """With the products and sums joined, as nvcc does unless it is told not to."""
    assert (BUILT / form).is_dir(), "build it before: python -m support.tutorials"
    code = program("cuda", image_ops=form == "image-ops")
    assert forked("-c", code, BUILT / form).stdout.startswith("0 ")
