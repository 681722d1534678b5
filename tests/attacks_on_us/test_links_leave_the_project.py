# SPDX-License-Identifier: Apache-2.0
"""Links of a project lead to files of the machine that builds it (A7).

Each would be packaged, compiled, or read for ever. All are refused, with the file and what it
leads to; a link to another file of the project stays what it is.
"""

import os
import signal
import socket

import pytest
from support import projects

from kernforge.errors import IntegrityError, UsageError
from kernforge.project import api as project

PACKAGE = "torch-ext/toy"


@pytest.fixture
def root(tmp_path):
    return projects.write_toy(tmp_path / "toy")


@pytest.fixture(autouse=True)
def bounded():
    """A read that never ends fails."""
    signal.alarm(300)
    yield
    signal.alarm(0)


TARGETS = [
    *("/proc/self/environ", "/proc/kmsg", "/dev/zero", "/etc/passwd", "/nowhere"),
    *("UP/secret", "../../../../../../../etc/passwd", "./UP/../toy/../secret"),
]
PLACES = [
    *(f"{PACKAGE}/data.py", f"{PACKAGE}/data.bin", "csrc/kernel.cu", "CARD.md", "LICENSE"),
    *("build.toml", "kernforge.lock"),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("place", PLACES)
def test_a_link_out_of_the_project_is_refused(root, place, target):
    (root.parent / "secret").write_text("secret")
    target = target.replace("UP", "/".join([".."] * len(place.split("/"))))
    target = target.removeprefix("./")
    link = root / place
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(target)
    with pytest.raises((IntegrityError, UsageError)) as raised:
        project.read_project(root)
    if isinstance(raised.value, UsageError):  # a device is not even a build.toml
        assert place == "build.toml"
        return
    assert str(link) in raised.value.message
    assert target in raised.value.message


@pytest.mark.parametrize(
    ("name", "target", "last"), [("b.h", "/etc/passwd", "b.h"), ("lib", "/etc", "lib/passwd")]
)
def test_a_link_through_a_link_is_followed_to_its_end(root, name, target, last):
    (root / name).symlink_to(target)
    (root / "a.h").symlink_to(last)
    with pytest.raises(IntegrityError, match="outside of"):
        project.read_project(root)


@pytest.mark.parametrize("kind", ["pipe", "socket", "link to a pipe"])
def test_what_is_not_a_file_is_refused(root, kind, monkeypatch):
    monkeypatch.chdir(root)
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind("odd.h")
    else:
        os.mkfifo("odd.h" if kind == "pipe" else ".odd")
    if kind == "link to a pipe":
        (root / "odd.h").symlink_to(".odd")
    with pytest.raises(IntegrityError, match="not a regular file") as raised:
        project.read_project(root)
    assert "odd.h" in raised.value.message


def test_a_link_inside_the_project_is_a_file_of_it(root):
    (root / "real.h").write_text("text")
    (root / "csrc").mkdir()
    (root / "csrc" / "link.h").symlink_to("../real.h")
    (root / "nothing.h").symlink_to("nowhere.h")
    found = project.read_project(root).files
    assert found["csrc/link.h"].read_text() == "text"
    assert "nothing.h" not in found
