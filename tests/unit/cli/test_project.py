# SPDX-License-Identifier: Apache-2.0
"""Commands that take a project."""

import importlib.util
import json

import pytest
from support.commands import call
from support.manifests import CPU_AND_METAL


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


def test_the_schema_is_exported_on_request(project, capsys):
    assert call("export", str(project), "--only", "schema") == 0
    schema = json.loads((project / "build.schema.json").read_text())
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert call("export", str(project), "--only", "schema") == 0
    assert "kept" not in capsys.readouterr().out


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
