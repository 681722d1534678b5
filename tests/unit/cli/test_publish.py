# SPDX-License-Identifier: Apache-2.0
"""The destination, the version and the refusals of ``kernforge publish``."""

import json

import pytest
from support.commands import call
from support.manifests import CPU_AND_METAL
from support.projects import git, write_toy


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
def name_branch(project):
    """A function that names another branch in the manifest."""
    path = project / "build.toml"
    return lambda name: path.write_text(path.read_text().replace('"next"', f'"{name}"'))


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
    assert document["variants"] == ["torch-cpu"]
    assert not (project / "registry" / "kernels--me--my-op").exists()
    code, document = publish()
    assert (code, document["status"], document["branch"]) == (0, "uploaded", "next")
    assert document["version"] is None
    refs = project / "registry" / "kernels--me--my-op" / "refs"
    assert {path.name: path.read_text() for path in refs.iterdir()} == {"next": document["commit"]}


def test_the_branch_of_the_major_version_has_versions(publish, name_branch):
    name_branch("v1")
    document = publish()[1]
    assert (document["branch"], document["version"]) == ("v1", "1.0.0")


def test_the_card_is_printed_and_published(publish, project, capsys):
    (project / "CARD.md").write_text("# {{ repo_id }} {{ variants }}\n")
    document = publish("--dry-run")[1]
    assert document["card"] == "# me/my-op ['torch-cpu']"
    assert document["template"] == "CARD.md"
    assert call("publish", str(project), "--dry-run", "--repo-id", "a/b") == 0
    assert "# a/b ['torch-cpu']" in capsys.readouterr().out
    commit = publish()[1]["commit"]
    snapshot = project / "registry" / "kernels--me--my-op" / "snapshots" / commit
    assert (snapshot / "README.md").read_text() == "# me/my-op ['torch-cpu']"


def test_a_mistake_in_the_card_prevents_publication(publish, project):
    (project / "CARD.md").write_text("{% if %}")
    code, text = publish()
    assert (code, "CARD.md, line 1" in text) == (5, True)
    assert not (project / "registry" / "kernels--me--my-op").exists()


@pytest.mark.parametrize(
    ("branch", "words", "said"),
    [
        ("next", ("--version", "1.2.3"), "cannot be a branch without versions: 1.2.3 is a version"),
        ("v2", (), "cannot be a branch without versions"),
        ("v1.0.0", (), "cannot be a branch without versions"),
        ("main", (), "main is the newest version, but on a hub"),
        ("tmp-x", (), "is not the name of a branch"),
    ],
)
def test_what_a_branch_cannot_be_is_an_error_of_usage(publish, name_branch, branch, words, said):
    name_branch(branch)
    code, text = publish(*words)
    assert (code, said in text) == (2, True), text


# -- a build that is not of these sources ----------------------------------------------------------


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A project of Python alone in a checkout, whose version 1.0.0 is built and published."""
    monkeypatch.setenv("KERNFORGE_HOME", str(tmp_path / "home"))
    root = write_toy(tmp_path / "toy")
    hub = '["cpu", "cuda"]\n[general.hub]\nrepo-id = "me/toy"'
    manifest = root / "build.toml"
    manifest.write_text(manifest.read_text().replace('["cpu"]', hub))
    (root / ".gitignore").write_text("build/\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    registry = tmp_path / "registry"
    assert call("build", str(root)) == 0
    assert call("publish", str(root), "--registry", str(registry)) == 0
    return root, registry


def refs(registry):
    return {path.name: path.read_text() for path in registry.glob("*/refs/*")}


@pytest.mark.parametrize("version", [None, "v1.0.0", "v1.2.0"])
def test_sources_that_were_edited_after_the_build_are_not_published(toy, capsys, version):
    root, registry = toy
    before = refs(registry)
    (root / "torch-ext" / "toy" / "__init__.py").write_text("ANSWER = 43\n")
    if version:
        git(root, "commit", "-qam", "second")
        git(root, "tag", version)
    capsys.readouterr()
    assert call("publish", str(root), "--registry", str(registry)) != 0
    told = capsys.readouterr().err
    assert "built from other sources than the project has now: torch-cpu, torch-cuda" in told
    assert refs(registry) == before
    assert call("check", str(root)) != 0
    assert "built from other sources" in capsys.readouterr().out
    assert call("build", str(root)) == 0
    assert (call("publish", str(root), "--registry", str(registry)) == 0) is (version != "v1.0.0")
    after = refs(registry)
    assert after["v1.0.0"] == before["v1.0.0"]
    assert set(after) - set(before) == ({None: {"v1.0.1"}, "v1.0.0": set()}.get(version, {version}))


def test_variants_of_two_states_are_not_one_version(toy, capsys, tmp_path):
    root, registry = toy
    (root / "torch-ext" / "toy" / "__init__.py").write_text("ANSWER = 43\n")
    assert call("build", str(root), "--variant", "torch-cpu") == 0
    capsys.readouterr()
    assert call("publish", str(root), "--registry", str(registry)) != 0
    assert "the project has now: torch-cuda" in capsys.readouterr().err
    (root / "build").rename(tmp_path / "variants")
    assert call("check", str(tmp_path / "variants")) != 0
    assert "the variants are of different sources" in capsys.readouterr().out


def test_builds_of_two_machines_are_published_together(toy, capsys, tmp_path):
    root, registry = toy
    (root / "torch-ext" / "toy" / "__init__.py").write_text("ANSWER = 43\n")
    places = [str(tmp_path / name) for name in ("A", "B")]
    for place, variant in zip(places, ("torch-cpu", "torch-cuda"), strict=True):
        assert call("build", str(root), "--variant", variant, "--build-dir", place) == 0
    capsys.readouterr()
    assert call("publish", str(root), *places, "--registry", str(registry), "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["version"], document["variants"]) == ("1.0.1", ["torch-cpu", "torch-cuda"])
