# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from kernforge.cli.main import main


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


def test_wheels_of_a_directory_have_its_major_version_or_the_given_one(
    wheel, tmp_path, write_variant
):
    write_variant(tmp_path / "build", version=7)
    code, document, notes = wheel(".")
    assert code == 0
    (made,) = document["wheels"]
    assert (made["tag"], made["version"], made["requires"]) == ("py3-none-any", "7.0.0", ["torch"])
    assert (tmp_path / made["path"]).is_file()
    assert "the wheels get 7.0.0: there is no --as-version and no git tag vX.Y.Z" in notes
    _, document, notes = wheel(".", "--as-version", "7.2.1")
    assert [made["version"] for made in document["wheels"]] == ["7.2.1"]
    assert not notes


def test_a_commit_without_a_tag_needs_as_version(wheel, tmp_path, write_variant):
    snapshot = tmp_path / "r" / "kernels--me--toy" / "snapshots" / ("5" * 40)
    write_variant(snapshot / "build")
    asked = ("me/toy", "--version", "5" * 40, "--registry", tmp_path / "r")
    code, document, _ = wheel(*asked)
    assert code == 2
    assert "--as-version" in document["hint"]
    assert wheel(*asked, "--as-version", "1.0.7")[0] == 0


@pytest.fixture
def built(tmp_path, write_variant, monkeypatch):
    write_variant(tmp_path / "build")
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("build", "--version", "1"), 2, "is a directory"),
        (("me/toy", "--registry", "none"), 8, "none"),
        (("no/such/directory",), 2, "no/such/directory"),
        (("empty", "--torch", "2.11"), 2, "empty is not a setup.py project; --torch"),
        (("build",), 2, "SOURCE_DATE_EPOCH is 'yesterday'"),
    ],
)
def test_a_wrong_request_is_an_error_that_names_it(wheel, built, argv, code, message):
    status, document, _ = wheel(*argv)
    assert (status, message in document["message"]) == (code, True), document
