# SPDX-License-Identifier: Apache-2.0
"""Kernels in Python in the place of those that the own tests of `kernels` load from the public hub."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from support.hub_server import HubServer

RELU = """
import torch

from . import layers


def relu(x, out=None):
    found = torch.relu(x)
    return found if out is None else out.copy_(found)
"""
RELU_LAYERS = """
import torch
from torch import nn


class ReLU(nn.Module):
    can_torch_compile = True

    def forward(self, input):
        return torch.relu(input)
"""
SILU = """
import torch
import torch.nn.functional as F

from . import layers


def silu_and_mul(x):
    half = x.shape[-1] // 2
    return F.silu(x[..., :half]) * x[..., half:]
"""
SILU_LAYERS = """
import torch.nn.functional as F
from torch import nn


class SiluAndMul(nn.Module):
    can_torch_compile = True

    def forward(self, input):
        half = input.shape[-1] // 2
        return F.silu(input[..., :half]) * input[..., half:]
"""
VERSION = """
from . import layers


def version():
    return {version}
"""
VERSION_LAYERS = """
from torch import nn


class Version(nn.Module):
    def forward(self):
        return {version}
"""
LINEAR_LAYERS = """
import torch.nn.functional as F
from torch import nn


class LinearImplicitBackward(nn.Module):
    can_torch_compile = True

    def forward(self, input):
        return F.linear(input, self.weight, self.bias)


class LinearBackward(LinearImplicitBackward):
    has_backward = True


class LinearNoBackward(LinearImplicitBackward):
    has_backward = False
"""
MAIN_VERSION = 2
PLAIN = "def silu_and_mul(x):\n    return x\n"
BASE = "build"


def variant(
    name: str,
    files: Mapping[str, str],
    *,
    folder: str = "torch-cpu",
    version: int = 1,
    depends: tuple[str, ...] = (),
    unique: str = "",
    archs: tuple[str, ...] = (),
) -> dict[str, bytes]:
    """The files of one variant, with its document and their digest."""
    backend = "cuda" if re.search(r"-cu(da|\d+)", folder) else "cpu"
    python = name.replace("-", "_")
    data = {path: text.encode() for path, text in files.items()}
    hashes = {
        path: base64.b64encode(hashlib.sha256(found).digest()).decode()
        for path, found in sorted(data.items())
    }
    document = {
        "name": name,
        "id": f"_{python}_{backend}_{unique or f'{version}{hashlib.sha256(repr(files).encode()).hexdigest()[:6]}'}",
        "version": version,
        "license": "Apache-2.0",
        "python-depends": list(depends),
        "kernel-depends": [],
        "backend": {"type": backend, **({"archs": list(archs)} if archs else {})},
        "digest": {"algorithm": "sha256", "files": hashes},
    }
    data["metadata.json"] = json.dumps(document).encode()
    return {f"{BASE}/{folder}/{path}": found for path, found in data.items()}


def both(
    name: str, files: Mapping[str, str], *, archs: tuple[str, ...] = (), **options: Any
) -> dict[str, bytes]:
    """A variant for CPUs and one for CUDA, of the same Python; ``archs`` are of the latter."""
    on_cuda = variant(name, files, folder="torch-cuda", archs=archs, **options)
    return variant(name, files, **options) | on_cuda


def fill(hub: HubServer, tests: Path) -> None:
    """Publish what the tests load; the commits of their locks have the names that are locked."""
    hub.publishers |= {"kernels-community", "kernels-test"}
    hub.organizations |= {"kernels-test-untrusted"}
    relu = {"__init__.py": RELU, "layers.py": RELU_LAYERS}
    silu = {"__init__.py": SILU, "layers.py": SILU_LAYERS}
    files = both("relu", relu, archs=("7.5", "8.0", "9.0"))
    # Builds of other machines, which the list of variants has; one may be this machine's.
    for name in _variants_of(tests):
        archs = ("9.0",) if "-cu" in name else ()
        files |= variant("relu", relu, folder=name, archs=archs)
    for branch in ("main", "v1"):
        hub.add("kernels-community/relu", branch, files)
        hub.add("kernels-community/activation", branch, both("activation", silu))
        hub.add("kernels-test/relu-tvm-ffi", branch, both("relu-tvm-ffi", relu))
    hub.add("kernels-test/silu-and-mul", "v1", both("silu-and-mul", silu))
    cannot = SILU_LAYERS.replace("    can_torch_compile = True\n", "")
    eager = {"__init__.py": SILU, "layers.py": cannot}
    for branch in ("main", "v1"):
        hub.add("kernels-test/op-without-fake-test", branch, both("op-without-fake-test", eager))
    for branch in ("main", "pre-flattening", "without-compat-module"):
        hub.add("kernels-test/flattened-build", branch, both("flattened-build", silu))
    for version in (1, 2, 10):
        python = {
            "__init__.py": VERSION.format(version=version),
            "layers.py": VERSION_LAYERS.format(version=version),
        }
        built = both("versions", python, version=version)
        hub.add("kernels-test/versions", f"v{version}", built)
        if version == MAIN_VERSION:
            hub.add("kernels-test/versions", "main", built)
    invalid = both("python-invalid-dep", relu, depends=("kepler-22b",))
    hub.add("kernels-test/python-invalid-dep", "main", invalid)
    needs = both("python-dep", relu, depends=("einops",))
    hub.add("kernels-test/python-dep", "main", needs)
    old = variant("only-old", relu, folder="torch24-cxx11-cpu-x86_64-linux")
    hub.add("kernels-test/only-torch-2.4", "main", old)
    for name in ("ci-test-kernel", "not-a-trused-org-kernel"):
        for branch in ("main", "v1"):
            hub.add(f"kernels-test-untrusted/{name}", branch, both(name, relu))
    linear = {"__init__.py": "from . import layers\n", "layers.py": LINEAR_LAYERS}
    hub.add("kernels-test/backward-marker-test", "main", both("backward-marker-test", linear))
    _name_locked(hub, tests)


def _name_locked(hub: HubServer, tests: Path) -> None:
    """Give the commits of what the tests' locks name the names that are locked."""
    for lock in tests.rglob("kernels.lock"):
        for entry in json.loads(lock.read_text()):
            depend = entry.get("dependency", {})
            commit = entry.get("lock", {}).get("commit") or entry.get("sha")
            repo_id = depend.get("repo-id") or entry.get("repo_id")
            if repo_id not in hub.repos:
                name = repo_id.partition("/")[2]
                hub.add(repo_id, "v1", both(name, {"__init__.py": PLAIN}))
            repo = hub.repos[repo_id]
            branch = repo.branches.get(f"v{depend.get('version', 1)}") or repo.branches["main"]
            repo.commits[commit] = repo.commits[branch]


def _variants_of(tests: Path) -> list[str]:
    text = (tests / "test_variants.py").read_text()
    names = re.findall(r'"(torch2\d+-[a-z0-9_-]+-(?:linux|darwin))"', text)
    return sorted(set(names))
