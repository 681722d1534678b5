# SPDX-License-Identifier: Apache-2.0
"""Every public module, name, member and parameter of the installed `kernels`, and our answer."""

import fnmatch
import importlib.metadata
import tomllib
from pathlib import Path

import pytest
from support import client_names

LISTED = Path(__file__).with_name("client_names.toml")


def test_every_public_name_is_answered_or_listed_with_a_reason():
    try:
        client = importlib.metadata.distribution("kernels")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the hub's client is not installed")
    listed = tomllib.loads(LISTED.read_text())["names"]
    wanted = client_names.of_client(str(client.locate_file("")))
    compared = client_names.compare(wanted, client.version)
    assert len(compared) > 300
    assert not {
        name: lacking
        for name, lacking in compared.items()
        if lacking and not any(fnmatch.fnmatchcase(name, glob) for glob in listed)
    }
    assert compared["kernels.get_kernel"] == []


def test_a_name_a_member_and_a_parameter_that_are_missing_are_seen():
    wanted = {
        "kernels": {
            "get_kernel": {"parameters": ["repo_id", "*version", "*no_such"]},
            "LayerRepository": {"parameters": None, "members": ["load", "no_such"]},
            "no_such": {"parameters": None},
        },
        "kernels.no_such": {"x": {"parameters": None}},
    }
    assert client_names.compare(wanted, "0.17.2") == {
        "kernels": [],
        "kernels.get_kernel": ["(no_such)"],
        "kernels.LayerRepository": [".no_such"],
        "kernels.no_such": ["the name"],
        "kernels.no_such.x": ["the name"],
    } | {"kernels.no_such": ["the module"]}


def test_a_parameter_by_place_may_not_become_one_by_name():
    wanted = {"kernels": {"get_kernel": {"parameters": ["repo_id", "revision"]}}}
    assert client_names.compare(wanted, "0.17.2")["kernels.get_kernel"] == ["(revision)"]
    assert client_names.compare(wanted, "0.16.2")["kernels.get_kernel"] == []
