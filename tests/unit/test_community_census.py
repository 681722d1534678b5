# SPDX-License-Identifier: Apache-2.0
"""Every manifest of kernels-community: its variants, and the reasons for the rest."""

import json
import re
from pathlib import Path

import pytest

from kernforge.errors import UsageError
from kernforge.manifest import document, migrate
from kernforge.project import targets

TEXTS = json.loads((Path(__file__).parents[1] / "data/kernels_community.json").read_text())
MANIFESTS = {name: document.parse(text, source=name) for name, text in TEXTS["manifests"].items()}
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


@per_manifest
def test_a_backend_is_built_or_its_missing_compiler_named(name):
    found = considered(name)
    refused = {c.name: c.reason for c in found if c.name in TOOLS}
    assert refused.keys() == REFUSED.get(name, set())
    assert all(TOOLS[backend] in reason for backend, reason in refused.items())
    built = {c.target.backend for c in found if c.target}
    assert built == set(MANIFESTS[name].general.backends) - refused.keys()
    # What is left out of a backend that is built says why.
    assert all(c.reason for c in found if not c.target)


@per_manifest
def test_device_code_is_built_for_cuda_12_and_13(name):
    majors = {c.target.cuda.major for c in considered(name) if c.target and c.target.cuda}
    if "cuda" in compiled(name):
        newest = MANIFESTS[name].general.cuda.maxver
        assert majors == ({12, 13} if newest is None or newest.major >= 13 else {12})


@per_manifest
def test_a_default_build_has_variants_or_a_reason(name):
    found = considered(name)
    if set(MANIFESTS[name].general.backends) == REFUSED.get(name):
        with pytest.raises(UsageError) as caught:
            targets.choose(found, [])
        assert all(TOOLS[backend] in caught.value.message for backend in REFUSED[name])
    else:
        assert targets.choose(found, [])


@per_manifest
def test_aarch64_has_the_variants_of_x86_64(name):
    here, arm = considered(name), considered(name, "aarch64", cross=True)
    assert [c.name.replace("x86_64", "aarch64") for c in here if c.target] == [
        c.name for c in arm if c.target
    ]


@per_manifest
def test_edition_6_means_the_same(name):
    edition_5 = migrate.migrate(TEXTS["manifests"][name], license_name="MIT")
    text = re.sub(r'^backend = "(\w+)"', r'language = "cpp-\1"', edition_5, flags=re.MULTILINE)
    text = re.sub(r'^upstream = (".*?")', r"upstream = [\1]", text, flags=re.MULTILINE)
    edition_6 = document.parse(text.replace("edition = 5", "edition = 6"))
    assert edition_6.kernels == MANIFESTS[name].kernels
    assert targets.candidates(edition_6, cpu="x86_64") == considered(name)
