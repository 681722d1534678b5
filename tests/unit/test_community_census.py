# SPDX-License-Identifier: Apache-2.0
"""All of kernels-community is planned from the facts of its manifests, and what is left out says why."""

import json
import sys
from pathlib import Path

import pytest

from kernforge.project import targets

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import community_census
import community_outcomes

KEPT = Path(__file__).parents[2] / "benchmarks" / "results" / "community-census.json"
KERNELS = json.loads(KEPT.read_text())["kernels"]
BUILT_HERE = {"cpu", "cuda"}


@pytest.mark.parametrize("row", KERNELS, ids=lambda row: row["directory"])
def test_it_is_planned_as_the_census_says(row):
    assert community_census.planned(row) == row["planned"]
    compiled = {section["backend"] for section in row["kernels"].values()}
    for backend, text in row["planned"].items():
        if backend in compiled & BUILT_HERE:
            assert text.startswith(("torch2", "torch-stable-abi", "tvm-ffi"))
        elif backend in compiled:
            assert text.startswith("left out: needs ")
        else:
            assert text == f"torch-{backend}"


@pytest.mark.parametrize("row", KERNELS, ids=lambda row: row["directory"])
def test_what_has_device_code_can_be_built_for_cuda_12_and_13(row):
    manifest = community_census.as_manifest(row)
    found = targets.candidates(manifest, cpu="x86_64")
    majors = {c.target.cuda.major for c in found if c.target and c.target.cuda}
    compiled = {section["backend"] for section in row["kernels"].values()}
    if "cuda" in compiled:
        newest = row["cuda"].get("maxver", "13")
        assert majors == ({12, 13} if newest >= "13" else {12})
    assert all(c.reason for c in found if c.target is None)


def test_the_facts_of_a_manifest_make_the_same_facts():
    for row in KERNELS:
        again = community_census.facts(community_census.as_manifest(row))
        for section in again["kernels"].values():
            del section["sources"]
        kept = {name: row[name] for name in again}
        kept["kernels"] = {
            name: {k: v for k, v in section.items() if k != "sources"}
            for name, section in kept["kernels"].items()
        }
        assert again == kept


def test_the_table_says_of_each_manifest_what_became_of_it():
    census = json.loads(KEPT.read_text())
    built = json.loads(KEPT.with_name("community.json").read_text())
    assert census["table"] == community_outcomes.table(census, built)
    for row, (name, *ours, others) in zip(KERNELS, census["table"]["rows"], strict=True):
        assert name == row["directory"]
        for backend, text in zip(community_outcomes.OURS, ours, strict=True):
            assert bool(text) == (backend in row["planned"])
            # What has something to compile was built, or says why not.
            assert text != "planned", name
        assert bool(others) == bool(row["planned"].keys() - {*community_outcomes.OURS})
