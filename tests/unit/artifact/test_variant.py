# SPDX-License-Identifier: Apache-2.0

import pytest

from kernforge.artifact.variant import Backend, Variant
from kernforge.artifact.version import Version2
from kernforge.errors import UsageError

CUDA = Backend("cuda", Version2(13, 0))
LINUX = ("x86_64", "linux")


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("torch-stable-abi210-cu130-x86_64-linux", (Version2(2, 10), CUDA, *LINUX, None)),
        ("torch213-cxx11-cpu-x86_64-linux", (Version2(2, 13), Backend("cpu"), *LINUX, True)),
        (
            "torch29-cxx98-cu128-x86_64-linux",
            (Version2(2, 9), Backend("cuda", Version2(12, 8)), *LINUX, False),
        ),
        (
            "torch212-metal-aarch64-darwin",
            (Version2(2, 12), Backend("metal"), "aarch64", "darwin", None),
        ),
        (
            "tvm-ffi01-xpu20253-x86_64-linux",
            (Version2(0, 1), Backend("xpu", Version2(2025, 3)), *LINUX, None),
        ),
        ("torch-universal", (None, Backend("universal"), "", "", None)),
    ],
)
def test_a_name_and_its_variant_are_inverse(name, fields):
    variant = Variant.parse(name)
    found = (variant.version, variant.backend, variant.cpu, variant.os, variant.cxx11)
    assert found == fields
    assert str(variant) == name


@pytest.mark.parametrize(
    "name", ["tvm-ffi01-cxx11-cpu-a-linux", "torch29-cpu-linux", "torch-stable-abi29", "cpu"]
)
def test_an_invalid_name_is_refused(name):
    with pytest.raises(UsageError, match="is not a variant name"):
        Variant.parse(name)


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
def test_a_version_that_no_name_expresses_is_refused(version, backend):
    with pytest.raises(UsageError, match="no variant name can express"):
        Variant(framework="torch", version=version, backend=backend, cpu="x86_64", os="linux")
