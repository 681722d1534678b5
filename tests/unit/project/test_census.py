# SPDX-License-Identifier: Apache-2.0
"""Every manifest of kernels-community: what is built of it, and why the rest is not."""

import json
from pathlib import Path

import pytest

from kernforge.errors import UsageError
from kernforge.manifest import document
from kernforge.project import targets

CENSUS = json.loads((Path(__file__).parents[2] / "data" / "kernels_community.json").read_text())
MANIFESTS = CENSUS["manifests"]
# Whose compiler a backend needs: a refusal names it.
TOOLS = {"rocm": "AMD's hipcc", "metal": "Apple's compiler", "xpu": "Intel's oneAPI"}
REFUSED = {
    "activation": {"metal", "rocm"},
    "aiter-flash-attn-ck": {"rocm"},
    "bitsandbytes-mps": {"metal"},
    "flash-attn2": {"xpu"},
    "gpt-oss-metal-kernels": {"metal"},
    "megablocks": {"rocm", "xpu"},
    "metal-flash-sdpa": {"metal"},
    "mlx-quantization-metal-kernels": {"metal"},
    "mlx-rmsnorm": {"metal"},
    "paged-attention": {"metal", "rocm"},
    "relu": {"metal", "rocm", "xpu"},
    "rmsnorm": {"xpu"},
    "rotary": {"xpu"},
}


def considered(name, cpu="x86_64", *, cross=False):
    parsed = document.parse(MANIFESTS[name])
    return parsed, targets.candidates(parsed, cpu=cpu, cross=cross)


def test_the_census_is_whole():
    assert len(MANIFESTS) == 52
    assert MANIFESTS.keys() >= REFUSED.keys()


@pytest.mark.parametrize("name", MANIFESTS)
def test_each_backend_is_built_or_refused_with_the_compiler_that_it_needs(name):
    manifest, found = considered(name)
    refused = {c.name: c.reason for c in found if c.name in TOOLS}
    assert refused.keys() == REFUSED.get(name, set())
    assert all(TOOLS[backend] in reason for backend, reason in refused.items())
    built = {c.target.backend for c in found if c.target}
    assert built == set(manifest.general.backends) - refused.keys()
    # What is left out of a backend that is built says why.
    assert all(c.reason for c in found if not c.target)


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_build_without_options_has_something_to_do_or_says_why_not(name):
    manifest, found = considered(name)
    if set(manifest.general.backends) == REFUSED.get(name):
        with pytest.raises(UsageError) as caught:
            targets.choose(found, [])
        assert all(TOOLS[backend] in caught.value.message for backend in REFUSED[name])
    else:
        assert targets.choose(found, [])


@pytest.mark.parametrize("name", MANIFESTS)
def test_what_is_built_for_x86_is_built_for_arm(name):
    _, here = considered(name)
    _, arm = considered(name, "aarch64", cross=True)
    assert [c.name.replace("x86_64", "aarch64") for c in here if c.target] == [
        c.name for c in arm if c.target
    ]
