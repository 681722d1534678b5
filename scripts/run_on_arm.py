# SPDX-License-Identifier: Apache-2.0
"""Run CPU variants for ARM in an emulator: both clients load them, and results are right there.

The variants are built on this machine, an x86_64 one, by the cross compiler, and published to a
registry directory. An emulator (``qemu-aarch64-static`` of the package qemu-user-static) then runs
an aarch64 Python with torch's aarch64 wheel. Python comes from Debian's packages for arm64, the
wheels from pip's index; both are fetched into the work directory, once.

    python scripts/run_on_arm.py kernels/img2gray kernels/relu-scale
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "arm.json"
QEMU = "qemu-aarch64-static"
TORCH = "2.10.0"
"""The newest whose aarch64 wheel on the index is for the CPU alone and needs nothing else."""
PACKAGES = ("python3.11", "libpython3.11-stdlib", "libc6", "libstdc++6", "libgcc-s1", "libgomp1")
WHEELS = (
    *("numpy", "sympy", "networkx", "jinja2", "fsspec", "typing_extensions", "filelock"),
    *("packaging", "platformdirs", "huggingface_hub", "pyyaml", "requests", "tomlkit"),
)
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux2014_aarch64", "manylinux_2_17_aarch64")
# What a kernel is called with, and its reference, in both clients.
USE = r"""
import json, pathlib, platform, sys, time
began = time.monotonic()
import torch
client, repo, registry, project = sys.argv[1:]
sys.path.insert(0, project)
import cases, reference
if client == "kernels":
    import kernels
    kernel = kernels.get_kernel(repo, version=1)
    version = kernels.__version__
else:
    import kernforge
    kernel = kernforge.get_kernel(repo, version=1, registry=registry)
    version = kernforge.__version__
torch.manual_seed(0)
compared = different = 0
def compare(found, wanted):
    global compared, different
    compared += 1
    same = found.dtype == wanted.dtype and torch.equal(found, wanted)
    different += not same
if hasattr(kernel, "img2gray"):
    for case in cases.TEST_CASES:
        image = torch.randint(0, 256, case.shape, dtype=torch.uint8)
        for weights in reference.WEIGHTS:
            compare(kernel.img2gray(image, weights), reference.img2gray(image, weights))
else:
    for shape in cases.SHAPES.values():
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
            x = torch.randn(shape).to(dtype)
            compare(kernel.relu_scale(x, 1.75), reference.relu_scale(x, 1.75).to(dtype))
    x = torch.randn(1000, requires_grad=True)
    kernel.relu_scale(x, 1.75).sum().backward()
    compare(x.grad, reference.relu_scale_backward(torch.ones(1000), x, 1.75).float())
file = pathlib.Path(kernel.__file__)
print("RESULT", json.dumps({
    "client": f"{client} {version}", "machine": platform.machine(),
    "python": platform.python_version(), "torch": torch.__version__,
    "variant": next(p.name for p in [file, *file.parents] if p.name.startswith("torch")),
    "compared_with_reference": compared, "different": different,
    "seconds": round(time.monotonic() - began, 1)}))
"""


def main() -> int:
    """Fetch, build, run; the exit code is 1 if something failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("projects", nargs="+", type=Path)
    parser.add_argument(
        "--work", type=Path, default=Path("build-arm"), help="what is fetched is kept there"
    )
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    for program, package in ((QEMU, "qemu-user-static"), ("apt-get", "apt"), ("dpkg", "dpkg")):
        if shutil.which(program) is None:
            sys.exit(f"{program} is not installed: apt install {package}")
    work = options.work.resolve()
    python, site = _python(work), _site(work)
    rows = [_row(_copy(project, work), work, python, site) for project in options.projects]
    document = {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "built_on": f"{platform.machine()}, {_first_line('aarch64-linux-gnu-g++', '--version')}",
        "run_by": _first_line(QEMU, "--version"),
        "kernels": rows,
    }
    options.out.write_text(json.dumps(document, indent=2) + "\n")
    print(json.dumps(document, indent=2))
    clients = [client for row in rows for client in row["clients"]]
    return int(any(c["different"] or not c["compared_with_reference"] for c in clients))


def _copy(project: Path, work: Path) -> Path:
    """Copy a project, because a build adds this machine's cross compiler to its lock."""
    copy = work / "projects" / project.resolve().name
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns("build"))
    return copy


def _row(project: Path, work: Path, python: Path, site: Path) -> dict[str, Any]:
    """Build and publish a project's variant for ARM, and use it there."""
    manifest = tomllib.loads((project / "build.toml").read_text())["general"]
    built, registry = project / "build", work / "registry" / project.name
    shutil.rmtree(registry, ignore_errors=True)
    pattern = "*-cpu-aarch64-linux"
    _kernforge("build", project, "--variant", pattern, "--build-dir", built)
    (variant,) = built.glob(pattern)
    repo = f"arm/{manifest['name']}"
    registry_options = ("--registry", registry, "--repo-id", repo)
    _kernforge("publish", project, built, *registry_options, "--version", "1.0.0")
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "KERNELS_CACHE": str(registry),
        "KERNFORGE_HOME": str(work / "home"),
        "HOME": str(work / "home"),
        "PYTHONPATH": f"{ROOT / 'src'}:{site}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    root = next(p for p in python.parents if p.name == "root")
    emulated = [QEMU, "-L", str(root), str(python)]
    clients = []
    for client in ("kernforge", "kernels"):
        argv = [*emulated, "-c", USE, client, repo, str(registry), str(project)]
        said = _run(argv, env=environment)
        clients.append(json.loads(re.findall(r"^RESULT (.*)$", said, re.MULTILINE)[-1]))
    return {"project": project.name, "variant": variant.name, "clients": clients}


def _python(work: Path) -> Path:
    """Debian's Python for arm64 in a directory of its own; nothing of this machine is changed."""
    root = work / "root"
    python = root / "usr" / "bin" / PACKAGES[0]
    if python.exists():
        return python
    state = work / "apt"
    for directory in ("state/lists/partial", "cache/archives/partial"):
        (state / directory).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "Dir::State": state / "state",
        "Dir::State::status": state / "status",
        "Dir::Cache": state / "cache",
    }
    apt = [
        "apt-get",
        *(part for name, value in settings.items() for part in ("-o", f"{name}={value}")),
    ]
    _run([*apt, "update"])
    _run([*apt, "-y", "--no-install-recommends", "--download-only", "install", *PACKAGES])
    for package in sorted((state / "cache" / "archives").glob("*.deb")):
        _run(["dpkg", "-x", str(package), str(root)])
    return python


def _site(work: Path) -> Path:
    """Torch, the hub's client and their dependencies, from wheels for aarch64."""
    site, wheels = work / "site", work / "wheels"
    if site.is_dir():
        return site
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:"]
    pip += [part for tag in PLATFORMS for part in ("--platform", tag)]
    pip += ["--python-version", "3.11", "--implementation", "cp", "--dest", str(wheels)]
    pip += [part for abi in ("cp311", "abi3", "none") for part in ("--abi", abi)]
    # pip takes this machine's processor for the markers, by which torch would want CUDA's wheels.
    _run([*pip, "--no-deps", f"torch=={TORCH}", "kernels"])
    _run([*pip, *WHEELS])
    partial = work / "site.part"
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(partial)
    partial.rename(site)
    return site


def _kernforge(*arguments: object) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    _run([sys.executable, "-m", "kernforge", *map(str, arguments)], env=env)


def _run(argv: list[str], env: dict[str, str] | None = None) -> str:
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(argv)[:300]}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def _first_line(*argv: str) -> str:
    return _run(list(argv)).splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
