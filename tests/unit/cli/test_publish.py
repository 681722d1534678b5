# SPDX-License-Identifier: Apache-2.0
"""What ``kernforge publish`` says, and where it publishes to."""

import json

import pytest
from support.commands import call
from support.manifests import CPU_AND_METAL


@pytest.fixture
def project(tmp_path, write_variant):
    """A built project whose manifest names a branch."""
    hub = '[general.hub]\nrepo-id = "me/my-op"\nbranch = "next"\n[torch]'
    (tmp_path / "build.toml").write_text(CPU_AND_METAL.replace("[torch]", hub))
    for name in ("op.cpp", "op.mm"):
        (tmp_path / name).touch()
    write_variant(tmp_path / "build", name="my-op")
    return tmp_path


@pytest.fixture
def publish(project, capsys):
    """Publish the project; returns the exit code, and the document or what went wrong."""

    def start(*words):
        registry = ("--registry", str(project / "registry"))
        code = call("publish", str(project), *registry, *words, "--json")
        out, err = capsys.readouterr()
        return code, json.loads(out) if code == 0 else err

    return start


def test_the_branch_of_the_manifest_is_published_to(publish, project):
    code, document = publish("--dry-run")
    assert (code, document["version"], document["branch"]) == (0, None, "next")
    assert document["added"] == ["torch-cpu"]
    assert not (project / "registry" / "kernels--me--my-op").exists()
    code, document = publish()
    assert (code, document["status"], document["branch"]) == (0, "uploaded", "next")
    assert document["version"] is None
    refs = project / "registry" / "kernels--me--my-op" / "refs"
    assert {path.name: path.read_text() for path in refs.iterdir()} == {"next": document["commit"]}


def test_an_option_names_another_branch_or_the_versions(publish):
    assert publish("--branch", "feature/x")[1]["branch"] == "feature/x"
    document = publish("--branch", "v1")[1]
    assert (document["branch"], document["version"]) == ("v1", "1.0.0")


def test_the_card_of_the_manifest_is_shown_and_published(publish, project, capsys):
    (project / "CARD.md").write_text("# {{ repo_id }} {{ variants }}\n")
    assert call("card", str(project), "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "card": "# me/my-op ['torch-cpu']",
        "template": "CARD.md",
    }
    assert call("card", str(project), "--repo-id", "a/b", "--out", str(project / "out.md")) == 0
    assert (project / "out.md").read_text() == "# a/b ['torch-cpu']"
    capsys.readouterr()
    commit = publish()[1]["commit"]
    snapshot = project / "registry" / "kernels--me--my-op" / "snapshots" / commit
    assert (snapshot / "README.md").read_text() == "# me/my-op ['torch-cpu']"


def test_a_mistake_in_the_card_is_said_before_anything_is_written(publish, project):
    (project / "CARD.md").write_text("{% if %}")
    code, text = publish()
    assert (code, "CARD.md, line 1" in text) == (5, True)
    assert not (project / "registry" / "kernels--me--my-op").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--version", "1.2.3"), "the branch 'next' has no versions, and 1.2.3 is one"),
        (("--branch", "v2"), "the branch of another major version: version is 1 in this build"),
        (("--branch", "v1.0.0"), "the name of a version's tag"),
        (("--branch", "main"), "is its newest version"),
        (("--branch", "a..b"), "is not the name of a branch"),
        (("--branch", "kernforge-releases"), "has a meaning of its own"),
        (("--valid-for", "9", "--sign", "none"), "the list of releases has versions"),
    ],
)
def test_what_a_branch_cannot_be_is_an_error_of_usage(publish, words, said):
    code, text = publish(*words)
    assert (code, said in text) == (2, True), text
