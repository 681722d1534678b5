# SPDX-License-Identifier: Apache-2.0
import io
import os

from kernforge.store import tree_archive


def fill(root, order=("b", "a")):
    for name in order:
        (root / name).mkdir(parents=True)
        (root / name / "data").write_bytes(name.encode() * 3_000_000)
    (root / "run").write_text("#!/bin/sh\n")
    (root / "run").chmod(0o755)
    (root / "lib64").symlink_to("a")
    return root


def packed(root):
    out = io.BytesIO()
    tree_archive.pack(root, out)
    return out.getvalue()


def test_what_comes_out_is_what_went_in(tmp_path):
    data = packed(fill(tmp_path / "one"))
    tree_archive.unpack(io.BytesIO(data), tmp_path / "two")
    two = tmp_path / "two"
    assert (two / "b" / "data").read_bytes() == b"b" * 3_000_000
    assert os.access(two / "run", os.X_OK)
    assert not os.access(two / "a" / "data", os.X_OK)
    assert (two / "lib64").readlink().name == "a"


def test_the_same_tree_gives_the_same_bytes(tmp_path):
    one, two = fill(tmp_path / "one"), fill(tmp_path / "two", order=("a", "b"))
    os.utime(two / "run", (0, 0))
    (two / "run").chmod(0o700)
    assert packed(one) == packed(two)
