# SPDX-License-Identifier: Apache-2.0
"""Tutorial A, img2gray with build.toml of edition 2 or 1: built, run, published, loaded."""

import json
import os
import sys

import pytest
import torch
from support.tutorials import BUILT, FIXED, FORMS, GRAY, LOCAL, USE

pytestmark = [pytest.mark.native, pytest.mark.torch]

SERIES = "torch" + "".join(torch.__version__.split(".")[:2])
CPU = f"{SERIES}-cxx11-cpu-x86_64-linux"
CUDA = f"{SERIES}-cxx11-cu130-x86_64-linux"
OURS = "import kernforge; kernel = kernforge.get_kernel('tutorial/img2gray', version=1)"
THEIRS = (
    "import kernels; kernel = kernels.get_kernel('tutorial/img2gray', version=1, backend='cpu')"
)


def program(device="cpu", load=LOCAL):
    weights, gray = "0.21 0.72 0.07", GRAY[device]
    return USE.format(load=load, device=device, weights=weights, gray=gray, function="img2gray")


@pytest.mark.parametrize("form", FORMS)
def test_unchanged_project_builds_for_one_architecture(kernforge_cli, tutorial, form):
    root = tutorial("img2gray", edits=FORMS[form])
    before = (root / "build.toml").read_bytes()
    done = kernforge_cli("build", root, "--variant", CUDA, "--arch", "9.0", "--json")
    assert list(json.loads(done.stdout)["variants"]) == [CUDA]
    (note,) = (line for line in done.stderr.splitlines() if "is of edition" in line)
    assert 'is of edition 2, read as edition 5 with backends = ["cuda"]' in note
    assert (root / "build.toml").read_bytes() == before


@pytest.mark.parametrize("edits", [(), FIXED], ids=["own namespace", "fixed namespace"])
def test_cpu_variant_matches_the_formula(kernforge_cli, tutorial, fork_server, edits):
    root = tutorial("img2gray", "img2gray-cpu", edits=edits)
    kernforge_cli("build", root, "--variant", CPU)
    done = fork_server.run([sys.executable, "-c", program(), root])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0 ")


def test_unchanged_project_is_published_and_loaded(kernforge_cli, tutorial, tmp_path, fork_server):
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
        done = fork_server.run([sys.executable, "-c", program(load=load)], env=environment)
        assert done.returncode == 0, done.stderr
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
def test_gpu_variant_matches_the_formula(fork_server, form):
    """With the products and sums joined, as nvcc does unless it is told not to."""
    assert (BUILT / form).is_dir(), "build it before: python -m support.tutorials"
    done = fork_server.run([sys.executable, "-c", program("cuda"), BUILT / form])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0 ")
