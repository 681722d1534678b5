# SPDX-License-Identifier: Apache-2.0
"""Kernels as users get them: wheels by pip and uv."""

import json
import os
import re
import shutil
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from support import projects
from support.programs import output, run
from support.wheel_maker import make_wheel

import kernforge

pytestmark = [pytest.mark.native, pytest.mark.torch]
pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
KERNEL = ROOT / "kernels" / "img2gray"
GUIDE = ROOT / "docs" / "how-to" / "release" / "ship-as-wheels.md"
UV = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
TORCH_LIBRARIES = frozenset({"libc10.so", "libtorch.so", "libtorch_cpu.so"})
LOCAL = "img2gray==1.2.0+torchabi2.10.cpu"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
USE = """
import torch
import img2gray, times_two
image = torch.randint(0, 256, (5, 7, 3), dtype=torch.uint8)
r, g, b = image.to(torch.int64).unbind(-1)
assert torch.equal(img2gray.img2gray(image).to(torch.int64), (21*r + 72*g + 7*b + 50) // 100)
assert times_two.times_two(torch.ones(3)).tolist() == [2, 2, 2]
assert "site-packages" in img2gray.__file__ and "site-packages" in times_two.__file__
"""
LOAD = """
from pathlib import Path
import torch
from {package} import get_local_kernel
kernel = get_local_kernel(Path({build!r}), backend="cpu")
assert kernel.img2gray(torch.zeros(1, 1, 3, dtype=torch.uint8)).item() == 0
"""


@pytest.fixture(scope="module")
def builds(tmp_path_factory, kernforge_cli):
    """Built CPU variants of two kernels, by kernel."""
    root = tmp_path_factory.mktemp("wheel")
    found = {}
    for name, project in (("img2gray", KERNEL), ("times_two", projects.write(root / "times-two"))):
        found[name] = root / "builds" / name
        kernforge_cli("build", project, "--build-dir", found[name], "--variant", "*stable*-cpu-*")
    return found


@pytest.fixture(scope="module")
def index(builds, kernforge_cli, tmp_path_factory):
    """The wheels of both kernels: img2gray as if it were built for several backends."""
    root = tmp_path_factory.mktemp("index")
    variants = root / "img2gray"
    (stable,) = builds["img2gray"].iterdir()
    for name in (stable.name, stable.name.replace("-cpu-", "-cu130-"), "torch29-cpu-x86_64-linux"):
        shutil.copytree(stable, variants / name)
    out = root / "index"
    said = kernforge_cli("wheel", variants, "--as-version", "1.2.0", "--out", out, "--json")
    assert len(json.loads(said.stdout)["wheels"]) == 3
    kernforge_cli("wheel", builds["times_two"], "--out", out)
    return out


@pytest.fixture
def environment(tmp_path):
    """An environment of its own that has this one's packages and kernforge."""
    root = tmp_path / "environment"
    venv.create(root, with_pip=False, symlinks=True)
    (packages,) = root.glob("lib/*/site-packages")
    outer = (sysconfig.get_path("purelib"), Path(kernforge.__file__).parents[1])
    (packages / "outer.pth").write_text("".join(f"{path}\n" for path in outer))
    return root / "bin" / "python"


def block(mark):
    """A block of the guide that is marked as tested."""
    pattern = rf"<!-- tested: {mark} -->\n```[a-z]+\n(.*?)```"
    return re.search(pattern, GUIDE.read_text(), re.DOTALL)[1]


def pip_install(python, *argv):
    words = (*PIP, "--python", python, "install", "--no-cache-dir", *argv)
    return run(words, expect=None)


INSTALLERS = {
    "pip": [*PIP, "--python", "{}", "install", "--no-cache-dir"],
    "uv": [UV, "pip", "install", "--python", "{}", "--no-cache", "--no-deps"],
}


@pytest.mark.road
@pytest.mark.parametrize("installer", INSTALLERS)
def test_installed_wheels_run(index, environment, installer):
    if installer == "uv" and UV is None:
        pytest.skip("uv is not installed")
    argv = [str(environment) if word == "{}" else word for word in INSTALLERS[installer]]
    run((*argv, "--no-index", "--find-links", index, LOCAL, "times-two"))
    run((environment, "-I", "-c", USE))
    check = run((*PIP, "--python", environment, "check"), expect=None)
    assert "img2gray" not in check.stdout
    assert "times-two" not in check.stdout


def test_an_application_pins_its_builds(index, environment, tmp_path):
    constraints = tmp_path / "constraints.txt"
    constraints.write_text(block("constraints"))
    options = ["--no-index", "--find-links", index, "--dry-run", "--report", "-", "-q"]
    done = pip_install(environment, *options, "-c", constraints, "img2gray>=1.2,<2")
    assert done.returncode == 0, done.stderr
    (chosen,) = json.loads(done.stdout)["install"]
    assert chosen["metadata"]["version"] == "1.2.0+torchabi2.10.cpu"
    assert chosen["download_info"]["archive_info"]["hashes"]["sha256"]


@pytest.mark.skipif(UV is None, reason="uv is not installed")
def test_an_application_takes_one_backends_index(builds, kernforge_cli, tmp_path):
    """The project of the guide; torch is a stub, because its own index is far away."""
    kernels = tmp_path / "dist" / "cpu"
    wheel = ("wheel", builds["img2gray"], "--as-version", "1.2.3", "--out", kernels)
    kernforge_cli(*wheel)
    others = tmp_path / "others"
    for name, version in (("torch", "2.13.0"), ("img2gray", "1.9.0")):
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
        member = f"{name}-{version}.dist-info/METADATA"
        make_wheel(others / f"{name}-{version}-py3-none-any.whl", {member: metadata})
    text = block("uv").replace("https://wheels.example.org/cpu", kernels.as_uri())
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "pyproject.toml").write_text(text)
    argv = [UV, "pip", "compile", "pyproject.toml", "--no-cache", "--no-header", "--no-annotate"]
    argv += ["--python", sys.executable, "--find-links", others, "--directory", tmp_path / "app"]
    chosen = output((*argv, "--default-index", others.as_uri()))
    assert chosen.split() == ["img2gray==1.2.3", "torch==2.13.0"]


def test_a_build_for_another_torch_is_refused(index, environment):
    other = "img2gray==1.2.0+torch2.9.cpu"
    done = pip_install(environment, "--no-index", "--find-links", index, "--dry-run", other)
    assert done.returncode == 1
    # On stderr, or with a constraint in pip's configuration on stdout.
    assert "torch==2.9.*" in done.stdout + done.stderr


@pytest.mark.parametrize("package", ["kernforge", "kernels"])
@pytest.mark.parametrize("wheel_first", [True, False], ids=["wheel-first", "loader-first"])
def test_a_process_shares_one_build_of_wheel_and_loader(
    builds, index, environment, package, wheel_first
):
    pip_install(environment, "--no-deps", "--no-index", "--find-links", index, LOCAL, "times-two")
    load = LOAD.format(package=package, build=str(builds["img2gray"]))
    program = USE + load if wheel_first else load + USE
    run((environment, "-I", "-c", program), HF_HUB_OFFLINE="1")


def test_another_build_of_the_same_id_is_refused(builds, index, environment):
    pip_install(environment, "--no-deps", "--no-index", "--find-links", index, LOCAL, "times-two")
    (library,) = environment.parents[1].glob("lib/*/site-packages/img2gray/*.so")
    library.write_bytes(library.read_bytes() + b"0")
    load = LOAD.format(package="kernforge", build=str(builds["img2gray"]))
    done = run((environment, "-I", "-c", load + USE), expect=1)
    assert "ImportError" in done.stderr
    assert "another build" in done.stderr


def test_auditwheel_and_abi3audit_agree(index):
    from auditwheel.architecture import Architecture  # noqa: PLC0415
    from auditwheel.libc import Libc  # noqa: PLC0415
    from auditwheel.wheel_abi import analyze_wheel_abi  # noqa: PLC0415

    for wheel in index.glob("*.whl"):
        found = analyze_wheel_abi(
            Libc.GLIBC,
            Architecture.x86_64,
            wheel,
            TORCH_LIBRARIES,
            disable_isa_ext_check=False,
            allow_graft=False,
        )
        assert found.overall_policy.name in wheel.name
        said = output((sys.executable, "-m", "abi3audit", "--strict", "--report", wheel))
        (spec,) = json.loads(said)["specs"].values()
        (library,) = spec["wheel"]
        assert library["result"]["is_abi3"]
        assert not library["result"]["non_abi3_symbols"]
