# SPDX-License-Identifier: Apache-2.0
"""The statement of a kernel names a folder outside of the checkout, which is written to (B5)."""

import subprocess

import pytest

from kernforge.errors import UsageError
from kernforge.project import git as checkout


def test_a_folder_outside_of_the_checkout_is_refused(tmp_path):
    origin, into = tmp_path / "origin", tmp_path / "into"
    origin.mkdir()
    (tmp_path / "home").mkdir()
    (origin / "kernel").symlink_to(tmp_path / "home")
    (origin / "real").mkdir()
    (origin / "real" / "build.toml").write_text("")
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    for arguments in (("init", "-q"), ("add", "-A"), (*identity, "commit", "-qm", "x")):
        subprocess.run(["git", "-C", str(origin), *arguments], check=True)
    done = subprocess.run(
        ["git", "-C", str(origin), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    )
    checkout.clone(str(origin), done.stdout.strip(), into)
    assert checkout.below(into, "real") == into / "real"
    assert checkout.below(into, "") == into
    for folder in ("kernel", "kernel/x", "..", "../home", "real/../../home", "/etc"):
        with pytest.raises(UsageError, match="leads out of the checkout"):
            checkout.below(into, folder)
