# SPDX-License-Identifier: Apache-2.0
"""Archives whose members, links, sizes or names are made to do harm (A4, B4).

The same attacks go through every way into the store: a wheel as a toolkit, a wheel that is read by
ranges, and objects of the shared store. A lock names other projects than a toolchain's, and an
index serves one wheel under the names of several.
"""

import base64
import contextlib
import hashlib
import io
import stat
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest
from support.attacks import Member, link, tar

from kernforge.errors import KernforgeError
from kernforge.store import tree_archive
from kernforge.store.local import Store
from kernforge.toolchain import projects, provision
from kernforge.toolchain.index.remote_zip import LocalWheel
from kernforge.toolchain.lockfile import LockedTree, LockedWheel
from kernforge.toolchain.provision import Toolchains

EVIL = "evil"
RECORD = "x-9.9.0.dist-info/RECORD"


# Names and members below the directory that each way in unpacks.
NAMES = {
    "parent": [Member("../evil")],
    "far parent": [Member("a/../../../../../../evil")],
    "absolute": [Member("//tmp/kernforge-attack-evil")],
}
LINKS = {
    "link to a parent": [link("up", "../../../.."), Member("up/evil")],
    "link to a file outside": [link("out", "../../../../evil")],
    "link through a link": [link("d/e/top", "../.."), link("a", "d/e/top/../../evil")],
    "hard link": [Member("a"), link("b", "../../../etc/passwd", tarfile.LNKTYPE)],
    "pipe": [link("p", "", tarfile.FIFOTYPE)],
    "device": [link("p", "", tarfile.CHRTYPE)],
}


def zipped(members, top, *, record=""):
    out, lines = io.BytesIO(), []
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in members:
            info = zipfile.ZipInfo("x")
            info.filename = top + member.name  # as it is: the constructor changes some
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            known = top + member.name in archive.namelist()
            with pytest.warns() if known else contextlib.nullcontext():
                archive.writestr(info, member.data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(member.data).digest()).rstrip(b"=")
            name = info.filename.replace("\n", " ")
            lines.append(f'"{name}",sha256={digest.decode()},{len(member.data)}\n')
        if record:
            archive.writestr(record, "".join(lines))
    return out.getvalue()


class FakeIndex:
    """The wheel of an index, as bytes."""

    def __init__(self, data):
        self.data = data

    def whole(self, _file, _sha256):
        return LocalWheel(io.BytesIO(self.data))

    parts = whole


def locked(file, data, record=b""):
    sha256 = hashlib.sha256(data).hexdigest()
    return LockedWheel(
        file=file, sha256=sha256, record=hashlib.sha256(record).hexdigest() if record else ""
    )


def record_of(data):
    return zipfile.ZipFile(io.BytesIO(data)).read(RECORD)


def headers(kind, wheel):
    return LockedTree(kind=kind, release="", wheels=(wheel,))


def as_toolkit(members, tmp_path):
    good = [Member("bin/nvcc", b"#!/bin/sh\n")]
    data = zipped([*good, *members], "nvidia/cu13/")
    wheel = locked("nvidia_cuda_nvcc-13.9.99-py3-none-manylinux_2_28_x86_64.whl", data)
    toolkit = LockedTree(kind="cuda", release="13.9.9", wheels=(wheel,))
    Toolchains(Store(tmp_path / "store"), FakeIndex(data)).path(toolkit)


def as_torch_headers(members, tmp_path):
    data = zipped(members, "torch/include/", record=RECORD)
    wheel = locked("torch-9.9.0-cp310-cp310-manylinux_2_28_x86_64.whl", data, record_of(data))
    Toolchains(Store(tmp_path / "store"), FakeIndex(data)).path(headers("torch", wheel))


def as_shared_object(members, tmp_path):
    plain = tar(members, "include/")
    line = f"kernforge-tree 1 {hashlib.sha256(plain).hexdigest()}\n".encode()
    target = tmp_path / "store" / "tree"
    target.mkdir(parents=True)
    tree_archive.unpack(io.BytesIO(line + zlib.compress(plain)), target)


ZIPS = [as_toolkit, as_torch_headers]
TARS = [as_shared_object]


@pytest.fixture
def outside(tmp_path):
    """Everything that is there before, to compare with what is there after."""
    victim = tmp_path / EVIL
    victim.write_text("untouched")
    inner = tmp_path / "a" / "b" / "c"
    inner.mkdir(parents=True)
    yield inner
    assert victim.read_text() == "untouched"
    assert not Path("/tmp/kernforge-attack-evil").exists()  # noqa: S108
    for path in inner.rglob("*"):
        assert not path.is_symlink() or path.resolve().is_relative_to(inner)
        assert path.name != EVIL or "store" in path.parts
    assert [p.name for p in tmp_path.iterdir() if p.name != "a"] == [EVIL]
    assert [p.name for p in inner.parent.iterdir()] == ["c"]


CASES = [(way, name) for name in NAMES for way in (*ZIPS, *TARS)]
CASES += [(way, name) for name in LINKS for way in TARS]


@pytest.mark.parametrize(("way", "name"), CASES, ids=lambda each: getattr(each, "__name__", each))
def test_members_stay_inside(way, name, outside):
    # Some names and links are refused, others made harmless: the fixture looks at what is there.
    with contextlib.suppress(KernforgeError):
        way({**NAMES, **LINKS}[name], outside)


def test_a_small_archive_that_holds_gigabytes_is_refused(outside, monkeypatch):
    monkeypatch.setattr(tree_archive, "LARGEST", 10 << 20)
    with pytest.raises(KernforgeError, match="unpacks to more than"):
        as_shared_object([Member("a.h", bytes(11 << 20))], outside)


# -- locks -----------------------------------------------------------------------------------


def toolkit_of(file, sha256="0" * 64, **more):
    wheels = (LockedWheel(file=file, sha256=sha256),)
    return LockedTree(kind="cuda", release="13.0.0", wheels=wheels, **more)


FOREIGN = [
    "evil-1.0-py3-none-any.whl",
    "nvidia_cuda_nvcc_evil-13.0.88-py3-none-any.whl",
    "../../nvidia_cuda_nvcc-13.0.88-py3-none-any.whl",
    "nvidia_cuda_nvcc-13.0.88-py3-none-any.whl/../evil-1.0-py3-none-any.whl",
    "http://evil/nvidia_cuda_nvcc-13.0.88-py3-none-any.whl",
    "nvidia_cuda_nvcc-13.0.88.tar.gz",
    "torch-2.10.0-cp310-cp310-manylinux_2_28_x86_64.whl",
    "",
]


class NoIndex:
    def __getattr__(self, name):
        raise AssertionError("the index was asked")


@pytest.mark.parametrize("file", FOREIGN)
def test_a_lock_cannot_name_another_project_as_the_toolkit(file, tmp_path):
    toolchains = Toolchains(Store(tmp_path / "store"), NoIndex())
    with pytest.raises(KernforgeError, match=r"not a wheel of|its release has"):
        toolchains.path(toolkit_of(file))
    wheel = LockedWheel(file=file, sha256="0" * 64, record="0" * 64)
    with pytest.raises(KernforgeError):
        toolchains.path(headers("cuda-libraries", wheel))
    if not file.startswith("torch"):
        with pytest.raises(KernforgeError):
            toolchains.path(headers("torch", wheel))


def test_a_known_release_has_its_hash(tmp_path):
    file = next(name for name in projects.known_hashes() if name.startswith("nvidia_cuda_nvcc-13"))
    with pytest.raises(KernforgeError, match="its release has"):
        Toolchains(Store(tmp_path / "store"), NoIndex()).path(toolkit_of(file, "1" * 64))


# -- one wheel under the names of several projects -------------------------------------------


WHEEL = [
    Member("torch/include/ATen/ATen.h"),
    Member("nvidia/cublas/include/cublas.h"),
    Member("cutlass_library/source/include/cutlass/cutlass.h"),
    Member("tvm_ffi/include/tvm/ffi/any.h"),
]
FILES = {
    "torch": "torch-9.9.0-cp310-cp310-manylinux_2_28_x86_64.whl",
    "cuda-libraries": "nvidia_cublas-13.9.0-py3-none-manylinux_2_28_x86_64.whl",
    "cutlass_3_6": "nvidia_cutlass-9.9.0-py3-none-any.whl",
    "tvm-ffi": "apache_tvm_ffi-9.9.0-cp310-cp310-manylinux_2_28_x86_64.whl",
}


@pytest.mark.parametrize("first", FILES)
def test_each_maker_has_trees_of_its_own(tmp_path, first):
    """What was taken as one library's headers never stands for those of another."""
    data = zipped(WHEEL, "", record=RECORD)

    def made(kind, store):
        wheel = locked(FILES[kind], data, record_of(data))
        tree = LockedTree(kind=kind, release="9.9.0", wheels=(wheel,))
        path = Toolchains(Store(tmp_path / store), FakeIndex(data)).path(tree)
        return path, sorted(header.name for header in path.rglob("*.h"))

    alone = {kind: made(kind, f"only-{kind}")[1] for kind in FILES}
    order = sorted(FILES, key=lambda kind: kind != first)
    trees = {kind: made(kind, "store") for kind in order}
    assert {kind: names for kind, (_, names) in trees.items()} == alone
    assert len({path for path, _ in trees.values()}) == len(FILES)
    assert alone["torch"] == ["ATen.h"]


def test_an_unverified_record_does_not_choose_the_tree():
    """A toolkit's wheels are read whole, and a lock may say of their RECORD what it likes."""
    wheels = [
        LockedWheel(file="nvidia_nvvm-13.0-x.whl", sha256=whole * 64, record=record)
        for whole, record in (("a", ""), ("b", "a" * 64))
    ]
    trees = [LockedTree(kind="cuda", release="13.0", wheels=(wheel,)) for wheel in wheels]
    assert len({*map(provision.key, trees)}) == len(trees)
