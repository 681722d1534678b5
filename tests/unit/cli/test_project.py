# SPDX-License-Identifier: Apache-2.0
"""Commands that take a project or a kernel: their refusals, and what they say."""

import importlib.util
import json

import pytest
from support.commands import call
from support.manifests import CPU_AND_METAL

from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry


def test_the_list_of_variants_has_reasons(project, capsys):
    assert call("build", "--list", str(project), "--json") == 0
    found = {v["name"]: v for v in json.loads(capsys.readouterr().out)}
    assert found["metal"]["builds"] is False
    assert "Mac" in found["metal"]["reason"]
    assert call("build", "--list", str(project)) == 0
    assert "left out" in capsys.readouterr().out


def test_an_old_manifest_is_converted_in_place(project, capsys):
    old = CPU_AND_METAL.replace("edition = 5\n", "")
    (project / "build.toml").write_text(old)
    assert call("adopt", str(project)) == 0
    assert "edition = 5" in (project / "build.toml").read_text()
    assert "build.toml: edition 5" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["check", "check --resources", "sign"])
def test_a_build_has_the_same_names_in_every_command(
    project, verb, write_variant, capsys, monkeypatch
):
    monkeypatch.setenv("KERNFORGE_SIGN_PASSPHRASE", "")
    assert call("sign", "--new-key", str(project / "key")) == 0
    variant = write_variant(project / "build", variant="torch-cpu")
    (variant / "code.so").write_bytes(b"\x7fELF")
    (project / "venv").mkdir()
    (project / "venv" / "other.so").write_bytes(b"\x7fELF")
    monkeypatch.chdir(project)
    said = []
    for where in ((), (".",), ("build",), (str(variant),)):
        words = ("--key", "key") if verb == "sign" else ()
        code = call(*verb.split(), *where, *words)
        told = capsys.readouterr()
        assert "other.so" not in told.out + told.err
        said.append((code, "torch-cpu" in told.out + told.err))
    assert len(set(said)) == 1, said
    assert said[0][1]


def test_a_missing_pytest_is_reported_before_the_build(tmp_path, monkeypatch, capsys):
    assert call("new", str(tmp_path / "my-kernel"), "--minimal") == 0
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pytest" else find(name)
    )
    assert call("test", str(tmp_path / "my-kernel")) == 2
    err = capsys.readouterr().err
    assert "needs pytest, which is not installed" in err
    assert "pip install 'kernforge[testing]'" in err
    assert not (tmp_path / "my-kernel" / "kernforge.lock").exists()


# -- bench: what is refused before it measures --------------------------------------------------


@pytest.mark.parametrize("option", ["--out", "--visual"])
def test_a_place_that_takes_no_result_is_refused_before_anything_is_measured(
    tmp_path, capsys, option
):
    (tmp_path / "file").write_text("")
    missing = tmp_path / "none" / "now.html"
    for path in (tmp_path / "file" / "now.html", tmp_path, missing):
        assert call("bench", tmp_path, option, path) == 11
        assert str(path.parent) in capsys.readouterr().err
    assert not missing.parent.exists()
    assert (tmp_path / "file").is_file()
    (tmp_path / "mine.svg").write_text("mine")
    assert call("bench", tmp_path, option, tmp_path / "mine.svg") == 2
    assert "mine.svg exists, and kernforge did not write it" in capsys.readouterr().err


def test_rounds_that_give_no_interval_are_refused(project, capsys):
    assert call("bench", str(project), "--device", "cpu", "--rounds", "5") == 2
    assert "use --rounds 6 or more" in capsys.readouterr().err


def test_a_published_kernel_needs_a_version(capsys):
    assert call("bench", "acme/toy", "--device", "cpu") == 2
    assert "write acme/toy@v1" in capsys.readouterr().err


# -- build and check -------------------------------------------------------------------------------

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
