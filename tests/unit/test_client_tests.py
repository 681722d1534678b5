# SPDX-License-Identifier: Apache-2.0
"""What the script that runs the client's own tests counts."""

import json
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import client_tests  # noqa: E402 - of the line above
import library_tests  # noqa: E402

LISTS = tomllib.loads((ROOT / "scripts" / "client_tests.toml").read_text())
STORED = ROOT / "benchmarks" / "results" / "client-tests.json"


@pytest.mark.parametrize(
    ("name", "private"),
    [
        ("test_interval_tree.py::test_empty_tree", True),
        ("test_resolver.py::test_resolve_hub_kernel_only_checks_latest_version", True),
        ("test_resolver.py::test_hub_resolver_resolves_remote_kernel", False),
        ("test_basic.py::test_version", False),
    ],
)
def test_what_reaches_for_private_parts_is_listed(name, private):
    assert (client_tests.listed(name, LISTS["private"]) is not None) is private


def test_todays_client_passes_and_what_fails_has_a_reason():
    found = client_tests.before(STORED)
    assert found[0].version == "0.17.2"
    assert found[0].passed >= 0.98 * found[0].public
    assert found[0].public > 350
    assert not [
        (counts.version, name)
        for counts in found
        for name, why in counts.failed.items()
        if why == "not explained"
    ]
    assert json.loads(STORED.read_text())["table"] == client_tests.document(found)["table"]


def test_the_tests_of_libraries_are_stored_with_what_does_not_pass(tmp_path):
    stored = json.loads((STORED.parent / "library-tests.json").read_text())
    assert stored["table"] == library_tests.table(stored["results"])
    for one in stored["results"]:
        assert one["of"] == len(one["tests"]) == one["passed"] + len(one["failed"])
    first = stored["results"][0]
    path = tmp_path / "found.json"
    library_tests.write(path, first)
    library_tests.write(path, {**first, "device": "another"})
    library_tests.write(path, {**first, "passed": 0})
    kept = json.loads(path.read_text())["results"]
    assert sorted((one["device"], one["passed"]) for one in kept) == sorted(
        [(first["device"], 0), ("another", first["passed"])]
    )
