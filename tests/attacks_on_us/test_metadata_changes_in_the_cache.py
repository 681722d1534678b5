# SPDX-License-Identifier: Apache-2.0
"""Somebody writes to a registry's or cache's ``metadata.json``, which no digest covers (B8).

It has the digest of all other files, so who changes it may change them. Without a signature it is
held against the name of its blob. And what is published means no more than its content.
"""

import json
import os

import pytest

from kernforge.artifact.integrity import digest_tree
from kernforge.artifact.metadata import FILE
from kernforge.errors import IntegrityError, StorageError
from kernforge.loader.search import Search, find_kernel, find_local
from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.names import request
from kernforge.system import files
from kernforge.system.environment import Environment

REPO = "acme/toy"


@pytest.fixture
def registry(tmp_path):
    return DirectoryRegistry(tmp_path / "registry")


@pytest.fixture
def search(registry, tmp_path):
    return Search(registry, "cpu", Environment({"KERNFORGE_HOME": str(tmp_path / "home")}))


@pytest.fixture
def published(registry, tmp_path, write_variant):
    write_variant(tmp_path / "build")
    commit = publish(tmp_path / "build", registry, REPO).commit
    return registry.fetch(REPO, commit, "torch-cpu")


def evil_document(variant):
    """A document that fits a changed file."""
    blob = (variant / "_ops.py").resolve()
    blob.write_text("raise SystemExit('evil')\n")
    document = json.loads((variant / FILE).read_bytes())
    digest = digest_tree(variant, within=variant.parents[3])
    document["digest"]["files"] = dict(digest.files)
    return json.dumps(document).encode()


def in_place(variant, document):
    (variant / FILE).resolve().write_bytes(document)


def as_a_file(variant, document):
    (variant / FILE).unlink()
    (variant / FILE).write_bytes(document)


def as_another_link(variant, document):
    (variant / FILE).unlink()
    (variant.parents[3] / "blobs" / "more").write_bytes(document)
    (variant / FILE).symlink_to("../../../../blobs/more")


@pytest.mark.parametrize("change", [in_place, as_a_file, as_another_link])
@pytest.mark.parametrize("way", ["published", "local"])
def test_tampered_document_is_refused(search, published, change, way):
    find = {
        "published": lambda: find_kernel(search, request(REPO, 1)),
        "local": lambda: find_local(search, published),
    }[way]
    assert find().metadata.name == "toy"
    change(published, evil_document(published))
    with pytest.raises(IntegrityError, match="blob"):
        find()


def test_copy_without_links_loads(search, registry, published, tmp_path):
    import shutil  # noqa: PLC0415 - for this test

    copy = tmp_path / "copy"
    shutil.copytree(published, copy / "torch-cpu")
    assert find_local(search, copy).metadata.name == "toy"


@pytest.mark.parametrize("mode", [0o666, 0o777])
@pytest.mark.parametrize("name", ["_ops.py", FILE, "."])
def test_world_writable_files_are_not_published(registry, tmp_path, write_variant, mode, name):
    variant = write_variant(tmp_path / "build")
    (variant / name).chmod(mode)
    with pytest.raises(StorageError, match="every user of this machine may write"):
        publish(tmp_path / "build", registry, REPO)
    assert registry.refs(REPO) == {}


def test_modes_and_hard_links_are_not_published(registry, tmp_path, write_variant):
    variant = write_variant(tmp_path / "build")
    (variant / "_ops.py").chmod(0o6755)
    os.link(variant / "_ops.py", tmp_path / "elsewhere.py")
    publish(tmp_path / "build", registry, REPO)
    blobs = list((registry.link_root(REPO) / "blobs").iterdir())
    assert {blob.stat().st_mode & 0o7777 for blob in blobs} <= {0o644, 0o755}
    assert {blob.stat().st_nlink for blob in blobs} == {1}


def test_installed_files_have_plain_modes(registry, published, search, tmp_path):
    """Blobs of a registry and copies of it, whatever the modes were where they came from."""
    from kernforge.application import download  # noqa: PLC0415 - for this test

    for blob in (registry.link_root(REPO) / "blobs").iterdir():
        blob.chmod(0o6777)
    target = DirectoryRegistry(tmp_path / "installed")
    selection = download.Selection()
    for variant in download.fetch(search, [request(REPO, 1)], selection):
        download.copy(*variant, target)
    blobs = list((target.link_root(REPO) / "blobs").iterdir())
    assert blobs
    assert {blob.stat().st_mode & 0o7777 for blob in blobs} <= {0o644, 0o755}
    assert files.sha256_file(blobs[0]) == blobs[0].name
