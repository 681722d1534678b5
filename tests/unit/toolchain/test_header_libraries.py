# SPDX-License-Identifier: Apache-2.0
"""CUTLASS from a wheel of a real index, and from files that the user names."""

import pytest

from kernforge.errors import ToolchainError, UsageError
from kernforge.store.local import Store
from kernforge.toolchain import header_libraries
from kernforge.toolchain.local_parts import LocalParts
from kernforge.toolchain.lockfile import LockedCompiler, Tree, from_json
from kernforge.toolchain.provision import Toolchains
from kernforge.toolchain.resolver import lacking, make

COMPILERS = {"cxx": LockedCompiler(identity="g++ 12", target="x86_64-linux-gnu")}
VERSION = b"#define CUTLASS_MAJOR 4\n#define CUTLASS_MINOR 0\n#define CUTLASS_PATCH 0\n"
TREE = {
    "include/cutlass/cutlass.h": b"// cutlass",
    "include/cutlass/version.h": VERSION,
    "include/cute/tensor.hpp": b"// cute",
    "tools/util/include/cutlass/util/packed_stride.hpp": b"// util",
    "README.md": b"text",
}
HEADERS = [
    "cute/tensor.hpp",
    "cutlass/cutlass.h",
    "cutlass/util/packed_stride.hpp",
    "cutlass/version.h",
]


def needs(*names):
    return frozenset(map(Tree, names))


@pytest.fixture
def checkout(tmp_path):
    for path, data in TREE.items():
        (tmp_path / "cutlass" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cutlass" / path).write_bytes(data)
    return tmp_path / "cutlass"


def headers_in(tree):
    below = tree / "include"
    return sorted(p.relative_to(below).as_posix() for p in below.rglob("*") if p.is_file())


def test_a_wheel_of_the_release_is_read_by_ranges_and_pinned(wheels, toolchains, index_server):
    members = {f"cutlass_library/source/{name}": data for name, data in TREE.items()}
    members["cutlass_library/big.bin"] = bytes(100)
    file = "nvidia_cutlass-3.6.0.0-py3-none-any.whl"
    index_server.add_wheel(file, members)
    lock = make(needs("cutlass_3_6"), wheels, cpu="x86_64", compilers=COMPILERS)
    assert lock.trees["cutlass_3_6"].wheels[0].file == file
    assert from_json(lock.to_json()) == lock
    tree = toolchains.path(lock.trees["cutlass_3_6"])
    assert headers_in(tree) == HEADERS


@pytest.mark.parametrize(
    ("name", "file", "below"),
    [
        ("cutlass_3_9", "sgl_kernel-0.1.2.post1-cp39-abi3-manylinux2014_aarch64.whl", "deep_gemm"),
        ("cutlass_4_4", "flashinfer_python-0.6.10-py3-none-any.whl", "flashinfer/data/cutlass"),
    ],
)
def test_wheels_of_others_give_cutlass_alone(
    wheels, toolchains, index_server, name, file, *, below
):
    members = {f"{below}/{path}": data for path, data in TREE.items()}
    members |= {f"{below}/include/theirs/x.cuh": b"//", "deep_gemm/jit/cutlass/x.h": b"//"}
    index_server.add_wheel(file, members)
    lock = make(needs(name), wheels, cpu="x86_64", compilers=COMPILERS)
    carried = header_libraries.CARRIED[name]
    assert (lock.trees[name].wheels[0].file, lock.trees[name].release) == (file, carried.release)
    tree = toolchains.path(lock.trees[name])
    assert headers_in(tree) == HEADERS


def test_a_release_without_a_wheel_says_where_to_put_it(wheels):
    name = "cutlass_2_10"
    with pytest.raises(ToolchainError, match="no package index carries it") as caught:
        make(needs(name), wheels, cpu="x86_64", compilers=COMPILERS)
    assert "CUTLASS_SRC_DIR" in caught.value.hint


def users(checkout):
    return LocalParts(trees={"cutlass_4_0": header_libraries.identify("cutlass_4_0", checkout)})


def test_files_of_the_users_are_pinned_by_their_content(wheels, checkout, tmp_path):
    own = users(checkout)
    assert own.trees["cutlass_4_0"].locked.release == "4.0.0"
    lock = make(needs("cutlass_4_0"), wheels, cpu="x86_64", compilers=COMPILERS, local_parts=own)
    assert str(checkout) not in lock.to_json()
    tree = Toolchains(Store(tmp_path / "store"), wheels, own).path(lock.trees["cutlass_4_0"])
    assert headers_in(tree) == HEADERS
    # Once in the store they need not be named again.
    again = Toolchains(Store(tmp_path / "store"), wheels)
    assert again.path(lock.trees["cutlass_4_0"]) == tree


def test_other_files_than_the_locked_ones_are_noticed(wheels, checkout, tmp_path):
    own = users(checkout)
    lock = make(needs("cutlass_4_0"), wheels, cpu="x86_64", compilers=COMPILERS, local_parts=own)
    assert not lacking(needs("cutlass_4_0"), lock, own)
    (checkout / "include/cute/tensor.hpp").write_bytes(b"// edited")
    edited = users(checkout)
    assert lacking(needs("cutlass_4_0"), lock, edited) == needs("cutlass_4_0")
    with pytest.raises(ToolchainError, match="and here is"):
        Toolchains(Store(tmp_path / "store"), wheels, edited).path(lock.trees["cutlass_4_0"])


@pytest.mark.parametrize("name", ["", "nowhere", "cutlass.tar.gz"])
def test_a_directory_without_cutlass_is_refused(tmp_path, name):
    (tmp_path / "cutlass.tar.gz").write_bytes(b"an archive")
    with pytest.raises(UsageError, match="is not a CUTLASS checkout") as caught:
        header_libraries.identify("cutlass_4_0", tmp_path / name)
    assert "unpack" in caught.value.hint
