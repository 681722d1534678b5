# SPDX-License-Identifier: Apache-2.0
"""What reproduce makes of the machine before it builds anything."""

import pytest

from kernforge.audit import reproduce
from kernforge.errors import UsageError


def test_without_git_a_directory_is_no_checkout_and_a_commit_cannot_be_had(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert reproduce._checkout(tmp_path) is None
    with pytest.raises(UsageError, match="no clone: git is not installed"):
        reproduce._git("no clone", "clone", "somewhere")
