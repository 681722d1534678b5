# SPDX-License-Identifier: Apache-2.0
"""nvcc's flags in clang's language, and which have none."""

import pytest

from kernforge.artifact.variant import Backend, Variant
from kernforge.artifact.version import Version2
from kernforge.build.plan import clang_flags
from kernforge.errors import ManifestError
from kernforge.project.targets import Target
from kernforge.toolchain.cuda_arch import Arch

DEVICE = "-Xarch_device"
SQRT = (DEVICE, "-mllvm=-nvvm-reflect-add=__CUDA_PREC_SQRT=1")
FAST = (
    "-fgpu-flush-denormals-to-zero",
    *(DEVICE, "-fgpu-approx-transcendentals"),
    *(DEVICE, "-mllvm=-nvptx-prec-divf32=0"),
    *(DEVICE, "-mllvm=-nvptx-prec-sqrtf32=0"),
)


@pytest.mark.parametrize(
    ("nvcc", "clang"),
    [
        ("", SQRT),
        ("-O3 -DX=1 -U__CUDA_NO_HALF_OPERATORS__ -Iinclude", None),
        ("-I include -D Y -include a.h -isystem b", None),
        ("-std=c++20", ("-std=c++20", *SQRT)),
        ("--std c++17", ("-std=c++17", *SQRT)),
        ("--ftemplate-backtrace-limit=0", ("-ftemplate-backtrace-limit=0", *SQRT)),
        ("--expt-relaxed-constexpr --expt-extended-lambda --extended-lambda", SQRT),
        ("--threads 4 --threads=1 -t 2", SQRT),
        ("-Xcudafe --diag_suppress=177 -diag-suppress 20012", SQRT),
        ("--static-global-template-stub=false", SQRT),
        ("-Xptxas -v,-O2", ("-Xcuda-ptxas", "-v", "-Xcuda-ptxas", "-O2", *SQRT)),
        ("--maxrregcount=64", ("-Xcuda-ptxas", "--maxrregcount=64", *SQRT)),
        ("-maxrregcount 64", ("-Xcuda-ptxas", "--maxrregcount=64", *SQRT)),
        (
            "-Xfatbin --compress-mode=size",
            ("-Xcuda-fatbinary", "--compress-mode=size", *SQRT),
        ),
        ("-Xcompiler -fPIC,-fopenmp", ("-Xarch_host", "-fopenmp", *SQRT)),
        ("-Xcompiler=-fno-gnu-unique", SQRT),
        ("-lineinfo", (DEVICE, "-gline-tables-only", *SQRT)),
        ("-g", ("-Xarch_host", "-g", *SQRT)),
        ("--use_fast_math", FAST),
        ("-ftz=true", ("-fgpu-flush-denormals-to-zero", *SQRT)),
        ("--ftz false --prec-div=1 -prec-sqrt=true", SQRT),
        ("--prec-sqrt=false", FAST[-2:]),
        ("-fmad=false", (DEVICE, "-ffp-contract=off", *SQRT)),
    ],
)
def test_a_flag_is_said_in_clangs_language(nvcc, clang):
    words = tuple(nvcc.split())
    expected = (*words, *SQRT) if clang is None else clang
    assert clang_flags.translate(words, "a.cu") == expected


@pytest.mark.parametrize(
    "nvcc",
    [
        *("-rdc=true", "-dc", "--relocatable-device-code=true", "-dlto", "-gencode"),
        *("--default-stream=per-thread", "-arch=sm_90", "-ftz=perhaps", "--ptx", "-x", "a.o"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(nvcc):
    with pytest.raises(ManifestError) as caught:
        clang_flags.translate(("-O3", nvcc), "csrc/a.cu")
    assert "csrc/a.cu" in caught.value.message
    assert repr(nvcc) in caught.value.message
    assert "--cuda-home" in caught.value.hint


def said(*archs):
    variant = Variant.stable_abi(
        Version2(2, 10), Backend("cuda", Version2(12, 8)), cpu="aarch64", os="linux"
    )
    target = Target(variant=variant, torch=Version2(2, 10), cuda=Version2(12, 8))
    return clang_flags.clang(target, Version2(12, 8), "20", [Arch.parse(a) for a in archs], "a.cu")


def test_architectures_get_machine_code_and_ptx_only_where_asked():
    found = [word for word in said("8.0", "9.0a", "12.0+PTX") if "sm_" in word or "ptx" in word]
    assert found == [
        *("--no-cuda-include-ptx=all", "--cuda-gpu-arch=sm_80", "--cuda-gpu-arch=sm_90a"),
        *("--cuda-gpu-arch=sm_120", "--cuda-include-ptx=sm_120"),
    ]


def test_ptx_is_packed_as_drivers_of_cuda_12_read_it():
    found = said("9.0+PTX")
    assert found[found.index("-Xcuda-fatbinary") + 1] == "--compress-mode=speed"


def test_a_family_of_gpus_is_refused():
    with pytest.raises(ManifestError, match=r"10\.0f"):
        said("9.0", "10.0f")


def test_the_compiler_finds_everything_in_the_locked_trees():
    found = said("9.0")
    assert found[:2] == ("%{cuda-12.8}/bin/zig", "clang")
    assert "--target=aarch64-unknown-linux-gnu" in found
    assert "--gcc-install-dir=%{gcc}" in found
    assert "--cuda-path=%{cuda-12.8}" in found
    assert not [word for word in found if word.startswith(("/", "-I/"))]
