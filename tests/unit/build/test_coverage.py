# SPDX-License-Identifier: Apache-2.0
"""What a build serves of the published torch x CUDA pairs, in one line."""

from kernforge.artifact.version import Version2
from kernforge.build.coverage import coverage
from kernforge.cli.formats import coverage_text
from kernforge.manifest import document
from kernforge.project import targets

GENERAL = """
[general]
name = "my-op"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu", "cuda"]
[torch]
"""
SECTIONS = """
[kernel.c]
backend = "cpu"
depends = []
src = ["c.cpp"]
[kernel.g]
backend = "cuda"
depends = []
src = ["g.cu"]
"""
RELEASES = {
    Version2(2, 9): (Version2(11, 8), Version2(13, 0)),
    Version2(2, 10): (Version2(11, 8), Version2(13, 0)),
    Version2(2, 13): (Version2(13, 0), Version2(13, 2)),
}


def served(built, torch="", failed=()):
    manifest = document.parse(GENERAL + torch + SECTIONS)
    considered = targets.candidates(manifest, cpu="x86_64", releases=RELEASES)
    return coverage(considered, built, cpu="x86_64", failed=failed, releases=RELEASES)


def test_a_variant_of_one_torch_serves_its_cuda_and_later_ones_of_the_major():
    found = served(["torch213-cxx11-cu130-x86_64-linux"])
    assert (found.served, found.total) == (2, 6)
    assert coverage_text(found) == (
        "serves 2 of 6 torch x CUDA pairs; lacks torch 2.9 to 2.10 with CUDA 11.8 because the package "
        "index carries no compiler for that CUDA; torch 2.9 to 2.10 with CUDA 13.0 because it was not asked for "
        "(--variant '*' builds all)"
    )


def test_the_stable_abi_serves_every_later_torch():
    text = 'stable-abi = "2.10"\n'
    found = served(["torch-stable-abi210-cu130-x86_64-linux"], text)
    assert (found.served, found.total) == (3, 6)
    assert {lack.reason for lack in found.lacks} == {
        "it is older than the stable ABI 2.10 of the project",
        "no variant of the project is for it",
    }


def test_bounds_and_failures_are_reasons():
    name = "torch213-cxx11-cu130-x86_64-linux"
    found = served([], 'minver = "2.10"\n', failed=[name])
    assert found.served == 0
    assert ("2.13",) in [
        lack.torch for lack in found.lacks if lack.reason == "it could not be built"
    ]
    assert "older than the manifest's torch minver 2.10" in {lack.reason for lack in found.lacks}


def test_without_a_variant_for_cuda_releases_are_counted():
    found = served([f"torch{v}-cxx11-cpu-x86_64-linux" for v in ("29", "210", "213")])
    assert coverage_text(found) == "serves 3 of 3 torch releases"


def test_python_alone_serves_all_and_is_not_counted():
    assert served(["torch-cpu"]) is None
