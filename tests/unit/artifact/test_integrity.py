# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

import pytest

from kernforge.artifact import directories
from kernforge.artifact.integrity import digest_tree, verify_tree
from kernforge.errors import IntegrityError, UsageError


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "variant"
    for path in ["__init__.py", "sub/metadata.json", "a.so", "metadata.json"]:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"content of {path}")
    (root / "hello.txt").write_text("hello world")
    return root


def test_deviations_are_listed_by_path(tree):
    digest = digest_tree(tree)
    verify_tree(tree, digest)
    (tree / "a.so").write_text("content of A.so")
    (tree / "sub/metadata.json").unlink()
    (tree / "b.py").write_text("")
    with pytest.raises(IntegrityError) as caught:
        verify_tree(tree, digest)
    named = [line.strip() for line in caught.value.message.splitlines()[1:]]
    assert named == ["changed: a.so", "extra: b.py", "missing: sub/metadata.json"]


def test_sha512_is_verified_as_sha512(tree):
    digest = digest_tree(tree, algorithm="sha512")
    verify_tree(tree, digest)
    (tree / "a.so").write_text("")
    with pytest.raises(IntegrityError, match=r"changed: a\.so"):
        verify_tree(tree, digest)


def test_a_link_may_not_leave_its_root(tree, tmp_path):
    (tmp_path / "blob").write_text("x")
    (tmp_path / "variantly").write_text("x")
    (tree / "link").symlink_to("../blob")
    assert "link" in digest_tree(tree, within=tmp_path).files
    with pytest.raises(IntegrityError, match=r"link .* leaves"):
        digest_tree(tree)
    (tree / "link").unlink()
    (tree / "near").symlink_to("../variantly")
    with pytest.raises(IntegrityError, match=r"near .* leaves"):
        digest_tree(tree)


@pytest.mark.parametrize("target", ["nowhere", "../other"])
def test_a_link_to_a_directory_or_to_nothing_is_refused(tree, tmp_path, target):
    (tmp_path / "other").mkdir()
    (tree / "odd").symlink_to(target)
    with pytest.raises(IntegrityError, match=r"odd .* is a link that does not lead"):
        digest_tree(tree, within=tmp_path)


def test_a_pipe_is_refused(tree):
    os.mkfifo(tree / "pipe")
    with pytest.raises(IntegrityError, match=r"pipe .* is not a regular file"):
        digest_tree(tree)


# -- directories that a user may name --------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"), [("empty", "has no built variant"), ("no", "is not a directory")]
)
def test_an_empty_directory_is_not_a_missing_one(tmp_path, name, said):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=rf"{name} {said}"):
        directories.variants(tmp_path / name)


def test_an_existing_directory_is_preferred_to_a_kernel(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "me/here").mkdir(parents=True)
    (tmp_path / "me/file").write_text("")
    assert directories.directory_of("me/here").is_dir()
    assert directories.directory_of("me/elsewhere") is None
    assert directories.directory_of("me") == Path("me")
    with pytest.raises(UsageError, match="me/file is a file"):
        directories.directory_of("me/file")
    for wrong in ("nothing", "a/b/c", "../x", "/x"):
        with pytest.raises(UsageError, match=f"{wrong} is not a directory"):
            directories.directory_of(wrong)
