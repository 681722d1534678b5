# SPDX-License-Identifier: Apache-2.0
"""What a lock has for another processor, and what it lacks."""

import json

import pytest
from support.wheel_maker import make_wheel

from kernforge.errors import IntegrityError, ToolchainError
from kernforge.store.local import Store
from kernforge.system.process import run
from kernforge.toolchain import cross, host_compiler, lockfile, resolver
from kernforge.toolchain.cross import CrossNeeds
from kernforge.toolchain.index.index import Index
from kernforge.toolchain.index.wheels import Wheels
from kernforge.toolchain.lockfile import (
    Lock,
    LockedCompiler,
    LockedCross,
    LockedFrontEnd,
    LockedToolkit,
    LockedTorch,
    LockedWheel,
)
from kernforge.toolchain.provision import Toolchains

NATIVE = LockedCompiler(identity="g++ 12", target="x86_64-linux-gnu")
CROSS = LockedCompiler(identity="aarch64-linux-gnu-g++ 12", target="aarch64-linux-gnu")
TORCH = "torch-2.10.0-cp310-cp310-manylinux_2_28_{cpu}.whl"
RUNTIME = "nvidia_cuda_runtime-13.0.96-py3-none-manylinux_2_17_{cpu}.whl"
WANTED = CrossNeeds(torch=frozenset({"2.10"}), cuda=frozenset({"13.0"}))


def wheel(file):
    return LockedWheel(file=file, sha256="0" * 64, record="1" * 64)


def toolkit():
    return LockedToolkit(release="13.0.2", wheels=(wheel(RUNTIME.format(cpu="x86_64")),))


def locked(**entries):
    x86 = LockedTorch(release="2.10.0", wheel=wheel(TORCH.format(cpu="x86_64")))
    return Lock(
        platform="x86_64-linux",
        compiler=NATIVE,
        torch={"2.10": x86},
        cuda={"13.0": toolkit()},
        cross={"aarch64": LockedCross(compiler=CROSS, **entries)} if entries else {},
    )


def complete():
    arm = LockedTorch(release="2.10.0", wheel=wheel(TORCH.format(cpu="aarch64")))
    return locked(torch={"2.10": arm}, runtime={"13.0": wheel(RUNTIME.format(cpu="aarch64"))})


@pytest.fixture
def wheels(index_server, transport, tmp_path, progress):
    for cpu in ("x86_64", "aarch64"):
        for file, members in (
            (TORCH, {"torch/include/ATen/ATen.h": cpu.encode()}),
            (RUNTIME, {"nvidia/cu13/lib/libcudart_static.a": cpu.encode()}),
            (RUNTIME.replace("13.0.96", "13.0.99"), {"nvidia/cu13/lib/libcudart_static.a": b"x"}),
        ):
            index_server.add(
                make_wheel(index_server.root / "files" / file.format(cpu=cpu), members)
            )
    index = Index(index_server.config, transport)
    return Wheels(lambda: index, tmp_path / "downloads", progress)


def test_the_other_processors_wheels_are_locked_and_the_runtime_is_of_the_same_release(wheels):
    found = cross.resolve("aarch64", WANTED, wheels, CROSS, {"13.0": toolkit()})
    assert found.torch["2.10"].wheel.file == TORCH.format(cpu="aarch64")
    # 13.0.99 is newer, but the toolkit's own runtime is 13.0.96.
    assert found.runtime["13.0"].file == RUNTIME.format(cpu="aarch64")


def test_cuda_12_is_linked_with_the_runtime_that_its_toolkit_has(wheels, index_server):
    file = "nvidia_cuda_runtime_cu12-{}-py3-none-manylinux_2_17_aarch64.whl"
    members = {"nvidia/cuda_runtime/lib/libcudart_static.a": b"12"}
    for release in ("12.8.90", "12.9.79", "12.9.99"):
        index_server.add(make_wheel(index_server.root / "files" / file.format(release), members))
    named = {
        name: wheel(f"{name}-1-py3-none-any.whl") for name in ("compiler", "optimizer", "headers")
    }
    runtime = wheel(file.format("12.9.79").replace("aarch64", "x86_64"))
    front = LockedFrontEnd(release="13.0.3", runtime=runtime, **named)
    needs = CrossNeeds(cuda=frozenset({"12.8"}))

    def runtime_of(toolkits):
        return cross.resolve("aarch64", needs, wheels, CROSS, toolkits).runtime["12.8"].file

    wheels_12 = LockedToolkit(release="12.8.93", front_end=front)
    assert runtime_of({"12.8": wheels_12}) == file.format("12.9.79")
    # An installed toolkit says nothing of the index's wheels: the newest that has the library.
    assert runtime_of({"12.8": LockedToolkit(release="12.8", directory="d")}) == file.format(
        "12.9.99"
    )


def test_what_is_locked_is_put_into_the_store(wheels, tmp_path):
    found = cross.resolve("aarch64", WANTED, wheels, CROSS, {"13.0": toolkit()})
    toolchains = Toolchains(Store(tmp_path / "store"), wheels)
    tree = toolchains.static_runtime(found.runtime["13.0"])
    assert (tree / "lib" / "libcudart_static.a").read_bytes() == b"aarch64"
    assert [p.name for p in tree.rglob("*") if p.is_file()] == ["libcudart_static.a"]
    headers = toolchains.torch_headers(found.torch["2.10"].wheel)
    assert (headers / "include" / "ATen" / "ATen.h").read_bytes() == b"aarch64"


def test_another_runtime_than_the_locked_one_is_refused(wheels, tmp_path):
    found = cross.resolve("aarch64", WANTED, wheels, CROSS, {"13.0": toolkit()})
    forged = LockedWheel(
        file=found.runtime["13.0"].file, sha256=found.runtime["13.0"].sha256, record="2" * 64
    )
    with pytest.raises(IntegrityError):
        Toolchains(Store(tmp_path / "store"), wheels).static_runtime(forged)
    with pytest.raises(ToolchainError, match="not a wheel of"):
        Toolchains(Store(tmp_path / "store"), wheels).static_runtime(
            wheel("evil-1-py3-none-any.whl")
        )


def test_an_index_without_the_runtime_says_so(wheels):
    with pytest.raises(ToolchainError, match=r"13\.2") as caught:
        cross.resolve("aarch64", CrossNeeds(cuda=frozenset({"13.2"})), wheels, CROSS, {})
    assert "aarch64" in caught.value.hint


def test_what_a_lock_lacks_is_named_with_the_processor():
    needs = resolver.Needs(cuda=frozenset(), torch=frozenset(), cross={"aarch64": WANTED})
    assert resolver.lacking(needs, complete()).names == ()
    assert resolver.lacking(needs, locked()).names == (
        "compiler for aarch64",
        "torch 2.10 for aarch64",
        "CUDA 13.0 for aarch64",
    )
    only_torch = locked(torch=complete().cross["aarch64"].torch)
    assert resolver.lacking(needs, only_torch).cross["aarch64"] == CrossNeeds(cuda=WANTED.cuda)


def test_a_lock_with_another_processor_is_written_read_and_merged():
    full = complete()
    assert lockfile.from_json(full.to_json()) == full
    assert "cross" not in json.loads(locked().to_json())
    assert locked().merged(full) == full
    only_torch = locked(torch=full.cross["aarch64"].torch)
    only_runtime = locked(runtime=full.cross["aarch64"].runtime)
    assert only_torch.merged(only_runtime) == full


def test_each_tree_is_what_the_lock_says_of_that_processor():
    full = complete()
    assert lockfile.identity("aarch64-cxx", full) == CROSS.key
    assert lockfile.identity("cxx", full) == NATIVE.key
    assert lockfile.identity("aarch64-torch-2.10", full) == lockfile.identity("torch-2.10", full)
    with pytest.raises(ToolchainError, match=r"2\.11 for aarch64"):
        lockfile.identity("aarch64-torch-2.11", full)


def test_a_variant_for_another_processor_names_its_compiler_alone():
    full = complete()
    part = lockfile.part(full, {"aarch64-cxx", "aarch64-torch-2.10", "cuda-13.0"})
    assert part.compiler.identity == ""
    assert part.cross["aarch64"].compiler == CROSS
    assert (list(part.cross["aarch64"].torch), list(part.cross["aarch64"].runtime)) == (
        ["2.10"],
        [],
    )
    assert (list(part.torch), list(part.cuda)) == ([], ["13.0"])
    # Such a lock says nothing of the machine's own compiler, so any serves.
    assert part.compiler.difference(NATIVE) == ""
    native = lockfile.part(full, {"cxx", "torch-2.10"})
    assert (native.compiler, native.cross) == (NATIVE, {})


def test_a_missing_compiler_says_how_to_get_it(tmp_path):
    with pytest.raises(ToolchainError, match="no C\\+\\+ compiler for aarch64") as caught:
        host_compiler.find_cross("aarch64", str(tmp_path), run)
    assert "apt install g++-aarch64-linux-gnu" in caught.value.hint


def test_a_lock_cannot_name_a_program_as_a_processor(tmp_path):
    program = tmp_path / "evil-linux-gnu-g++"
    program.write_text("#!/bin/sh\ntouch started\n")
    program.chmod(0o755)
    with pytest.raises(ToolchainError, match="nothing is built for"):
        host_compiler.find_cross("evil", str(tmp_path), run)


def test_a_compiler_of_another_target_is_refused(tmp_path):
    program = tmp_path / "aarch64-linux-gnu-g++"
    program.write_text('#!/bin/sh\nexec g++ "$@"\n')
    program.chmod(0o755)
    with pytest.raises(ToolchainError, match="compiles for"):
        host_compiler.find_cross("aarch64", f"{tmp_path}:/usr/bin:/bin", run)
