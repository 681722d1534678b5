# SPDX-License-Identifier: Apache-2.0
"""Another user puts a ``pyproject.toml`` above the directory of a process (B9), as into /tmp."""

import logging
import os

import pytest

from kernforge.system.environment import Environment
from kernforge.trust import admission

POLICY = '[[tool.kernforge.trust.rule]]\nadmit = "never"\n'
STRANGER = 12345


@pytest.fixture
def below(tmp_path, monkeypatch):
    """A directory below one that another user controls, where this process is."""
    work = tmp_path / "shared" / "work"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    monkeypatch.setattr(admission, "SITE", tmp_path / "none")
    admission._note_ignored.cache_clear()
    return work


def policies(tmp_path):
    environment = Environment({"XDG_CONFIG_HOME": str(tmp_path / "config")})
    return [policy.source for policy in admission.read_policies(environment)]


def foreign(monkeypatch, *files):
    """Let these files be another user's, as far as this process can see."""
    if os.geteuid() == 0:
        for file in files:
            os.chown(file, STRANGER, STRANGER, follow_symlinks=False)
    else:  # who is not root cannot give files away: be another user than the owner instead
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)


def test_the_policy_of_another_user_above_is_ignored(tmp_path, monkeypatch, below, caplog):
    planted = below.parent / "pyproject.toml"
    planted.write_text(POLICY)
    assert policies(tmp_path) == [str(planted)]  # one of this user counts
    foreign(monkeypatch, planted)
    with caplog.at_level(logging.WARNING, "kernforge"):
        assert policies(tmp_path) == []
    assert "is another user's" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_link_of_another_user_to_a_file_of_this_one_is_ignored(tmp_path, monkeypatch, below):
    own = tmp_path / "own.toml"
    own.write_text(POLICY)
    planted = below.parent / "pyproject.toml"
    planted.symlink_to(own)
    foreign(monkeypatch, planted)
    assert policies(tmp_path) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_policy_farther_above_still_counts(tmp_path, monkeypatch, below):
    planted, real = below.parent / "pyproject.toml", tmp_path / "pyproject.toml"
    planted.write_text("[project]\nname = 'x'\n")
    real.write_text(POLICY)
    foreign(monkeypatch, planted)
    assert policies(tmp_path) == [str(real)]


def test_the_policy_of_the_directory_itself_counts(tmp_path, monkeypatch, below):
    """It can only tighten, and a colleague's checkout keeps what it demands."""
    here = below / "pyproject.toml"
    here.write_text(POLICY)
    foreign(monkeypatch, here)
    assert policies(tmp_path) == [str(here)]
