# SPDX-License-Identifier: Apache-2.0
"""Which variant of a project is built for a process."""

import dataclasses
import types

import pytest

from kernforge.artifact.variant import Backend
from kernforge.artifact.version import Version2
from kernforge.builder import from_source
from kernforge.errors import NetworkError, NoVariantError, ToolchainError, UnavailableError
from kernforge.loader.host import Host
from kernforge.manifest import document
from kernforge.project import targets
from kernforge.system.environment import Environment
from kernforge.toolchain import installed
from kernforge.toolchain.installed import LocalTree
from kernforge.toolchain.local_parts import LocalParts
from kernforge.toolchain.lockfile import LockedTree

MANIFEST = """[general]
name = "my-op"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cuda"]

[torch]
stable-abi = "2.10"

[kernel.g]
backend = "cuda"
depends = []
src = ["g.cu"]
"""
CUDA_12 = Version2(12, 8)


def workspace(tmp_path, toolkit=None, manifest=MANIFEST):
    own = LocalParts()
    if toolkit:
        locked = LockedTree(kind="cuda", version=str(toolkit))
        own = LocalParts(trees={"cuda": LocalTree(locked=locked, path=tmp_path)})
    parsed = document.parse(manifest, source="build.toml")
    found = targets.candidates(parsed, cpu="x86_64", local_toolkits=[toolkit] if toolkit else [])
    return types.SimpleNamespace(candidates=found, local_parts=own)


def host(cuda):
    return Host(
        cpu="x86_64", os="linux", backend=Backend("cuda", cuda), torch=Version2(2, 12), cxx11=True
    )


CPU_TOO = (
    MANIFEST.replace('["cuda"]', '["cpu", "cuda"]')
    + """
[kernel.c]
backend = "cpu"
depends = []
src = ["g.cpp"]
"""
)
CPU = "torch-stable-abi210-cpu-x86_64-linux"


def fitting(workspace, host):
    return from_source.fitting_target(workspace, host, "it", for_cpu="do so")


def test_the_best_loadable_variant_is_built(tmp_path):
    assert fitting(workspace(tmp_path), host(Version2(13, 2))).cuda == (13, 2)


def test_an_installed_toolkit_builds_its_own_version_alone(tmp_path):
    mine = workspace(tmp_path, CUDA_12)
    assert fitting(mine, host(CUDA_12)).cuda == CUDA_12
    with pytest.raises(NoVariantError):
        fitting(mine, host(Version2(13, 2)))


def test_without_a_fitting_variant_each_has_its_reason(tmp_path):
    with pytest.raises(NoVariantError, match="it has no variant for cu118") as raised:
        fitting(workspace(tmp_path), host(Version2(11, 8)))
    assert "cu126-x86_64-linux: needs CUDA 12.6" in raised.value.message
    assert "do so" not in raised.value.hint  # nothing of it is for the CPU
    with pytest.raises(NoVariantError, match="it has no variant for cu118 on") as raised:
        fitting(workspace(tmp_path, manifest=CPU_TOO), host(Version2(11, 8)))
    assert raised.value.hint.startswith(f"{CPU} fits: do so; or ")


def test_a_host_without_a_gpu_gets_the_cpu_variant(tmp_path):
    blind = dataclasses.replace(host(Version2(11, 8)), no_gpu=True)
    assert fitting(workspace(tmp_path, manifest=CPU_TOO), blind).name == CPU
    with pytest.raises(NoVariantError, match="it has no variant for cu118 or the CPU on"):
        fitting(workspace(tmp_path), blind)


def test_a_toolkit_is_only_needed_where_a_gpu_is_seen(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(installed, "find_cuda", lambda _environment: None)  # /usr/local has one
    why, nothing = NetworkError("no index answers"), Environment({"KERNFORGE_HOME": str(tmp_path)})
    seeing = host(Version2(13, 0))
    with pytest.raises(NetworkError, match="there is no CUDA toolkit"):
        from_source.local_fallback(seeing, nothing, why)
    lent = from_source.local_fallback(dataclasses.replace(seeing, no_gpu=True), nothing, why)
    assert lent.trees.keys() == {"torch"}


@pytest.mark.parametrize("falls_back", [NetworkError, UnavailableError, ToolchainError])
def test_installed_parts_are_used_only_where_no_index_gives_them(falls_back):
    """A compiler that is missing, or a sandbox, is not made good by a second try."""
    tried = []

    def make(parts):
        tried.append(parts)
        if len(tried) == 1:
            raise falls_back("not to be had")
        return parts

    if falls_back is ToolchainError:
        with pytest.raises(ToolchainError, match="not to be had"):
            LocalParts().or_installed(make, lambda _why: LocalParts())
    else:
        assert LocalParts().or_installed(make, lambda _why: tried[0]) is tried[0]
