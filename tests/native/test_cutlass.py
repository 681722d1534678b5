# SPDX-License-Identifier: Apache-2.0
"""CUTLASS in other projects' wheels is the release's own: two sources have the same headers."""

import os

import pytest
from packaging.specifiers import SpecifierSet

from kernforge.store.local import Store
from kernforge.toolchain import header_libraries, resolver
from kernforge.toolchain.index.wheels import Wheels
from kernforge.toolchain.lockfile import LockedTree
from kernforge.toolchain.provision import Toolchains

pytestmark = pytest.mark.native


@pytest.fixture
def headers(kept_home, progress):
    """Reads the headers of a wheel, as content by path."""
    store = Store(kept_home / "store")
    wheels = Wheels.of(os.environ, store.root / "downloads", progress)

    def read(project, version, release):
        wheel = resolver.matching(wheels, project, SpecifierSet(f"=={version}"), "x86_64")
        pinned = (resolver.by_record(wheel, wheels),)
        locked = LockedTree(kind="cutlass_4_0", release=release, wheels=pinned)
        tree = Toolchains(store, wheels).path(locked) / "include"
        return {
            p.relative_to(tree).as_posix(): p.read_bytes() for p in tree.rglob("*") if p.is_file()
        }

    return read


def test_two_sources_of_a_release_are_equal(headers):
    release = "4.2.0"
    own = headers("nvidia-cutlass", "4.2.0.0", release)
    carried = headers("sgl-kernel", "0.3.21", release)
    assert len(carried) > 800
    assert {path for path, data in carried.items() if own.get(path) != data} == set()
    assert header_libraries.release(carried) == release


@pytest.mark.parametrize("name", ["cutlass_3_9", "cutlass_4_4"])
def test_a_wheel_has_the_release_that_it_is_taken_for(headers, name):
    wheel = header_libraries.CARRIED[name]
    found = headers(wheel.project, wheel.version, wheel.release)
    assert header_libraries.release(found) == wheel.release
    assert {"cute/tensor.hpp", "cutlass/gemm/device/gemm_universal_adapter.h"} <= found.keys()
