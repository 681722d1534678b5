# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.application.download import parse_platform, platform_name
from kernforge.errors import UsageError
from kernforge.loader.resolve import resolve


@pytest.mark.parametrize(
    ("text", "variant"),
    [
        ("torch2.11-cu130-x86_64-linux", "torch211-cxx11-cu130-x86_64-linux"),
        ("torch2.11-cpu-aarch64-linux", "torch-stable-abi210-cpu-aarch64-linux"),
        ("torch2.12-rocm72-x86_64-linux", "torch212-cxx11-rocm72-x86_64-linux"),
        ("torch2.12-metal-aarch64-darwin", "torch212-metal-aarch64-darwin"),
        ("cpu-x86_64-linux", "torch-cpu"),
    ],
)
def test_a_short_name_selects_the_fitting_variant(text, variant):
    assert platform_name(parse_platform(text)) == text
    assert resolve([variant, "torch-xpu"], parse_platform(text)).best.name == variant


@pytest.mark.parametrize(
    "text", ["", "cu130", "torch2-cpu-x86_64-linux", "torch2.11-gpu-x86_64-linux"]
)
def test_an_invalid_platform_is_refused(text):
    with pytest.raises(UsageError, match=r"is not a platform|is not a backend"):
        parse_platform(text)
