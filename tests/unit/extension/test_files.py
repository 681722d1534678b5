# SPDX-License-Identifier: Apache-2.0
import os

import pytest

from kernforge.errors import UsageError
from kernforge.extension import flags
from kernforge.extension.request import Tree


@pytest.fixture
def source(tmp_path):
    (tmp_path / "inc").mkdir()
    (tmp_path / "a.cpp").write_text('#include "b.h"\n#include <c.h>\n#include <vector>\n')
    (tmp_path / "b.h").write_text("int b;\n")
    (tmp_path / "inc" / "c.h").write_text("int c;\n")
    for path in tmp_path.rglob("*"):
        os.utime(path, (1, 1))
    return tmp_path


def read(source):
    tree = Tree({})
    top = str(source).lstrip("/")
    return tree.closure(f"{top}/a.cpp", (f"{top}/inc",), ()), tree


@pytest.mark.parametrize("change", ["", "content", "time set back", "shadow", "gone", "just now"])
def test_a_change_alone_is_seen(source, change):
    if change == "just now":  # another change could have the same time
        (source / "b.h").write_text("int b;\n")
    _, seen = read(source)
    if change == "content":
        (source / "inc" / "c.h").write_text("int d;\n")
    elif change == "time set back":
        (source / "b.h").write_text("int d;\n")
        os.utime(source / "b.h", (1, 1))
    elif change == "shadow":  # the same name where it is looked for first
        (source / "inc" / "b.h").write_text("")
    elif change == "gone":
        (source / "b.h").unlink()
    assert seen.unchanged() is (change == "")


def test_a_source_that_is_no_file_is_named(source):
    with pytest.raises(UsageError, match=r"there is no source /nowhere/x\.cpp"):
        Tree({}).closure("nowhere/x.cpp", (), ())
    with pytest.raises(UsageError, match="there is no source"):
        Tree({}).closure(str(source).lstrip("/"), (), ())


@pytest.mark.parametrize(
    ("directory", "installed"),
    [
        ("/usr/src/app/include", False),
        ("/usr/include/eigen3", False),
        ("/usr/include", True),
        ("/opt/torch/include", True),
    ],
)
def test_a_directory_below_usr_is_the_users(directory, installed):
    assert flags.is_installed(directory, ["/opt/torch"]) is installed


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("{top}/b.h:3:1: error: no", "/{top}/b.h:3:1: error: no"),
        ("/other/{top}/b.h:3:1: error: no", "/other/{top}/b.h:3:1: error: no"),
        ("cpp_sources:2:5: error: no", "cpp_sources:2:5: error: no"),
    ],
)
def test_messages_have_the_users_paths(source, written, shown):
    top = str(source).lstrip("/")
    tree = Tree({"cpp_sources": "int x;"})
    tree.closure(f"{top}/a.cpp", (), ())
    assert tree.restore(written.format(top=top)) == shown.format(top=top)
