# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from kernforge.cli.main import main
from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry


@pytest.fixture
def wheel(tmp_path, capsys, monkeypatch):
    """A function that runs the command: its exit code, its document, what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)

    def call(*argv):
        with pytest.raises(SystemExit) as stop:
            main(["wheel", *map(str, argv), "--json"])
        said = capsys.readouterr()
        return stop.value.code, json.loads(said.out), said.err

    return call


def test_a_directory_gives_wheels(wheel, tmp_path, write_variant):
    write_variant(tmp_path / "build")
    code, document, notes = wheel(".")
    assert code == 0
    (made,) = document["wheels"]
    assert (made["tag"], made["version"], made["requires"]) == ("py3-none-any", "1.0.0", ["torch"])
    assert (tmp_path / made["path"]).is_file()
    assert "the wheels get 1.0.0: there is no --as-version" in notes


def test_without_a_version_wheels_take_the_major_version_and_say_so(wheel, tmp_path, write_variant):
    write_variant(tmp_path / "build", version=7)
    _, document, notes = wheel(".")
    assert [made["version"] for made in document["wheels"]] == ["7.0.0"]
    assert "the wheels get 7.0.0: there is no --as-version and no git tag vX.Y.Z" in notes
    assert "MAJOR" not in notes
    _, document, notes = wheel(".", "--as-version", "7.2.1")
    assert [made["version"] for made in document["wheels"]] == ["7.2.1"]
    assert not notes


def test_a_published_kernel_gives_wheels_of_its_version(wheel, tmp_path, write_variant):
    write_variant(tmp_path / "source" / "build")
    publish(tmp_path / "source" / "build", DirectoryRegistry(tmp_path / "r"), "me/toy", "1.3.2")
    code, document, notes = wheel("me/toy", "--version", "~=1.3", "--registry", tmp_path / "r")
    assert code == 0
    assert document["wheels"][0]["version"] == "1.3.2"
    assert not notes


def test_what_has_no_version_asks_for_one(wheel, tmp_path, write_variant):
    snapshot = tmp_path / "r" / "kernels--me--toy" / "snapshots" / ("5" * 40)
    write_variant(snapshot / "build")
    asked = ("me/toy", "--version", "5" * 40, "--registry", tmp_path / "r")
    code, document, _ = wheel(*asked)
    assert code == 2
    assert "--as-version" in document["hint"]
    assert wheel(*asked, "--as-version", "1.0.7")[0] == 0


def test_a_directory_has_no_published_versions(wheel, tmp_path, write_variant):
    write_variant(tmp_path / "build")
    code, document, _ = wheel("build", "--version", "1")
    assert code == 2
    assert "is a directory" in document["message"]


def test_a_kernel_that_is_not_there_is_a_registry_error(wheel, tmp_path):
    assert wheel("me/toy", "--registry", tmp_path / "r")[0] == 8
    assert wheel(".")[0] == 2
    assert "no/such/directory" in wheel("no/such/directory")[1]["message"]


def test_a_wrong_epoch_is_reported(wheel, tmp_path, write_variant, monkeypatch):
    write_variant(tmp_path / "build")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    code, document, _ = wheel(".")
    assert code == 2
    assert "yesterday" in document["message"]


def test_a_kernel_is_not_built_for_versions_as_a_setup_py_is(wheel, tmp_path):
    (tmp_path / "build.toml").touch()
    (tmp_path / "setup.py").touch()
    code, document, _ = wheel(".", "--torch", "2.11")
    assert code == 2
    assert ". is not a setup.py project; --torch" in document["message"]
    (tmp_path / "empty").mkdir()
    assert "is not a setup.py project" in wheel("empty", "--torch", "2.11")[1]["message"]
