# SPDX-License-Identifier: Apache-2.0
"""The statement of a kernel names a folder outside of the checkout, which is written to (B5)."""

import json
import subprocess

import pytest

from kernforge.builder import provenance
from kernforge.errors import IntegrityError, UsageError
from kernforge.project import git as checkout

FOLDERS = ["..", "../x", "a/../../x", "/etc", "a//b", "./a", "a/.git/hooks", ".git", "a\\b"]


def statement(folder):
    source = {"sources": "x", "version": "0", "folder": folder}
    definition = {
        "buildType": provenance._BUILD_TYPE,
        "externalParameters": {"variant": "torch-cpu", "source": source},
        "internalParameters": {"sandbox": {"isolation": "none"}, "actions": []},
    }
    return json.dumps({"predicate": {"buildDefinition": definition}})


@pytest.mark.parametrize("folder", ["", "kernels/toy", "a b/..c"])
def test_a_folder_in_a_checkout_is_read(folder):
    assert provenance.read(statement(folder)).origin.folder == folder


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_that_is_no_path_in_a_checkout_is_refused(folder):
    with pytest.raises(IntegrityError, match="is not a path in a checkout"):
        provenance.read(statement(folder))


def test_a_folder_that_is_a_committed_link_is_refused(tmp_path):
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
    for folder in ("kernel", "kernel/x", "../home"):
        with pytest.raises(UsageError, match="leads out of the checkout"):
            checkout.below(into, folder)
