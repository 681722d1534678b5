# SPDX-License-Identifier: Apache-2.0
"""The directories that a user may name."""

from pathlib import Path

import pytest

from kernforge.artifact import directories
from kernforge.errors import UsageError


def make(path):
    path.mkdir(parents=True)
    (path / "metadata.json").write_text("{}")
    return path


def test_a_project_a_build_or_a_variant_is_accepted(tmp_path):
    two = [make(tmp_path / "p/build" / name) for name in ("a", "b")]
    (tmp_path / "p/build/notes").mkdir()
    assert list(directories.variants(tmp_path / "p")) == two
    assert list(directories.variants(tmp_path / "p/build")) == two
    assert list(directories.variants(two[0])) == two[:1]


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
