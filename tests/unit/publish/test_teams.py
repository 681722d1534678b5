# SPDX-License-Identifier: Apache-2.0
"""A directory of a team: its members publish to it, and may not read all of it."""

import os
import shutil
import stat
import tempfile
import traceback
from functools import partial
from pathlib import Path

import pytest
from support.commands import call
from support.pages import client

from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry

TEAM, ANN, BOB = 65_432, 65_433, 65_434
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="takes the place of two users"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


def as_user(user, work):
    """Call a function as a member of the team, whose umask is 002."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(TEAM, TEAM, TEAM)
            os.setresuid(user, user, user)
            os.umask(0o002)
            work()
        except BaseException:  # noqa: BLE001 - of a forked process, whose end it is
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def place(monkeypatch):
    """A directory that every user reaches, which pytest's are not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        home = Path(name) / "home"
        monkeypatch.setenv("KERNFORGE_HOME", str(home))
        home.mkdir()
        home.chmod(0o777)
        yield Path(name)


def test_members_publish_to_one_directory(place, write_variant):
    root = place / "registry"
    root.mkdir()
    shutil.chown(root, ANN, TEAM)
    root.chmod(0o2775)
    builds = [write_variant(place / each, variant="torch-universal", unique=each) for each in "abc"]
    for number, built in enumerate(builds):  # later imports are not readable for others
        publish(built, DirectoryRegistry(place / "other"), "acme/toy", f"1.0.{number}")
    for number, (user, built) in enumerate(zip((ANN, BOB, ANN), builds, strict=True)):
        version = f"1.0.{number}"
        as_user(user, partial(publish, built, DirectoryRegistry(root), "acme/toy", version))
    assert "v1.0.2" in DirectoryRegistry(root).refs("acme/toy")
    for path in root.rglob("*"):
        status = path.lstat()
        assert status.st_gid == TEAM, path
        if not path.is_symlink():
            assert status.st_mode & 0o020, path
            assert not status.st_mode & stat.S_IWOTH, path


def test_unreadable_or_unfinished_kernel_is_left_out_and_named(place, write_variant, capfd, caplog):
    registry = DirectoryRegistry(place / "registry")
    for name in ("acme/open", "acme/closed"):
        publish(write_variant(place / "a", variant="torch-universal"), registry, name, "1.0.0")
    (registry.link_root("acme/begun") / "blobs").mkdir(parents=True)

    def doors():
        assert call("search", "acme", "--registry", registry.root) == 0
        assert call("mirror", registry.root, place / "home" / str(os.geteuid())) == 0
        page = client(registry).get("/")
        assert page.status_code == 200
        assert "acme/open" in page.text

    doors()
    assert "acme/begun is left out: it has no version" in capfd.readouterr().err
    registry.link_root("acme/closed").chmod(0o700)
    as_user(BOB, doors)
    said = capfd.readouterr()
    assert "acme/open" in said.out
    assert "acme/closed was not searched" in said.err
    assert "acme/closed is left out" in said.err
    assert "kernels--acme--closed/refs cannot be read: Permission denied" in said.err
    assert DirectoryRegistry(place / "home" / str(BOB)).refs("acme/open")
