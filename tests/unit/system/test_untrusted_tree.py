# SPDX-License-Identifier: Apache-2.0
import os

import pytest

from kernforge.errors import IntegrityError
from kernforge.system import untrusted_tree


@pytest.fixture
def root(tmp_path):
    """A project in which a stranger has put what he likes, beside a file of the user's."""
    outside = tmp_path / "outside"
    (outside / "sub").mkdir(parents=True)
    (outside / "mine").write_text("mine")
    project = tmp_path / "project"
    (project / "real").mkdir(parents=True)
    (project / "real" / "file").write_text("old")
    (project / "link").symlink_to(outside)
    (project / "leaf").symlink_to(outside / "mine")
    (project / "real" / "up").symlink_to("../../outside")
    os.mkfifo(project / "pipe")
    return project


def snapshot(path):
    return {
        str(each.relative_to(path)): each.is_file() and each.read_text() for each in path.rglob("*")
    }


DOORS = {
    "read": lambda root, name: untrusted_tree.read_bytes(root, name, limit=9),
    "write": lambda root, name: untrusted_tree.write(root, name, "new"),
}
ESCAPES = [
    "link/mine",
    "link/sub",
    "real/up/mine",
    "pipe/x",
    "../outside/mine",
    "/etc/hostname",
    "//etc/hostname",
    "a\0b",
]


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize("name", ESCAPES)
def test_no_door_leads_out_of_the_tree(root, door, name):
    before = snapshot(root.parent / "outside")
    with pytest.raises(IntegrityError):
        door(root, name)
    assert snapshot(root.parent / "outside") == before


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", ["link", "leaf", "pipe"])
def test_a_link_or_a_pipe_is_not_taken_for_a_file(root, door, name):
    before = snapshot(root.parent / "outside")
    with pytest.raises(IntegrityError, match=f"{name} is .*not a"):
        DOORS[door](root, name)
    assert snapshot(root.parent / "outside") == before


def test_files_are_written_below_the_root(root):
    untrusted_tree.write(root, "new/deep/run.sh", "echo")
    untrusted_tree.write(root, "real/file", b"new")
    assert (root / "new/deep/run.sh").read_text() == "echo"
    assert untrusted_tree.read_bytes(root, "real/file", limit=9) == b"new"
