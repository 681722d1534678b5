# SPDX-License-Identifier: Apache-2.0
"""Somebody writes to a kernel's Python modules between their verification and their import (B6)."""

import itertools

import pytest

import kernforge
from kernforge.artifact.integrity import verify_tree
from kernforge.artifact.metadata import FILE, Metadata
from kernforge.errors import IntegrityError, StorageError
from kernforge.loader import importer
from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry

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
    with pytest.raises(StorageError, match="every user of this machine may write") as refused:
        kernforge.get_kernel("owner/open", version=1, registry=root)
    assert refused.value.hint.startswith(f"chmod o-w '{path}'") or place == "layers.py"
    path.chmod(before)
    assert kernforge.get_kernel("owner/open", version=1, registry=root)
