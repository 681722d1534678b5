# SPDX-License-Identifier: Apache-2.0
"""Every manifest of kernels-community: what is built of it, and why the rest is not."""

import json
import sys
from pathlib import Path

import pytest

from kernforge.errors import UsageError
from kernforge.project import targets

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import community_census
import community_outcomes

MANIFESTS = community_census.manifests()
CENSUS = json.loads(community_census.CENSUS.read_text())
PLANNED = {row["directory"]: row["planned"] for row in CENSUS["kernels"]}
per_manifest = pytest.mark.parametrize("name", MANIFESTS)
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
    return targets.candidates(MANIFESTS[name], cpu=cpu, cross=cross)


def compiled(name):
    """The backends with something to compile."""
    return {section.backend for section in MANIFESTS[name].kernels.values()}


def test_the_census_is_whole():
    assert len(MANIFESTS) == 52
    assert MANIFESTS.keys() >= REFUSED.keys()
    assert CENSUS["kernels"] == [
        community_census.row(name, manifest) for name, manifest in MANIFESTS.items()
    ]


@per_manifest
def test_each_backend_is_built_or_refused_with_the_compiler_that_it_needs(name):
    found = considered(name)
    refused = {c.name: c.reason for c in found if c.name in TOOLS}
    assert refused.keys() == REFUSED.get(name, set())
    assert all(TOOLS[backend] in reason for backend, reason in refused.items())
    built = {c.target.backend for c in found if c.target}
    assert built == set(MANIFESTS[name].general.backends) - refused.keys()
    # What is left out of a backend that is built says why.
    assert all(c.reason for c in found if not c.target)


@per_manifest
def test_what_is_planned_is_named(name):
    for backend, text in PLANNED[name].items():
        if backend in compiled(name) - TOOLS.keys():
            assert text.startswith(("torch2", "torch-stable-abi", "tvm-ffi"))
        elif backend in compiled(name):
            assert text.startswith("left out: needs ")
        else:
            assert text == f"torch-{backend}"


@per_manifest
def test_what_has_device_code_can_be_built_for_cuda_12_and_13(name):
    majors = {c.target.cuda.major for c in considered(name) if c.target and c.target.cuda}
    if "cuda" in compiled(name):
        newest = MANIFESTS[name].general.cuda.maxver
        assert majors == ({12, 13} if newest is None or newest.major >= 13 else {12})


@per_manifest
def test_a_build_without_options_has_something_to_do_or_says_why_not(name):
    found = considered(name)
    if set(MANIFESTS[name].general.backends) == REFUSED.get(name):
        with pytest.raises(UsageError) as caught:
            targets.choose(found, [])
        assert all(TOOLS[backend] in caught.value.message for backend in REFUSED[name])
    else:
        assert targets.choose(found, [])


@per_manifest
def test_what_is_built_for_x86_is_built_for_arm(name):
    here, arm = considered(name), considered(name, "aarch64", cross=True)
    assert [c.name.replace("x86_64", "aarch64") for c in here if c.target] == [
        c.name for c in arm if c.target
    ]


def test_the_table_says_of_each_manifest_what_became_of_it():
    built = json.loads(community_outcomes.BUILT.read_text())
    assert CENSUS["table"] == community_outcomes.table(CENSUS, built)
    for row, (name, *ours, others) in zip(CENSUS["kernels"], CENSUS["table"]["rows"], strict=True):
        assert name == row["directory"]
        for backend, text in zip(community_outcomes.OURS, ours, strict=True):
            assert bool(text) == (backend in row["planned"])
            # What has something to compile was built, or says why not.
            assert text != "planned", name
        assert bool(others) == bool(row["planned"].keys() - {*community_outcomes.OURS})
