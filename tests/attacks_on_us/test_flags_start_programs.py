# SPDX-License-Identifier: Apache-2.0
"""A stranger's build.toml has flags that start programs or load code into the compiler."""

import inspect
from types import SimpleNamespace

import pytest

from kernforge.build import api as build
from kernforge.build import from_source
from kernforge.build.api import BuildRequest
from kernforge.errors import ManifestError
from kernforge.manifest import document
from kernforge.project import flag_rules
from kernforge.system.environment import Environment

BAD = [
    *("-wrapper x", "-wrapper=x", "-fplugin=x.so", "-fplugin x", "-B/x", "-B x", "-Bx", "-specs=x"),
    *("--specs=x", "--specs x", "@file", "-ccbin x", "-ccbin=x", "--compiler-bindir=x"),
    *("--compiler-bindir x", "-fuse-ld=x", "-Wl,-plugin,x", "-Wl,--plugin=x", "-Wl,@x", "-Wa,@x"),
    *("-Xclang -load", "-fpass-plugin=x", "--sysroot=/x", "-isysroot /x", "-foffload=x", "-Tx.ld"),
    *("-optf x", "--options-file=x", "--run", "--prefix=x", "--gcc-toolchain=x", "--config x"),
    *("-Xcompiler -wrapper,x", "-Xcompiler=-fplugin=x", "--compiler-options '-B/x'"),
    *("-Xcompiler -Xcompiler,-Bx", "-Xptxas --options-file,x", '-Xcompiler="-O2 -B/x"'),
    *(
        "-Xlinker -plugin",
        "-Xfatbin x",
        "-Xfatbin=-compress-all,@x",
        "-Xfatbin",
        "-archiver-binary x",
        "-ldir x",
        "-mllvm -load=x",
    ),
]
GOOD = [
    *("-O3", "-std=c++20", "-DX=1", "-I.", "-include foo.h", "--use_fast_math", "-lineinfo"),
    *("--expt-relaxed-constexpr", "-Xptxas -v", "-Xptxas=-O3", "-fopenmp", "-march=native"),
    *("-ftemplate-depth=1024", "-gencode arch=compute_90a,code=sm_90a", "-Xcompiler -fPIC,-O3"),
    *("-U__CUDA_NO_HALF_OPERATORS__", "--threads=4", "-Xcudafe --diag_suppress=177", "-flto"),
    *("-Xfatbin -compress-all", "-Xfatbin=-compress-all", "--fatbin-options=--compress-mode=size"),
    *("-maxrregcount=128", "-default-stream=per-thread", "-Wl,--no-as-needed", "-rdc=true"),
]
MANIFEST = """\
[general]
name = "toy"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch]
src = ["torch-ext/torch_binding.cpp"]

[kernel.toy]
backend = "cpu"
depends = ["torch"]
src = ["csrc/toy.cpp"]
cxx-flags = [{}]
"""


def manifest(flags):
    text = ", ".join(f"'''{flag}'''" for flag in flags.split(" ", 1))
    return document.parse(MANIFEST.format(text))


@pytest.mark.parametrize("flags", BAD)
def test_flags_that_start_programs_are_refused(flags):
    with pytest.raises(ManifestError, match="start a program"):
        flag_rules.refuse_programs(manifest(flags))


@pytest.mark.parametrize("flags", GOOD)
def test_flags_that_kernels_have_are_not(flags):
    flag_rules.refuse_programs(manifest(flags))


def test_a_strangers_build_is_planned_only_without_them():
    workspace = SimpleNamespace(project=SimpleNamespace(manifest=manifest("-fplugin=x.so")))
    with pytest.raises(ManifestError, match=r"-fplugin=x\.so"):
        build.plan_project(workspace, BuildRequest(targets=(), untrusted=True))


def test_a_strangers_build_requires_a_sandbox():
    assert build._mode(BuildRequest(targets=(), untrusted=True)) == "required"
    assert build._mode(BuildRequest(targets=(), untrusted=True, sandbox="off")) == "off"
    assert build._mode(BuildRequest(targets=())) == "auto"


def test_what_a_registry_has_is_a_strangers_unless_the_user_says_otherwise():
    source = inspect.getsource(from_source)
    assert 'untrusted=wanted.environment.kernforge_build_trusted != "1"' in source
    assert Environment({}).kernforge_build_trusted is None
