# SPDX-License-Identifier: Apache-2.0
import io
import os
import tarfile
import zlib

import pytest

from kernforge.errors import IntegrityError
from kernforge.store import tree_archive
from kernforge.system.digest import sha256


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


@pytest.mark.parametrize("cut", [0, 10, 90, 2000, -1])
def test_a_stream_that_is_cut_off_is_refused(tmp_path, cut):
    data = packed(fill(tmp_path / "one"))
    with pytest.raises(IntegrityError):
        tree_archive.unpack(io.BytesIO(data[:cut]), tmp_path / "two")


@pytest.mark.parametrize("at", [20, 82, 90, 500, -3])
def test_a_changed_byte_is_noticed(tmp_path, at):
    data = bytearray(packed(fill(tmp_path / "one")))
    data[at] ^= 1
    with pytest.raises(IntegrityError):
        tree_archive.unpack(io.BytesIO(bytes(data)), tmp_path / "two")


def forged(*members):
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"") if member.isreg() else None)
    plain = tar.getvalue()
    return b"kernforge-tree 1 " + sha256(plain).encode() + b"\n" + zlib.compress(plain)


def link(name, target):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info


def device(name):
    info = tarfile.TarInfo(name)
    info.type = tarfile.CHRTYPE
    return info


@pytest.mark.parametrize(
    "member",
    [
        tarfile.TarInfo("../out"),
        tarfile.TarInfo("a/../../out"),
        link("a", "../out"),
        link("a", "/etc/passwd"),
        device("null"),
    ],
    ids=lambda m: f"{m.name} {m.linkname}",
)
def test_nothing_leads_out_of_the_tree(tmp_path, member):
    with pytest.raises(IntegrityError):
        tree_archive.unpack(io.BytesIO(forged(member)), tmp_path / "tree")
    assert not (tmp_path / "out").exists()
