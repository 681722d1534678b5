# SPDX-License-Identifier: Apache-2.0

import pytest

from kernforge.artifact.variant import Backend, Variant
from kernforge.artifact.version import Version2
from kernforge.errors import UsageError

CUDA = Backend("cuda", Version2(13, 0))
LINUX = {"cpu": "x86_64", "os": "linux"}


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        (
            "torch-stable-abi210-cu130-x86_64-linux",
            Variant.stable_abi(Version2(2, 10), CUDA, **LINUX),
        ),
        (
            "torch213-cxx11-cpu-x86_64-linux",
            Variant.torch(Version2(2, 13), Backend("cpu"), **LINUX, cxx11=True),
        ),
        (
            "torch29-cxx98-cu128-x86_64-linux",
            Variant.torch(Version2(2, 9), Backend("cuda", Version2(12, 8)), **LINUX, cxx11=False),
        ),
        (
            "torch212-metal-aarch64-darwin",
            Variant.torch(Version2(2, 12), Backend("metal"), cpu="aarch64", os="darwin"),
        ),
        (
            "tvm-ffi01-xpu20253-x86_64-linux",
            Variant.tvm_ffi(Version2(0, 1), Backend("xpu", Version2(2025, 3)), **LINUX),
        ),
        ("torch-universal", Variant.noarch("universal")),
    ],
)
def test_a_name_says_the_variant(name, variant):
    assert Variant.parse(name) == variant
    assert str(variant) == name


def test_the_last_digit_of_a_backend_is_its_minor_version():
    assert Backend.parse("cu1210") == Backend("cuda", (121, 0))
    assert Backend.parse("xpu20260") == Backend("xpu", Version2(2026, 0))


@pytest.mark.parametrize(
    ("version", "backend"),
    [
        (Version2(2, 13), Backend("cuda")),
        (Version2(12, 0), CUDA),
        (Version2(2, 13), Backend("cuda", Version2(12, 10))),
    ],
)
def test_what_a_name_cannot_say_is_refused(version, backend):
    with pytest.raises(UsageError, match="no variant name can express"):
        Variant.torch(version, backend, **LINUX)
