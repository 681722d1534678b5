# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from kernforge.application.download import describe, name, parse, read
from kernforge.artifact.variant import Backend
from kernforge.artifact.version import Version2
from kernforge.errors import UsageError
from kernforge.loader.host import Host
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
    assert name(parse(text)) == text
    assert resolve([variant, "torch-xpu"], parse(text)).best.name == variant


def test_a_description_round_trips():
    host = Host(
        cpu="x86_64",
        os="linux",
        backend=Backend("cuda", Version2(13, 0)),
        torch=Version2(2, 11),
        cxx11=True,
        tvm_ffi=Version2(0, 1),
        python=Version2(3, 14),
        free_threaded=True,
        capability=Version2(9, 0),
    )
    assert read(json.dumps(describe(host)), source="x") == host


@pytest.mark.parametrize(
    "text", ["", "cu130", "torch2-cpu-x86_64-linux", "torch2.11-gpu-x86_64-linux"]
)
def test_an_invalid_platform_is_refused(text):
    with pytest.raises(UsageError, match=r"is not a platform|is not a backend"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"cpu": "x"}', '{"cpu": "x", "os": "linux", "backend": "cpu", "torch": "2.11"}'],
)
def test_an_invalid_description_is_refused(text):
    with pytest.raises(UsageError, match=r"m\.json does not describe a platform"):
        read(text, source="m.json")
