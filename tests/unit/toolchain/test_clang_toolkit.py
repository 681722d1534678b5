# SPDX-License-Identifier: Apache-2.0
"""A toolkit around clang, from wheels on a real index; the wheels' layout is that of the real ones."""

import pytest
from support.wheel_maker import make_wheel

from kernforge.errors import IntegrityError, ToolchainError, UsageError
from kernforge.store.local import Store
from kernforge.toolchain import local_parts
from kernforge.toolchain.index.index import Index
from kernforge.toolchain.index.wheels import Wheels
from kernforge.toolchain.local_parts import LocalParts, LocalPartsOptions
from kernforge.toolchain.lockfile import (
    Lock,
    LockedCompiler,
    LockedToolkit,
    from_json,
    identity,
    toolkit_key,
)
from kernforge.toolchain.provision import Toolchains
from kernforge.toolchain.resolver import Needs, lacking, make

TAG = "py3-none-manylinux2014_x86_64"
COMPILER = LockedCompiler(identity="g++ 12", target="x86_64-linux-gnu")
BY_CLANG = LocalParts(cuda_compiler="clang")
NEEDS = Needs(cuda=frozenset({"12.8"}), torch=frozenset())
WHEELS = {
    f"nvidia_cuda_nvcc_cu12-12.8.93-{TAG}.whl": {
        "nvidia/cuda_nvcc/bin/ptxas": b"ptxas of 12.8",
        "nvidia/cuda_nvcc/include/crt/host_config.h": b"//",
        "nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc": b"BC",
        "nvidia/cuda_nvcc/nvvm/lib64/libnvvm.so": b"large",
    },
    f"nvidia_cuda_runtime_cu12-12.8.90-{TAG}.whl": {
        "nvidia/cuda_runtime/include/cuda.h": b"12080",
        "nvidia/cuda_runtime/lib/libcudart.so.12": b"dynamic",
    },
    f"nvidia_cuda_runtime_cu12-12.9.79-{TAG}.whl": {
        "nvidia/cuda_runtime/include/cuda.h": b"12090",
        "nvidia/cuda_runtime/lib/libcudart_static.a": b"static",
    },
    f"nvidia_cuda_cccl_cu12-12.8.90-{TAG}.whl": {"nvidia/cuda_cccl/include/cub/cub.cuh": b"//"},
    f"nvidia_cublas_cu12-12.8.4-{TAG}.whl": {
        "nvidia/cublas/include/cublas_v2.h": b"//",
        "nvidia/cublas/lib/libcublas.so.12": b"huge",
    },
    f"nvidia_cuda_nvcc-13.0.88-{TAG}.whl": {
        "nvidia/cu13/bin/fatbinary": b"fatbinary of 13.0",
        "nvidia/cu13/bin/ptxas": b"ptxas of 13.0",
    },
    f"ziglang-0.17.0-{TAG}.whl": {"ziglang/zig": b"clang", "ziglang/lib/std/std.zig": b"zig"},
    f"clang_tidy-22.1.8-{TAG}.whl": {
        "clang_tidy/data/bin/clang-tidy": b"large",
        "clang_tidy/data/lib/clang/22/include/__clang_cuda_runtime_wrapper.h": b"//",
    },
}
PINS = {
    "12.8.1": ("nvcc-cu12==12.8.93", "runtime-cu12==12.8.90", "cccl-cu12==12.8.90"),
    "12.9.1": ("nvcc-cu12==12.9.86", "runtime-cu12==12.9.79", "cccl-cu12==12.9.27"),
    "13.0.3": ("nvcc==13.0.88",),
}


def add(server, name, members):
    server.add(make_wheel(server.root / name, members))


@pytest.fixture
def index(index_server):
    for name, members in WHEELS.items():
        add(index_server, name, members)
    for version, pins in PINS.items():
        lines = ["Metadata-Version: 2.1", "Name: cuda-toolkit", f"Version: {version}"]
        lines += [f"Requires-Dist: nvidia-cuda-{pin}.*; extra == 'x'" for pin in pins]
        lines += ["Requires-Dist: nvidia-cublas-cu12==12.8.4.*; extra == 'cublas'"]
        metadata = {f"cuda_toolkit-{version}.dist-info/METADATA": "\n".join(lines).encode()}
        add(index_server, f"cuda_toolkit-{version}-py2.py3-none-any.whl", metadata)
    return index_server


@pytest.fixture
def wheels(index, transport, tmp_path, progress):
    return Wheels(lambda: Index(index.config, transport), tmp_path / "downloads", progress)


def lock_of(wheels, needs=NEEDS, mine=BY_CLANG):
    return make(needs, wheels, cpu="x86_64", compiler=COMPILER, local_parts=mine)


def test_every_part_is_pinned_by_its_record(wheels):
    lock = lock_of(wheels)
    kit = lock.cuda["12.8"]
    assert (kit.release, kit.clang.release) == ("12.8.1", "22.1.8")
    assert [wheel.file.split("-")[:2] for wheel in kit.wheels] == [
        ["nvidia_cuda_nvcc_cu12", "12.8.93"],
        ["nvidia_cuda_runtime_cu12", "12.8.90"],
        ["nvidia_cuda_cccl_cu12", "12.8.90"],
    ]
    assert all(wheel.record and wheel.sha256 for wheel in (*kit.wheels, *kit.clang.wheels))
    assert from_json(lock.to_json()) == lock
    assert "127.0.0.1" not in lock.to_json()


def test_the_tree_has_what_clang_looks_for_and_nothing_large(wheels, tmp_path):
    kit = lock_of(wheels).cuda["12.8"]
    tree = Toolchains(Store(tmp_path / "store"), wheels).toolkit(kit)
    found = {str(p.relative_to(tree)): p.read_bytes() for p in tree.rglob("*") if p.is_file()}
    assert found == {
        "bin/ptxas": b"ptxas of 12.8",
        "bin/fatbinary": b"fatbinary of 13.0",
        "bin/zig": b"clang",
        "clang/include/__clang_cuda_runtime_wrapper.h": b"//",
        "clang/empty/curand_mtgp32_kernel.h": b"",
        "include/crt/host_config.h": b"//",
        "include/cub/cub.cuh": b"//",
        "include/cuda.h": b"12080",
        "lib64/libcudart_static.a": b"static",
        "nvvm/libdevice/libdevice.10.bc": b"BC",
    }
    for program in ("zig", "ptxas", "fatbinary"):
        assert (tree / "bin" / program).stat().st_mode & 0o100


def test_a_damaged_part_is_refused_and_nothing_is_stored(wheels, index, tmp_path):
    (name,) = [name for name in WHEELS if name.startswith("ziglang")]
    make_wheel(index.root / name, WHEELS[name], tampered=("ziglang/zig",))
    kit = lock_of(wheels).cuda["12.8"]
    store = Store(tmp_path / "store")
    with pytest.raises(IntegrityError, match="ziglang/zig"):
        Toolchains(store, wheels).toolkit(kit)
    assert not store.has("toolchains", toolkit_key(kit))


def test_the_headers_of_cudas_libraries_are_those_of_the_same_release(wheels):
    needs = Needs(cuda=frozenset({"12.8"}), torch=frozenset(), libraries=True)
    lock = lock_of(wheels, needs)
    assert [wheel.file.split("-")[0] for wheel in lock.cuda["12.8"].libraries] == [
        "nvidia_cublas_cu12"
    ]
    assert not lacking(needs, lock, BY_CLANG).names


def test_an_index_without_the_static_runtime_is_reported(wheels, index):
    (name,) = [name for name in WHEELS if "12.9.79" in name]
    make_wheel(index.root / name, {"nvidia/cuda_runtime/include/cuda.h": b"12090"})
    with pytest.raises(ToolchainError, match=r"12\.9\.79.* holds no libcudart_static\.a"):
        lock_of(wheels)


def test_without_the_wish_the_error_names_it(wheels):
    with pytest.raises(ToolchainError, match="no package-index wheels") as caught:
        lock_of(wheels, mine=LocalParts())
    assert "--cuda-compiler clang" in caught.value.hint


@pytest.mark.parametrize(
    ("locked", "wanted", "again"),
    [
        ("clang", "", False),
        ("clang", "clang", False),
        ("clang", "nvcc", True),
        ("nvcc", "", False),
        ("nvcc", "nvcc", False),
        ("nvcc", "clang", True),
    ],
)
def test_a_lock_keeps_its_compiler_until_another_is_named(wheels, locked, wanted, again):
    lock = lock_of(wheels)
    if locked == "nvcc":
        kit = LockedToolkit(release="12.8.1", directory="aa")
        lock = Lock(platform="x86_64-linux", compiler=COMPILER, cuda={"12.8": kit})
    assert bool(lacking(NEEDS, lock, LocalParts(cuda_compiler=wanted)).names) is again


def test_cuda_13_is_nvccs_whatever_is_wished():
    assert not BY_CLANG.by_clang("13.0")


def test_the_host_compilers_directory_is_part_of_the_host_compiler(wheels):
    lock = lock_of(wheels)
    assert identity("gcc", lock) == identity("cxx", lock) == COMPILER.key


@pytest.mark.parametrize(
    ("brought", "message"),
    [
        (LocalPartsOptions(cuda_compiler="clang", cuda_redist="https://example.org"), "archives"),
        (LocalPartsOptions(cuda_compiler="icx"), "'icx'"),
    ],
)
def test_contradicting_wishes_are_refused(brought, message, tmp_path, progress):
    with pytest.raises(UsageError, match=message):
        local_parts.find_local_parts(
            brought, "", {}, connect=lambda: None, downloads=tmp_path, progress=progress
        )
