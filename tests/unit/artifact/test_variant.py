# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.artifact.variant import Backend, Variant
from kernforge.artifact.version import Version2, in_order
from kernforge.errors import UsageError

CUDA = Backend("cuda", Version2(13, 0))


# More names, and wrong ones, are compared with the hub's client in tests/differential.
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("torch-stable-abi210-cu130-x86_64-linux", (Version2(2, 10), CUDA, "x86_64", None)),
        ("torch213-cxx11-cpu-x86_64-linux", (Version2(2, 13), Backend("cpu"), "x86_64", True)),
        ("torch29-cxx98-cu130-x86_64-linux", (Version2(2, 9), CUDA, "x86_64", False)),
        ("torch212-metal-aarch64-darwin", (Version2(2, 12), Backend("metal"), "aarch64", None)),
        ("tvm-ffi01-cpu-x86_64-linux", (Version2(0, 1), Backend("cpu"), "x86_64", None)),
        ("torch-universal", (None, Backend("universal"), "", None)),
    ],
)
def test_a_name_and_its_variant_are_inverse(name, fields):
    variant = Variant.parse(name)
    assert (variant.version, variant.backend, variant.cpu, variant.cxx11) == fields
    assert str(variant) == name


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


def test_a_version_is_two_numbers():
    assert [str(Version2.parse(text)) for text in ("2.10", "0.0")] == ["2.10", "0.0"]
    assert Version2.parse("2.9") < Version2.parse("2.10") == (2, 10)


@pytest.mark.parametrize("text", ["", "12", "12.8.1", "a.b", "12.-1", f"1.{2**64}"])
def test_an_invalid_version_is_refused(text):
    with pytest.raises(ValueError, match="expected a version of two numbers"):
        Version2.parse(text)


@pytest.mark.parametrize(
    ("release", "expected"),
    [("2.13.0+cu130", (2, 13)), ("12.8", (12, 8)), ("26", (26, 0)), ("", None), ("git", None)],
)
def test_a_release_begins_with_its_version(release, expected):
    assert Version2.leading(release) == expected


def test_architectures_are_sorted_by_number():
    names = ["10.0", "12.1+PTX", "7.5", "9.0", "9.0a", "8.0"]
    assert in_order(names) == ("7.5", "8.0", "9.0", "9.0a", "10.0", "12.1+PTX")
    assert in_order(["gfx1100", "gfx90a", "gfx942"]) == ("gfx90a", "gfx942", "gfx1100")
