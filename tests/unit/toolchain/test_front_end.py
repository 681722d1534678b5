# SPDX-License-Identifier: Apache-2.0
"""CUDA 12 from wheels on a real index; the wheels' layout is that of the real ones."""

from dataclasses import replace

import pytest
from support.wheel_maker import make_wheel

from kernforge.artifact.gpu import Arch
from kernforge.artifact.version import Version2
from kernforge.errors import IntegrityError, ManifestError, ToolchainError
from kernforge.store.local import Store
from kernforge.toolchain import front_end, provision
from kernforge.toolchain.lockfile import LockedCompiler, Tree, from_json
from kernforge.toolchain.provision import Toolchains
from kernforge.toolchain.resolver import lacking, make

TAG = "py3-none-manylinux2014_x86_64"
COMPILER = LockedCompiler(identity="g++ 12", target="x86_64-linux-gnu")
CUDA = Version2(12, 8)
NEEDS = frozenset({Tree("cuda", "12.8")})
WHEELS = {
    f"nvidia_cuda_nvcc_cu12-12.8.93-{TAG}.whl": {
        "nvidia/cuda_nvcc/bin/ptxas": b"ptxas of 12.8",
        "nvidia/cuda_nvcc/include/crt/host_config.h": b"//",
        "nvidia/cuda_nvcc/include/crt/host_runtime.h": b"for cudafe++ of 12.8",
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
        "nvidia/cu13/bin/cudafe++": b"cudafe++ of 13.0",
        "nvidia/cu13/bin/fatbinary": b"fatbinary of 13.0",
        "nvidia/cu13/bin/nvcc": b"nvcc of 13.0",
        "nvidia/cu13/bin/nvcc.profile": b"TOP",
        "nvidia/cu13/bin/nvlink": b"nvlink of 13.0",
        "nvidia/cu13/bin/ptxas": b"ptxas of 13.0",
    },
    f"nvidia_nvvm-13.0.88-{TAG}.whl": {
        "nvidia/cu13/nvvm/bin/cicc": b"cicc of 13.0",
        "nvidia/cu13/nvvm/libdevice/libdevice.10.bc": b"BC of 13.0",
    },
    f"nvidia_cuda_crt-13.0.88-{TAG}.whl": {
        "nvidia/cu13/include/crt/host_runtime.h": b"for cudafe++ of 13.0",
        "nvidia/cu13/include/crt/host_config.h": b"of 13.0",
    },
}
PINS = {
    "12.8.1": (
        *("cuda-nvcc-cu12==12.8.93", "cuda-runtime-cu12==12.8.90"),
        "cuda-cccl-cu12==12.8.90",
    ),
    "12.9.1": (
        *("cuda-nvcc-cu12==12.9.86", "cuda-runtime-cu12==12.9.79"),
        "cuda-cccl-cu12==12.9.27",
    ),
    "13.0.3": ("cuda-nvcc==13.0.88", "cuda-crt==13.0.88", "nvvm==13.0.88"),
}


@pytest.fixture
def wheels(wheels, index_server):
    for name, members in WHEELS.items():
        index_server.add_wheel(name, members)
    for version, pins in PINS.items():
        lines = ["Metadata-Version: 2.1", "Name: cuda-toolkit", f"Version: {version}"]
        lines += [f"Requires-Dist: nvidia-{pin}.*; extra == 'x'" for pin in pins]
        lines += ["Requires-Dist: nvidia-cublas-cu12==12.8.4.*; extra == 'cublas'"]
        metadata = {f"cuda_toolkit-{version}.dist-info/METADATA": "\n".join(lines).encode()}
        index_server.add_wheel(f"cuda_toolkit-{version}-py2.py3-none-any.whl", metadata)
    return wheels


def lock_of(wheels, needs=NEEDS, old=None):
    return make(needs, wheels, cpu="x86_64", compilers={"cxx": COMPILER}, old=old)


def test_every_part_is_pinned_by_its_record(wheels):
    lock = lock_of(wheels)
    kit = lock.trees["cuda-12.8"]
    assert (kit.release, kit.front_end.release) == ("12.8.1", "13.0.3")
    assert [wheel.file.split("-")[:2] for wheel in kit.wheels] == [
        ["nvidia_cuda_nvcc_cu12", "12.8.93"],
        ["nvidia_cuda_runtime_cu12", "12.8.90"],
        ["nvidia_cuda_cccl_cu12", "12.8.90"],
    ]
    assert all(wheel.record and wheel.sha256 for wheel in (*kit.wheels, *kit.front_end.wheels))
    assert from_json(lock.to_json()) == lock
    assert "127.0.0.1" not in lock.to_json()


def test_the_tree_has_one_front_end_and_nothing_large(wheels, toolchains):
    kit = lock_of(wheels).trees["cuda-12.8"]
    tree = toolchains.path(kit)
    found = {str(p.relative_to(tree)): p.read_bytes() for p in tree.rglob("*") if p.is_file()}
    written = front_end.texts(kit)
    assert {path: found.pop(path).decode() for path in written} == written
    assert found == {
        "bin/cudafe++": b"cudafe++ of 13.0",
        "bin/fatbinary": b"fatbinary of 13.0",
        "bin/nvcc-13.0": b"nvcc of 13.0",
        "bin/ptxas": b"ptxas of 12.8",
        "include/crt/host_config.h": b"//",
        "include/crt/host_runtime.h": b"for cudafe++ of 13.0",
        "include/cub/cub.cuh": b"//",
        "include/cuda.h": b"12080",
        "lib64/libcudart_static.a": b"static",
        "nvvm/bin/cicc-13.0": b"cicc of 13.0",
        "nvvm/libdevice/libdevice.10.bc": b"BC",
    }
    for program in ("bin/nvcc", "bin/nvcc-13.0", "bin/ptxas", "nvvm/bin/cicc", "bin/fatbinary"):
        assert (tree / program).stat().st_mode & 0o100


def test_what_kernforge_adds_is_part_of_the_key(wheels, monkeypatch):
    kit = lock_of(wheels).trees["cuda-12.8"]
    before = provision.key(kit)
    monkeypatch.setitem(front_end._TEXTS, "bin/nvcc.profile", "version.txt")
    provision.key.cache_clear()
    assert provision.key(kit) != before


def test_a_damaged_part_is_refused_and_nothing_is_stored(wheels, index_server, tmp_path):
    (name,) = [name for name in WHEELS if name.startswith("nvidia_nvvm")]
    make_wheel(
        index_server.root / "files" / name, WHEELS[name], tampered=("nvidia/cu13/nvvm/bin/cicc",)
    )
    kit = lock_of(wheels).trees["cuda-12.8"]
    store = Store(tmp_path / "store")
    with pytest.raises(IntegrityError, match="nvvm/bin/cicc"):
        Toolchains(store, wheels).path(kit)
    assert not store.has("toolchains", provision.key(kit))


def test_the_headers_of_cudas_libraries_are_those_of_the_same_release(wheels):
    needs = NEEDS | {Tree("cuda-libraries", "12.8")}
    without = lock_of(wheels)
    assert lacking(needs, without) == needs - NEEDS
    lock = without.merged(lock_of(wheels, needs - NEEDS, old=without))
    assert [wheel.file.split("-")[0] for wheel in lock.trees["cuda-libraries-12.8"].wheels] == [
        "nvidia_cublas_cu12"
    ]
    assert lock == lock_of(wheels, needs)
    assert not lacking(needs, lock)


def test_an_index_without_the_static_runtime_is_reported(wheels, index_server):
    (name,) = [name for name in WHEELS if "12.9.79" in name]
    members = {"nvidia/cuda_runtime/include/cuda.h": b"12090"}
    make_wheel(index_server.root / "files" / name, members)
    with pytest.raises(ToolchainError, match=r"12\.9\.79.* holds no libcudart_static\.a"):
        lock_of(wheels)


def test_a_lock_may_not_take_the_front_end_from_elsewhere(wheels, toolchains):
    kit = lock_of(wheels).trees["cuda-12.8"]
    other = replace(kit.front_end, optimizer=kit.front_end.runtime)
    with pytest.raises(ToolchainError, match="not a wheel of nvidia-nvvm"):
        toolchains.path(replace(kit, front_end=other))


@pytest.mark.parametrize("release", ["12.4.1", "13.0.3", "x"])
def test_a_lock_of_another_cuda_with_a_front_end_is_refused(wheels, release):
    kit = lock_of(wheels).trees["cuda-12.8"]
    for wrong in (
        replace(kit, release=release),
        replace(kit, wheels=()),
        replace(kit, front_end=replace(kit.front_end, release=release.replace("13.0", "13.2"))),
    ):
        with pytest.raises(ToolchainError, match="kernforge makes 12"):
            provision.key(wrong)


@pytest.mark.parametrize(
    "flags",
    [
        *(("-rdc=true",), ("-O3", "-dc"), ("--relocatable-device-code", "true"), ("-dlto",)),
        *(
            ("-gencode", "arch=compute_90,code=lto_90"),
            ("-gencode=arch=compute_90,code=[sm_90,lto_90]",),
        ),
    ],
)
def test_code_for_a_device_linker_is_refused(flags):
    with pytest.raises(
        ToolchainError, match=r"op\.cu is compiled with .* device linker of CUDA 12\.8"
    ):
        front_end.refuse_device_link(flags, "op.cu", "12.8.1")
    for other in ((), ("-rdc", "false"), ("-O3", "-Xptxas", "-v", "-Drdc=true")):
        front_end.refuse_device_link(other, "op.cu", "12.8.1")


def test_flags_for_a_gpu_that_the_front_end_lacks_are_refused(wheels):
    kit = lock_of(wheels).trees["cuda-12.8"]
    good = ["-gencode", "arch=compute_80,code=sm_80", "-gencode=arch=compute_120,code=compute_120"]
    assert front_end.nvcc_flags(kit, good, "op.cu") == front_end.usual_flags(good)
    bad = [*good, "-gencode=arch=compute_70,code=sm_70", "-arch=sm_101a"]
    with pytest.raises(ToolchainError, match=r"op\.cu is compiled for 7\.0, 10\.1, and"):
        front_end.nvcc_flags(kit, bad, "op.cu")
    assert front_end.nvcc_flags(replace(kit, front_end=None), bad, "op.cu") == ()


def test_nvcc_does_what_nvcc_12_does_unasked():
    usual = front_end.usual_flags(["-O3"])
    assert usual == (
        "-static-global-template-stub=false",
        "-device-entity-has-hidden-visibility=false",
        "-Xfatbin=--compress-mode=speed",
    )
    assert front_end.usual_flags(["--static-global-template-stub=true"]) == usual[1:]
    assert front_end.usual_flags(["-Xfatbin=-compress-all,--compress-mode=size"]) == usual[:2]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("7.0 7.2 7.5 8.0 10.1 12.0+PTX", "7.5 8.0 12.0+PTX"),
        ("7.0", "7.5"),
        ("6.0 9.0a 10.0f", "9.0a 10.0f"),
        ("5.0+PTX 8.0", "7.5+PTX 8.0"),
        ("7.0+PTX 7.5", "7.5+PTX"),
    ],
)
def test_gpus_that_the_front_end_lacks_get_the_oldest_code_that_they_shared(asked, expected):
    archs = [Arch.parse(text) for text in asked.split()]
    assert " ".join(map(str, front_end.supported(archs, CUDA))) == expected


def test_gpus_of_which_none_is_left_are_an_error():
    with pytest.raises(ManifestError, match=r"no 6\.0, 10\.1: it compiles for 7\.5 and later"):
        front_end.supported([Arch(6, 0), Arch(10, 1)], CUDA)
