# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.errors import UsageError
from kernforge.project import git as checkout


def test_without_git_a_directory_is_not_a_checkout_and_a_commit_cannot_be_had(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert checkout.find(tmp_path) is None
    with pytest.raises(
        UsageError, match="https://somewhere cannot be cloned: git is not installed"
    ):
        checkout.clone("https://somewhere", "0" * 40, tmp_path / "new")


def test_a_repository_that_is_not_known_is_asked_for(tmp_path):
    with pytest.raises(UsageError, match="names no source repository") as raised:
        checkout.clone(None, "0" * 40, tmp_path / "new")
    assert "0" * 40 in raised.value.hint
