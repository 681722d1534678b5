# SPDX-License-Identifier: Apache-2.0
"""Somebody writes to a registry or a cache while or after a kernel is verified (B6, B8).

Python modules change between their verification and their import. ``metadata.json``, which no
digest covers and which has the digest of all other files, is held against the name of its blob
where it is not signed. And what is published means no more than its content.
"""

import itertools
import json
import os

import pytest

import kernforge
from kernforge.application import download
from kernforge.artifact.integrity import digest_tree, verify_tree
from kernforge.artifact.metadata import FILE, Metadata
from kernforge.errors import IntegrityError, StorageError
from kernforge.loader import importer
from kernforge.loader.search import Search, find_kernel, find_local
from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.names import request
from kernforge.system import files
from kernforge.system.environment import Environment

_number = itertools.count()


def verified(tmp_path, write_variant, files):
    unique = f"race{next(_number)}"
    path = write_variant(tmp_path / unique, unique=unique, files=files)
    metadata = Metadata.from_json((path / FILE).read_bytes())
    verify_tree(path, metadata.digest)
    return path, metadata


def load(path, metadata):
    with importer.lock:
        return importer.import_kernel(path, metadata, dependencies={})


FILES = {
    "__init__.py": "from . import inner\nfrom .deep import value\nANSWER = inner.ANSWER\n",
    "inner.py": "ANSWER = 42\n",
    "deep/__init__.py": "value = 1\n",
    "late.py": "ANSWER = 43\n",
}


@pytest.mark.parametrize("name", ["__init__.py", "inner.py", "deep/__init__.py"])
def test_module_changed_after_verification_never_runs(tmp_path, write_variant, name):
    mark = tmp_path / "run"
    path, metadata = verified(tmp_path, write_variant, FILES)
    (path / name).write_text(f"open({str(mark)!r}, 'w')\nANSWER = value = 0\n")
    with pytest.raises(IntegrityError, match="changed after it was verified"):
        load(path, metadata)
    assert not mark.exists()


def test_late_import_is_verified(tmp_path, write_variant):
    path, metadata = verified(tmp_path, write_variant, FILES)
    module = load(path, metadata)
    (path / "late.py").write_text("raise SystemExit('evil')\n")
    with pytest.raises(IntegrityError, match=r"late\.py changed"):
        importer.importlib.import_module(f"{module.__name__}.late")


def test_added_module_never_runs(tmp_path, write_variant):
    path, metadata = verified(tmp_path, write_variant, FILES)
    module = load(path, metadata)
    (path / "added.py").write_text("raise SystemExit('evil')\n")
    with pytest.raises(IntegrityError, match=r"added\.py changed"):
        importer.importlib.import_module(f"{module.__name__}.added")


@pytest.mark.parametrize("place", ["layers.py", "variant", "kernel", "registry"])
def test_world_writable_files_are_refused(tmp_path, write_variant, place):
    root = tmp_path / "registry"
    build = write_variant(tmp_path / "build", variant="torch-universal", unique=f"open{place[:3]}")
    commit = publish(build.parent, DirectoryRegistry(root), "owner/open").commit
    variant = DirectoryRegistry(root).fetch("owner/open", commit, build.name)
    kernel = root / "kernels--owner--open"
    opened = {"layers.py": (variant / "_ops.py").resolve(), "variant": variant, "kernel": kernel}
    path = opened.get(place, root)
    before = path.stat().st_mode & 0o777
    path.chmod(0o777)
    with pytest.raises(StorageError, match="is world-writable") as refused:
        kernforge.get_kernel("owner/open", version=1, registry=root)
    assert refused.value.hint.startswith(f"chmod o-w '{path}'") or place == "layers.py"
    path.chmod(before)
    assert kernforge.get_kernel("owner/open", version=1, registry=root)


# -- metadata.json, and what is published ----------------------------------------------------------

REPO = "acme/toy"


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


@pytest.mark.parametrize("mode", [0o666, 0o777])
@pytest.mark.parametrize("name", ["_ops.py", FILE, "."])
def test_world_writable_files_are_not_published(registry, tmp_path, write_variant, mode, name):
    variant = write_variant(tmp_path / "build")
    (variant / name).chmod(mode)
    with pytest.raises(StorageError, match="is world-writable"):
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
