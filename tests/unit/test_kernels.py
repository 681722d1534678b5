# SPDX-License-Identifier: Apache-2.0
"""Rules for the text of the kernels and headers."""

import posixpath
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INCLUDE = ROOT / "src" / "kernforge" / "include"
HEADERS = sorted(INCLUDE.glob("*/kernforge/*"))
DEVICE = [*HEADERS, *sorted(ROOT.glob("kernels/*/*.cu")), *sorted(ROOT.glob("kernels/*/*.cuh"))]
LAUNCHED = [
    path
    for path in DEVICE
    if path.suffix in {".cu", ".cuh"} and "kernforge/pdl.cuh" in path.read_text()
]


@pytest.mark.parametrize("path", LAUNCHED, ids=lambda p: p.name)
def test_early_launched_kernels_wait_before_reads(path):
    """No test of values can see it: without the wait they come out right nearly always."""
    text = path.read_text()
    bodies = re.findall(r"__global__[^{;]*\{(.*?)\n\}", text, re.DOTALL)
    assert len(bodies) == text.count("__global__")
    for body in bodies:
        before = re.split(r"grid_dependency_synchronize\(\);", body)[0]
        assert before != body, "a kernel does not wait"
        assert "[" not in before, "memory is read before the wait"
    assert "<<<" not in text, "a launch is not kernforge::launch"
    assert "__ldg" not in text
    assert not re.search(r"const \w+\* __restrict__", text), "a read may be moved"


@pytest.mark.parametrize("path", DEVICE, ids=lambda p: p.name)
def test_kernels_are_static_not_in_anonymous_namespaces(path):
    """pdl.cuh says what a name costs. A kernel that is static is as local, by a short name."""
    text = path.read_text()
    launched = [line for line in text.splitlines() if re.match(r"(static )?__global__", line)]
    assert [line for line in launched if not line.startswith("static ")] == (
        ["__global__ void probe_kernel() {}"] if path.name == "pdl.cuh" else []
    )
    inside = re.findall(r"\nnamespace \{\n(.*?)\n\}  // namespace\n", text, re.DOTALL)
    assert not [part for part in inside if "static __global__" in part]


@pytest.mark.parametrize("path", HEADERS, ids=lambda p: p.name)
def test_headers_are_self_contained_without_an_op_namespace(path):
    """The plan of a unit does not look into it for the name: decision 13."""
    text = path.read_text()
    assert "#pragma once" in text
    assert "EXTENSION_NAME" not in text
    own = {p.relative_to(INCLUDE).as_posix() for p in INCLUDE.rglob("*.*")}
    folder = path.parent.relative_to(INCLUDE)
    for mark, included in re.findall(r'#include ([<"])([^>"]+)[>"]', text):
        places = ((folder / included).as_posix(), f"csrc/{included}")
        there = any(posixpath.normpath(place) in own for place in places)
        assert there == (mark == '"'), f"{included} is not there"
