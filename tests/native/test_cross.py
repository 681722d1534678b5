# SPDX-License-Identifier: Apache-2.0
"""Variants for ARM, built on x86_64 by the distribution's cross compiler."""

import json
import shutil
from pathlib import Path

import pytest
from support import abi_stubs, projects
from support.programs import output

from kernforge.artifact.metadata import Metadata
from kernforge.binary import abi_floor, cubin, elf, fatbin
from kernforge.builder import workspace

GXX = "aarch64-linux-gnu-g++"
QEMU = "qemu-aarch64-static"
DATA = Path(__file__).parents[1] / "data" / "native"
STABLE = "torch-stable-abi210"

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(workspace.this_cpu() != "x86_64", reason="cross-builds start on x86_64"),
    pytest.mark.skipif(shutil.which(GXX) is None, reason=f"{GXX} is not installed"),
]


def built(kernforge_cli, root, *arguments):
    """The directories of the variants of a build, after its checks found no error."""
    document = json.loads(kernforge_cli("build", root, *arguments, "--json").stdout)
    assert [f for f in document["findings"] if f["severity"] == "error"] == []
    return {name: Path(path) for name, path in document["variants"].items()}


def library(variant):
    (path,) = variant.glob("*.so")
    return path.read_bytes()


@pytest.mark.parametrize("stable", [True, False], ids=["stable ABI", "full ABI"])
def test_a_cpu_variant_for_arm_keeps_to_the_floor(kernforge_cli, tmp_path, stable):
    root = projects.write(tmp_path, stable=stable)
    name = f"{STABLE if stable else 'torch213-cxx11'}-cpu-aarch64-linux"
    variant = built(kernforge_cli, root, "--variant", name)[name]
    found = elf.parse(library(variant))
    assert found.machine == "aarch64"
    assert abi_floor.unresolvable(found.undefined) == ()
    versions = {s.version for s in found.undefined if s.version.startswith("GLIBC_")}
    assert versions == {"GLIBC_2.17"}  # the oldest that ARM has
    metadata = Metadata.from_json((variant / "metadata.json").read_bytes())
    assert metadata.provenance.kernforge["compiler"].startswith(GXX)
    lock = json.loads((root / "kernforge.lock").read_text())
    assert lock["compilers"]["aarch64-cxx"]["identity"].startswith(GXX)
    tree = lock["trees"][f"aarch64-torch-2.{10 if stable else 13}"]
    assert "aarch64" in tree["wheels"][0]["file"]


def test_a_variant_for_arm_is_reproducible(kernforge_cli, tmp_path):
    root = projects.write(tmp_path)
    (variant,) = built(kernforge_cli, root, "--system", "aarch64-linux").values()
    # reproduce takes nothing from the store but the toolchain.
    done = kernforge_cli("verify", "--rebuild", variant, "--source", root, "--json")
    (verdict,) = json.loads(done.stdout)
    assert (verdict["variant"], verdict["identical"]) == (variant.name, True)


@pytest.mark.parametrize("cuda", ["cu128", "cu130"])
def test_device_code_for_arm_is_that_for_x86(kernforge_cli, tmp_path, cuda):
    root = projects.write(tmp_path, backends=("cuda",))
    names = [f"{STABLE}-{cuda}-{cpu}-linux" for cpu in ("x86_64", "aarch64")]
    found = built(kernforge_cli, root, *(part for name in names for part in ("--variant", name)))
    x86, arm = (library(found[name]) for name in names)
    assert elf.parse(arm).machine == "aarch64"
    assert abi_floor.unresolvable(elf.parse(arm).undefined) == ()
    assert "libc10_cuda.so" in elf.parse(arm).needed
    assert fatbin.architectures(arm) == fatbin.architectures(x86)
    pairs = list(zip(fatbin.cubins(x86), fatbin.cubins(arm), strict=True))
    assert pairs
    for (arch, here), (other_arch, there) in pairs:
        assert arch == other_arch
        # The hash of a unit's path is in its internal names.
        assert here == cubin.named_like(there, here)


def test_a_missing_cross_compiler_is_reported_first(kernforge_cli, tmp_path, monkeypatch):
    root = projects.write(tmp_path / "project")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("g++", "as", "ld", "sh"):
        (programs / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(programs))
    done = kernforge_cli("build", root, "--system", "aarch64-linux", expect=4)
    assert "no C++ compiler for aarch64 Linux is installed" in done.stderr
    assert "apt install g++-aarch64-linux-gnu" in done.stderr
    assert not (root / "kernforge.lock").exists()


def test_a_lock_of_another_kind_of_machine_is_refused(kernforge_cli, tmp_path):
    root = projects.write(tmp_path)
    built(kernforge_cli, root)
    path = root / "kernforge.lock"
    path.write_text(path.read_text().replace('"x86_64-linux"', '"aarch64-linux"'))
    done = kernforge_cli("build", root, expect=4)
    assert "names compilers that run on aarch64-linux; this is x86_64-linux" in done.stderr


def test_an_unknown_system_is_refused(kernforge_cli, tmp_path):
    root = projects.write(tmp_path)
    assert (
        "-aarch64-linux" in kernforge_cli("build", "--list", root, "--system", "arm64-linux").stdout
    )
    done = kernforge_cli("build", "--list", root, "--system", "riscv64-linux", expect=2)
    assert "x86_64-linux, aarch64-linux" in done.stderr


@pytest.mark.skipif(shutil.which(QEMU) is None, reason=f"{QEMU} is not installed")
def test_a_library_for_the_arm_floor_runs_in_an_emulator(tmp_path):
    """The whole floor: threads, file status, numbers, exceptions, streams, static destructors."""
    abi_stubs.make(tmp_path / "stubs", "aarch64", backend=None, cxx=GXX)
    shutil.copy(DATA / "heavy.cpp", tmp_path)
    output((GXX, "-std=c++17", "-O1", "-fPIC", "-fno-gnu-unique", "-c", "heavy.cpp"), tmp_path)
    args = abi_floor.link_args(stub_dir="stubs", backend="cpu", needed=())
    output((GXX, "-o", "heavy.so", "heavy.o", *args), tmp_path)
    found = elf.parse((tmp_path / "heavy.so").read_bytes())
    assert abi_floor.unresolvable(found.undefined) == ()
    (tmp_path / "main.cpp").write_text(
        "#include <cstdio>\n#include <dlfcn.h>\n"
        "int main(int, char** argv) {\n"
        "  void* so = dlopen(argv[1], RTLD_NOW);\n"
        "  if (!so) return std::puts(dlerror()), 1;\n"
        "  auto f = [&](const char* name) { return (int (*)(...))dlsym(so, name); };\n"
        '  std::printf("%d %d %d %d\\n", f("files")(argv[2]), f("numbers")(), f("threads")(),\n'
        '              f("errors")());\n'
        '  dlclose(so);\n  std::puts("after");\n}\n'
    )
    # The C++ library is there before, as in Python with torch: it is never unloaded, and would keep
    # what it finds its symbols in.
    output((GXX, "main.cpp", "-o", "main", "-Wl,--no-as-needed", "-lstdc++"), tmp_path)
    (tmp_path / "empty").mkdir()
    root = Path("/usr/aarch64-linux-gnu")
    out = output((QEMU, "-L", root, "./main", "./heavy.so", "empty"), tmp_path)
    assert out.split() == ["205", "370", "122", "17511", "closed", "after"]
