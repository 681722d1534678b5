# SPDX-License-Identifier: Apache-2.0
"""Which variant of a project is built for a process."""

import types

import pytest

from kernforge.artifact.variant import Backend
from kernforge.artifact.version import Version2
from kernforge.build import from_source
from kernforge.errors import NoVariantError
from kernforge.loader.host import Host
from kernforge.manifest import document
from kernforge.project import targets
from kernforge.toolchain.installed import CudaHome
from kernforge.toolchain.local_parts import LocalParts

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


def workspace(tmp_path, toolkit=None):
    own = LocalParts(
        cuda_home=toolkit and CudaHome(path=tmp_path, version=toolkit, release="", digest="")
    )
    manifest = document.parse(MANIFEST, source="build.toml")
    found = targets.candidates(manifest, cpu="x86_64", local_toolkits=[toolkit] if toolkit else [])
    return types.SimpleNamespace(candidates=found, local_parts=own)


def host(cuda):
    return Host(
        cpu="x86_64", os="linux", backend=Backend("cuda", cuda), torch=Version2(2, 12), cxx11=True
    )


def test_the_best_that_the_process_can_load_is_built(tmp_path):
    found = from_source.fitting_target(workspace(tmp_path), host(Version2(13, 2)), "it")
    assert found.cuda == (13, 2)


def test_a_toolkit_of_the_users_builds_its_own_version_alone(tmp_path):
    mine = workspace(tmp_path, CUDA_12)
    assert from_source.fitting_target(mine, host(CUDA_12), "it").cuda == CUDA_12
    with pytest.raises(NoVariantError):
        from_source.fitting_target(mine, host(Version2(13, 2)), "it")


def test_where_none_fits_each_variant_has_its_reason(tmp_path):
    with pytest.raises(NoVariantError, match="it has no variant for cu118") as raised:
        from_source.fitting_target(workspace(tmp_path), host(Version2(11, 8)), "it")
    assert "cu126-x86_64-linux: needs CUDA 12.6" in raised.value.message
