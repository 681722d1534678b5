# SPDX-License-Identifier: Apache-2.0
"""Mirrors between registries: bytes, commits, interruptions, hostile sources."""

import json
import random
import shutil
import signal

import pytest
from support import mortal, policies, served
from support.commands import call
from support.variants import contents, replace_linked

from kernforge.errors import IntegrityError, RegistryError, UsageError
from kernforge.publish.api import publish
from kernforge.publish.mirror import kernels, mirror
from kernforge.registry.api import open_registry
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.names import request
from kernforge.trust import signing

REPO, CPU, CUDA = "owner/toy", "torch-cpu", "torch-cuda"
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture
def source(tmp_path, build):
    """A registry with two signed versions of a kernel, with sources, and a second kernel."""
    registry = DirectoryRegistry(tmp_path / "source")
    (tmp_path / "op.cpp").write_text("int op;")
    more = {"source": {"op.cpp": tmp_path / "op.cpp"}, "card": "# toy\n"}
    for version, text in (("1.0.0", "a"), ("1.1.0", "b")):
        built = build(text, (CPU, CUDA))
        signing.sign([built / name for name in (CPU, CUDA)], signing.Key().sign)
        publish(built, registry, REPO, version, **more)
    publish(build("c"), registry, "owner/other", "1.0.0")
    return registry


@pytest.fixture
def target(tmp_path):
    return DirectoryRegistry(tmp_path / "target")


def everything(registry, repo_id=REPO):
    """Reference to path to bytes."""
    return {
        name: {
            path: registry.file(repo_id, commit, path).read_bytes()
            for path in registry.listing(repo_id, commit)
        }
        for name, commit in registry.refs(repo_id).items()
    }


def copied(source, target, repo_id=REPO, version=None, revision=None):
    """The references that a mirror copies."""
    wanted = request(repo_id, version, revision) if version or revision else None
    return [each.reference for each in mirror(source, target, repo_id, wanted) if each.copied]


def test_versions_keep_bytes_and_commits(source, target):
    assert copied(source, target) == ["v1.0.0", "v1.1.0"]
    assert dict(target.refs(REPO)) == dict(source.refs(REPO))
    assert everything(target) == everything(source)
    assert copied(source, target) == []


def test_a_hub_is_mirrored_with_its_commits(hub, on_hub, build, target):
    untagged = {**contents(build("theirs")), "kernel-status.toml": b'kind = "x"\n'}
    commit = hub.add(REPO, "v1", untagged)
    publish(build("ours", version=2), open_registry("hf://"), REPO)
    source = open_registry("hf://")
    assert copied(source, target) == ["v2.0.0", "v1"]
    assert target.ref(REPO, "v1") == commit
    assert everything(target)["v1"] == hub.files(REPO, commit)
    assert everything(target)["v2.0.0"] == hub.files(REPO, "v2.0.0")
    hub.counted()
    assert copied(source, target) == []
    assert "GET resolve" not in hub.counted()
    moved = hub.add(REPO, "v1", contents(build("newer")))
    source.forget(REPO)
    assert (copied(source, target), target.ref(REPO, "v1")) == (["v1"], moved)


def test_to_a_hub_and_back_is_the_same(source, on_hub, target):
    assert copied(source, open_registry("hf://")) == ["v1.0.0", "v1.1.0"]
    there = open_registry("hf://")
    there.forget(REPO)
    assert copied(source, there) == []
    assert copied(there, target) == ["v1.0.0", "v1.1.0"]
    both = [everything(each)["v1.1.0"] for each in (source, target)]
    assert {**both[1], ".gitattributes": b""} == {**both[0], ".gitattributes": b""}


def test_a_web_server_is_mirrored(source, target, web_server, tmp_path, monkeypatch):
    monkeypatch.setenv("KERNFORGE_HOME", str(tmp_path / "home"))
    shown = open_registry(web_server(source.root).url)
    assert copied(shown, target) == ["v1.0.0", "v1.1.0"]
    assert everything(target) == everything(source)
    shutil.rmtree(tmp_path / "home")
    assert copied(open_registry(shown.url), target) == []
    assert not [*tmp_path.glob("home/**/blobs/*")]  # what is there is not downloaded again
    with pytest.raises(UsageError, match="does not list its kernels"):
        kernels(shown)
    assert kernels(source) == (("owner/other", REPO), {})
    with pytest.raises(RegistryError, match="cannot be written to"):
        copied(source, shown)


def test_buckets_keep_bytes_and_commits(source, target, bucket, tmp_path):
    place = open_registry(bucket)
    assert copied(source, place) == ["v1.0.0", "v1.1.0"]
    assert copied(source, open_registry(bucket)) == []
    assert copied(open_registry(bucket), target) == ["v1.0.0", "v1.1.0"]
    assert everything(target) == everything(source)
    hostile = DirectoryRegistry(tmp_path / "hostile")
    impersonate(hostile, source)
    with pytest.raises(IntegrityError, match="with other files"):
        copied(hostile, place)


def test_oci_registries_keep_bytes_and_signatures(source, target, oci_registry):
    location = oci_registry()
    assert copied(source, open_registry(location)) == ["v1.0.0", "v1.1.0"]
    assert copied(source, open_registry(location)) == []
    place = open_registry(location)
    assert kernels(place) == ((REPO,), {})
    assert copied(place, target) == ["v1.0.0", "v1.1.0"]
    assert everything(target) == everything(source)
    assert "build/torch-cpu/metadata.json.sigstore" in everything(target)["v1"]
    assert target.ref(REPO, "v1") == place.ref(REPO, "v1") != source.ref(REPO, "v1")


def impersonate(hostile, victim):
    """Give a version of a hostile registry the commit of another version of the victim's."""
    name = victim.ref(REPO, "v1.0.0")
    shutil.copytree(victim.link_root(REPO), hostile.link_root(REPO), symlinks=True)
    change_link(hostile.snapshot(REPO, name))
    (hostile.snapshot(REPO, name) / "build" / CPU / "metadata.json").unlink()
    for tag in ("v1.0.0", "v1.1.0"):
        (hostile.link_root(REPO) / "refs" / tag).unlink()
    hostile.set_ref(REPO, "v1.2.0", name)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({"version": "1"}, ["v1.0.0", "v1.1.0"]),
        ({"version": "1.0.0"}, ["v1.0.0"]),
        ({"version": ">=1.1,<2"}, ["v1.1.0"]),
        ({"revision": "v1.1.0"}, ["v1.1.0"]),
        ({"revision": "dev"}, ["dev"]),
    ],
)
def test_chosen_versions_are_copied(source, build, tmp_path, wanted, names):
    publish(build("d"), source, REPO, branch="dev")
    target = DirectoryRegistry(tmp_path / "target")
    assert copied(source, target, **wanted) == names


def test_other_bytes_at_the_target_are_refused(source, target, build):
    publish(build("other", (CPU, CUDA)), target, REPO, "1.1.0")
    before = everything(target)
    with pytest.raises(RegistryError, match=r"has owner/toy v1\.1\.0 with other bytes"):
        copied(source, target, version="1.1")
    assert everything(target) == before


def test_a_branch_does_not_replace_versions(hub, on_hub, target, build):
    hub.add(REPO, "v1", contents(build("theirs")))
    publish(build("own"), target, REPO)
    with pytest.raises(RegistryError, match="follows versions"):
        copied(open_registry("hf://"), target)


@pytest.mark.parametrize("get", [False, True])
def test_a_branch_of_another_publisher_does_not_move(source, target, build, get):
    publish(build("d"), source, REPO, branch="dev")
    assert copied(source, target, revision="dev") == ["dev"]
    publish(build("e"), source, REPO, branch="dev")
    assert copied(source, target, revision="dev") == ["dev"]
    publish(build("own"), target, REPO, branch="dev")
    before = everything(target)
    words = ("--version", "dev", "--registry", source.root, "--to", target.root)
    if get:
        assert call("get", REPO, *words, "--variant", "*", "--trust-remote-code") != 0
    else:
        with pytest.raises(RegistryError, match=r"dev of owner/toy .* does not have"):
            copied(source, target, revision="dev")
    assert everything(target) == before


def change_blob(snapshot):
    file = (snapshot / "build" / CPU / "__init__.py").resolve()
    file.write_bytes(file.read_bytes()[::-1])


def change_link(snapshot):
    replace_linked(snapshot / "build" / CPU / "__init__.py", b"import evil\n")


def remove_file(snapshot):
    (snapshot / "build" / CPU / "__init__.py").unlink()


def link_outside(snapshot):
    (snapshot / "source/passwd").symlink_to("/etc/passwd")


def change_copy(snapshot):
    """In a copy that followed links, no blob has a name: the digest has the hashes."""
    file = snapshot / "build" / CPU / "__init__.py"
    file.unlink()
    file.write_bytes(b"import evil\n")


@pytest.mark.parametrize(
    "tamper", [change_blob, change_link, remove_file, link_outside, change_copy]
)
def test_a_tampered_source_is_refused(source, target, tamper):
    tamper(source.snapshot(REPO, source.ref(REPO, "v1.1.0")))
    with pytest.raises(IntegrityError):
        copied(source, target)
    assert set(target.refs(REPO)) == {"main", "v1", "v1.0.0"}
    assert copied(source, target, "owner/other") == ["v1.0.0"]


def test_a_tampered_web_server_is_refused(source, target, web_server, tmp_path, monkeypatch):
    monkeypatch.setenv("KERNFORGE_HOME", str(tmp_path / "home"))
    for kind in ("blobs", "packs"):
        for file in (source.link_root(REPO) / kind).iterdir():
            file.write_bytes(file.read_bytes()[::-1])
    with pytest.raises(IntegrityError, match="is not what"):
        copied(open_registry(web_server(source.root).url), target)
    assert not target.refs(REPO)


@pytest.mark.parametrize("name", ["a\nb.py", "a\\b.py", "A/b.py\x1b[2J", "__INIT__.py"])
def test_names_that_readers_refuse_are_not_written(tmp_path, target, write_variant, name):
    files = {"__init__.py": "", name: ""}
    built = write_variant(tmp_path / "odd", variant="torch-universal", files=files)
    with pytest.raises(IntegrityError, match=r"is no path in a registry|differ in case alone"):
        publish(built, target, REPO)
    hostile = DirectoryRegistry(tmp_path / "hostile")
    content = {f"build/torch-universal/{path}": data for path, data in contents(built).items()}
    served.publish(hostile, REPO, content, "v1", "v1.0.0")
    with pytest.raises(IntegrityError, match=r"is no path in a registry|differ in case alone"):
        copied(hostile, target)
    assert not target.refs(REPO)
    assert not (target.link_root(REPO) / "blobs").exists()


def test_a_source_cannot_change_a_commit_of_the_target(source, target, tmp_path):
    copied(source, target)
    hostile = DirectoryRegistry(tmp_path / "hostile")
    impersonate(hostile, source)
    before = everything(target)
    with pytest.raises(IntegrityError, match="with other files"):
        copied(hostile, target)
    assert everything(target) == before


KILLED = """
from pathlib import Path
from kernforge.publish.mirror import mirror
from kernforge.registry.directory import DirectoryRegistry

list(mirror(DirectoryRegistry(Path(sys.argv[3])), DirectoryRegistry(Path(root)), "owner/toy"))
"""


def test_a_killed_mirror_is_finished(source, tmp_path):
    whole = everything(source)
    writes = int(mortal.run(KILLED, tmp_path / "all", 0, source.root).stdout)
    for deadly in random.Random(1).sample(range(1, writes), 8):
        target = DirectoryRegistry(tmp_path / f"target{deadly}")
        done = mortal.run(KILLED, target.root, deadly, source.root)
        assert done.returncode == -signal.SIGKILL
        half = everything(target)
        assert all(half[name] == whole[name] for name in half if name.count(".")), deadly
        assert len(list(mirror(source, target, REPO))) == 2
        assert everything(target) == whole


PROJECT = """
[project]
name = "app"
version = "1.0"
[tool.kernels.dependencies]
"acme/toy" = ">=1.0,<2"
"""


def test_signatures_and_locks_hold_at_the_target(tmp_path, monkeypatch, write_variant, capsys):
    policies.without_policies(monkeypatch, tmp_path)
    key = signing.Key()
    policies.user(policies.SIGNED.format(key.public_text))
    signing.sign([write_variant(tmp_path / "build", variant="torch-universal")], key.sign)
    source, target = tmp_path / "source", tmp_path / "target"
    publish(tmp_path / "build", DirectoryRegistry(source), "acme/toy")
    (tmp_path / "app").mkdir()
    (tmp_path / "app/pyproject.toml").write_text(PROJECT)
    assert call("lock", tmp_path / "app", "--registry", source) == 0
    capsys.readouterr()
    assert call("mirror", source, target, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    (row,) = document["versions"]
    assert (row["repo_id"], row["reference"], row["copied"]) == ("acme/toy", "v1.0.0", True)
    shutil.rmtree(source)
    assert call("get", tmp_path / "app", "--registry", target) == 0
    for signature in target.rglob("metadata.json.sigstore"):
        signature.unlink()
    assert call("get", tmp_path / "app", "--registry", target) == 12


def test_the_command_says_what_it_did(source, target, capsys):
    assert call("mirror", source.root, target.root, f"{REPO}@1.0.0") == 0
    told = capsys.readouterr()
    assert "copied owner/toy v1.0.0 (" in told.err
    assert told.out.startswith("copied 1 of 1 versions (")
    assert call("mirror", source.root, target.root) == 0
    told = capsys.readouterr()
    assert "there already: owner/toy v1.0.0" in told.err
    assert "copied 2 of 3 versions" in told.out
    for version in ("9", "==1.2.*"):
        assert call("mirror", source.root, target.root, f"{REPO}@{version}") == 8
    assert call("mirror", source.root / "typo", target.root) == 8
    assert "/typo has no kernel" in capsys.readouterr().err
