# SPDX-License-Identifier: Apache-2.0
"""Refusals of ``kernforge build``, and the subjects of ``kernforge check``."""

import json

import pytest
from support.commands import call

from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry

MAC = "torch29-cpu-aarch64-darwin"


def test_a_wrong_architecture_is_a_usage_error(project, capsys):
    assert call("build", str(project), "--arch", "x") == 2
    assert "9.0a" in capsys.readouterr().err


@pytest.fixture
def published(tmp_path, write_variant):
    """A registry with a kernel for macOS, and for any machine."""
    directory = tmp_path / "build" / MAC
    directory.mkdir(parents=True)
    (directory / "_toy_cpu_aaaaaaa.abi3.so").write_bytes(b"a library for macOS")
    write_variant(tmp_path / "build", variant=MAC)
    write_variant(tmp_path / "build")
    registry = DirectoryRegistry(tmp_path / "registry")
    publish(tmp_path / "build", registry, "me/toy", "1.0.0")
    publish(tmp_path / "build", registry, "me/toy", branch="dev")
    return str(tmp_path / "registry")


@pytest.mark.parametrize("which", [(), ("--version", "1"), ("--version", "dev")])
def test_a_published_kernel_is_checked_for_all_machines(published, capsys, which):
    assert call("check", "me/toy", "--registry", published, *which, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {(f["rule"], f["severity"]) for f in found} == {
        ("abi", "skipped"),
        ("python-abi", "skipped"),  # it is no library at all
        ("import", "skipped"),
    }
    assert call("check", "me/toy", "--registry", published, *which, "--variant", "torch-cpu") == 0


def test_a_missing_subject_of_check_is_named(published, tmp_path, capsys):
    assert call("check", "me/toy", "--registry", published, "--variant", "*-cu*") == 2
    assert f"its variants are torch-cpu, {MAC}" in capsys.readouterr().err
    assert call("check", str(tmp_path), "--version", "dev") == 2
    assert "is a directory" in capsys.readouterr().err
    assert call("check", "me/none", "--registry", published) == 8
