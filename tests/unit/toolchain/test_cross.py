# SPDX-License-Identifier: Apache-2.0
"""What a lock has for another processor, and what it lacks."""

from dataclasses import replace

import pytest
from support.locks import table, tree

from kernforge.errors import IntegrityError, ToolchainError
from kernforge.system.process import run
from kernforge.toolchain import host_compiler, lockfile, provision, resolver
from kernforge.toolchain.lockfile import (
    Lock,
    LockedCompiler,
    LockedFrontEnd,
    LockedWheel,
    Tree,
)

NATIVE = LockedCompiler(identity="g++ 12", target="x86_64-linux-gnu")
CROSS = LockedCompiler(identity="aarch64-linux-gnu-g++ 12", target="aarch64-linux-gnu")
TORCH = "torch-2.10.0-cp310-cp310-manylinux_2_28_{cpu}.whl"
RUNTIME = "nvidia_cuda_runtime-13.0.96-py3-none-manylinux_2_17_{cpu}.whl"
WANTED = frozenset(
    {
        Tree("cxx", cpu="aarch64"),
        Tree("torch", "2.10", "aarch64"),
        Tree("cudart", "13.0", "aarch64"),
    }
)


def wheel(file):
    return LockedWheel(file=file, sha256="0" * 64, record="1" * 64)


def locked(*cross):
    """A lock for x86_64, and with these kinds of trees for another processor."""
    toolkit = tree("cuda", "13.0", wheel(RUNTIME.format(cpu="x86_64")), release="13.0.2")
    here = tree("torch", "2.10", wheel(TORCH.format(cpu="x86_64")), release="2.10.0")
    there = {
        "torch": tree("torch", "2.10", wheel(TORCH.format(cpu="aarch64")), cpu="aarch64"),
        "cudart": tree("cudart", "13.0", wheel(RUNTIME.format(cpu="aarch64")), cpu="aarch64"),
    }
    return Lock(
        platform="x86_64-linux",
        compilers={"cxx": NATIVE, **({"aarch64-cxx": CROSS} if cross else {})},
        trees=table(toolkit, here, *(there[kind] for kind in cross)),
    )


def resolve(wheels, *wanted, old=None):
    compilers = {"cxx": NATIVE, "aarch64-cxx": CROSS}
    return resolver.make(wanted, wheels, cpu="x86_64", compilers=compilers, old=old).trees


@pytest.fixture
def wheels(wheels, index_server):
    for cpu in ("x86_64", "aarch64"):
        for file, members in (
            (TORCH, {"torch/include/ATen/ATen.h": cpu.encode()}),
            (RUNTIME, {"nvidia/cu13/lib/libcudart_static.a": cpu.encode()}),
            (RUNTIME.replace("13.0.96", "13.0.99"), {"nvidia/cu13/lib/libcudart_static.a": b"x"}),
        ):
            index_server.add_wheel(file.format(cpu=cpu), members)
    return wheels


def test_the_other_processors_wheels_are_locked_and_the_runtime_is_of_the_same_release(wheels):
    found = resolve(wheels, *WANTED, old=locked())
    assert found["aarch64-torch-2.10"].wheels[0].file == TORCH.format(cpu="aarch64")
    # 13.0.99 is newer, but the toolkit's own runtime is 13.0.96.
    assert found["aarch64-cudart-13.0"].wheels[0].file == RUNTIME.format(cpu="aarch64")


def test_cuda_12_is_linked_with_the_runtime_that_its_toolkit_has(wheels, index_server):
    file = "nvidia_cuda_runtime_cu12-{}-py3-none-manylinux_2_17_aarch64.whl"
    members = {"nvidia/cuda_runtime/lib/libcudart_static.a": b"12"}
    for release in ("12.8.90", "12.9.79", "12.9.99"):
        index_server.add_wheel(file.format(release), members)
    named = {
        name: wheel(f"{name}-1-py3-none-any.whl") for name in ("compiler", "optimizer", "headers")
    }
    runtime = wheel(file.format("12.9.79").replace("aarch64", "x86_64"))
    front = LockedFrontEnd(release="13.0.3", runtime=runtime, **named)

    def runtime_of(**toolkit):
        old = locked().having(tree("cuda", "12.8", **toolkit))
        (found,) = resolve(wheels, Tree("cudart", "12.8", "aarch64"), old=old).values()
        return found.wheels[0].file

    assert runtime_of(front_end=front) == file.format("12.9.79")
    # An installed toolkit says nothing of the index's wheels: the newest that has the library.
    assert runtime_of(digest="d") == file.format("12.9.99")


def test_what_is_locked_is_put_into_the_store(wheels, toolchains):
    found = resolve(wheels, *WANTED, old=locked())
    runtime = toolchains.path(found["aarch64-cudart-13.0"])
    assert (runtime / "lib" / "libcudart_static.a").read_bytes() == b"aarch64"
    assert [p.name for p in runtime.rglob("*") if p.is_file()] == ["libcudart_static.a"]
    headers = toolchains.path(found["aarch64-torch-2.10"])
    assert (headers / "include" / "ATen" / "ATen.h").read_bytes() == b"aarch64"


def test_another_runtime_than_the_locked_one_is_refused(wheels, toolchains):
    (found,) = resolve(wheels, Tree("cudart", "13.0", "aarch64"), old=locked()).values()
    forged = replace(found, wheels=(replace(found.wheels[0], record="2" * 64),))
    with pytest.raises(IntegrityError):
        toolchains.path(forged)
    with pytest.raises(ToolchainError, match="not a wheel of"):
        toolchains.path(replace(found, wheels=(wheel("evil-1-py3-none-any.whl"),)))


def test_an_index_without_the_runtime_says_so(wheels):
    with pytest.raises(ToolchainError, match=r"has nvidia-cuda-runtime==13\.2.* for aarch64 Linux"):
        resolve(wheels, Tree("cudart", "13.2", "aarch64"))


def test_what_a_lock_lacks_is_named_with_the_processor():
    assert not resolver.lacking(WANTED, locked("torch", "cudart"))
    assert sorted(map(str, resolver.lacking(WANTED, locked()))) == [
        "CUDA 13.0 for aarch64",
        "compiler for aarch64",
        "torch 2.10 for aarch64",
    ]
    assert resolver.lacking(WANTED, locked("torch")) == {Tree("cudart", "13.0", "aarch64")}


def test_a_lock_with_another_processor_is_written_read_and_merged():
    full = locked("torch", "cudart")
    assert lockfile.from_json(full.to_json()) == full
    assert locked().merged(full) == full
    assert locked("torch").merged(locked("cudart")) == full


def test_each_tree_is_what_the_lock_says_of_that_processor():
    full = locked("torch", "cudart")
    assert provision.identity("aarch64-cxx", full) == CROSS.key
    assert provision.identity("cxx", full) == NATIVE.key
    with pytest.raises(ToolchainError, match=r"aarch64-torch-2\.11"):
        provision.identity("aarch64-torch-2.11", full)


def test_a_variant_for_another_processor_names_its_compiler_alone():
    full = locked("torch", "cudart")
    part = full.part({"aarch64-cxx", "aarch64-torch-2.10", "cuda-13.0"})
    assert part.compilers == {"aarch64-cxx": CROSS}
    assert set(part.trees) == {"aarch64-torch-2.10", "cuda-13.0"}


def test_a_lock_cannot_name_a_program_as_a_processor(tmp_path):
    program = tmp_path / "evil-linux-gnu-g++"
    program.write_text("#!/bin/sh\ntouch started\n")
    program.chmod(0o755)
    with pytest.raises(ToolchainError, match="nothing is built for"):
        host_compiler.find_cross("evil", {"PATH": str(tmp_path)}, run)


def test_a_compiler_of_another_target_is_refused(tmp_path):
    program = tmp_path / "aarch64-linux-gnu-g++"
    program.write_text('#!/bin/sh\nexec g++ "$@"\n')
    program.chmod(0o755)
    with pytest.raises(ToolchainError, match="compiles for"):
        host_compiler.find_cross("aarch64", {"PATH": f"{tmp_path}:/usr/bin:/bin"}, run)
