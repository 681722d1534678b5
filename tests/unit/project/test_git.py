# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.errors import UsageError
from kernforge.project import git as checkout


def test_without_git_nothing_is_cloned(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert checkout.find(tmp_path) is None
    with pytest.raises(
        UsageError, match="https://somewhere cannot be cloned: git is not installed"
    ):
        checkout.clone("https://somewhere", "0" * 40, tmp_path / "new")


def test_an_unknown_repository_is_reported(tmp_path):
    with pytest.raises(UsageError, match="names no source repository") as raised:
        checkout.clone(None, "0" * 40, tmp_path / "new")
    assert "0" * 40 in raised.value.hint
