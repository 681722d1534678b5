# SPDX-License-Identifier: Apache-2.0
"""Members of archives whose names, links or sizes are made to do harm (A4).

The same attacks go through every way into the store: a wheel as a toolkit, a wheel that is read by
ranges, NVIDIA's archives, ``--depends`` as a tar and as a zip, and objects of the shared store.
"""

import base64
import hashlib
import io
import stat
import tarfile
import zipfile
import zlib
from dataclasses import dataclass

import pytest

from kernforge.budgets import Budgets
from kernforge.errors import KernforgeError
from kernforge.store import tree_archive
from kernforge.store.local import Store
from kernforge.system import extraction
from kernforge.system.extraction import Extraction
from kernforge.toolchain import header_libraries, projects, redist
from kernforge.toolchain.index.remote_zip import LocalWheel
from kernforge.toolchain.lockfile import LockedArchive, LockedToolkit, LockedWheel
from kernforge.toolchain.provision import Toolchains

EVIL = "evil"


@dataclass
class Member:
    name: str
    data: bytes = b"evil"
    kind: bytes = tarfile.REGTYPE
    target: str = ""


def link(name, target, kind=tarfile.SYMTYPE):
    return Member(name, b"", kind, target)


# Names and members below the directory that each way in unpacks.
NAMES = {
    "parent": [Member("../evil")],
    "far parent": [Member("a/../../../../../../evil")],
    "absolute": [Member("//tmp/kernforge-attack-evil")],
    "drive": [Member("C:/evil")],
    "backslash": [Member("..\\..\\evil")],
    "newline": [Member("a\nb")],
    "long": [Member("x" * 300)],
    "deep": [Member("d/" * 100 + "evil")],
    "dot": [Member("a/./evil")],
    "twice": [Member("a.h", b"1"), Member("a.h", b"2")],
    "case": [Member("A.h", b"1"), Member("a.h", b"2")],
    "case of a directory": [Member("Dir/a.h"), Member("dir/b.h")],
    "file and directory": [Member("a"), Member("a/b")],
}
LINKS = {
    "link to a parent": [link("up", "../../../.."), Member("up/evil")],
    "link to a file outside": [link("out", "../../../../evil")],
    "absolute link": [link("abs", "/tmp")],  # noqa: S108
    "link through a link": [link("d/e/top", "../.."), link("a", "d/e/top/../../evil")],
    "file through a link": [Member("d/x"), link("l", "d"), Member("l/evil")],
    "link in place of a file": [link("f", "g"), Member("f", b"evil")],
    "hard link": [Member("a"), link("b", "../../../etc/passwd", tarfile.LNKTYPE)],
    "pipe": [link("p", "", tarfile.FIFOTYPE)],
    "device": [link("p", "", tarfile.CHRTYPE)],
}


def tar(members, top, mode="w"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for member in members:
            info = tarfile.TarInfo(top + member.name)
            info.type, info.linkname, info.size = member.kind, member.target, len(member.data)
            archive.addfile(info, io.BytesIO(member.data))
    return out.getvalue()


def zipped(members, top, *, record=""):
    out, lines = io.BytesIO(), []
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in members:
            info = zipfile.ZipInfo("x")
            info.filename = top + member.name  # as it is: the constructor changes some
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            with pytest.warns() if top + member.name in archive.namelist() else _silent():
                archive.writestr(info, member.data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(member.data).digest()).rstrip(b"=")
            name = info.filename.replace("\n", " ")
            lines.append(f'"{name}",sha256={digest.decode()},{len(member.data)}\n')
        if record:
            archive.writestr(record, "".join(lines))
    return out.getvalue()


class _silent:  # noqa: N801
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


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


def as_toolkit(members, tmp_path):
    good = [Member("bin/nvcc", b"#!/bin/sh\n")]
    data = zipped([*good, *members], "nvidia/cu13/")
    wheel = locked("nvidia_cuda_nvcc-13.9.99-py3-none-manylinux_2_28_x86_64.whl", data)
    toolkit = LockedToolkit(release="13.9.9", wheels=(wheel,))
    Toolchains(Store(tmp_path / "store"), FakeIndex(data)).toolkit(toolkit)


def as_torch_headers(members, tmp_path):
    name = "torch-9.9.0.dist-info/RECORD"
    data = zipped(members, "torch/include/", record=name)
    record = zipfile.ZipFile(io.BytesIO(data)).read(name)
    wheel = locked("torch-9.9.0-cp310-cp310-manylinux_2_28_x86_64.whl", data, record)
    Toolchains(Store(tmp_path / "store"), FakeIndex(data)).torch_headers(wheel)


def as_redist(members, tmp_path):
    part = tmp_path / "part"
    part.write_bytes(tar(members, "cuda_nvcc-archive/include/", "w:xz"))
    archive = LockedArchive(path="cuda_nvcc/x", sha256="0" * 64)
    target = tmp_path / "store" / "tree"
    redist._unpack(part, archive, Extraction(target, archive.path))


def _depends(data, tmp_path):
    place = tmp_path / "cutlass.archive"
    place.write_bytes(data)
    header_libraries.write(header_libraries.read(place), tmp_path / "store" / "tree")


GOOD = [Member("cutlass/cutlass.h", b"//")]


def as_depends_tar(members, tmp_path):
    _depends(tar([*GOOD, *members], "cutlass-4.0/include/", "w:gz"), tmp_path)


def as_depends_zip(members, tmp_path):
    _depends(zipped([*GOOD, *members], "cutlass-4.0/include/"), tmp_path)


def as_shared_object(members, tmp_path):
    plain = tar(members, "include/")
    line = f"kernforge-tree 1 {hashlib.sha256(plain).hexdigest()}\n".encode()
    target = tmp_path / "store" / "tree"
    target.mkdir(parents=True)
    tree_archive.unpack(io.BytesIO(line + zlib.compress(plain)), target)


ZIPS = [as_toolkit, as_torch_headers, as_depends_zip]
TARS = [as_redist, as_depends_tar, as_shared_object]


@pytest.fixture
def outside(tmp_path):
    """Everything that is there before, to compare with what is there after."""
    victim = tmp_path / EVIL
    victim.write_text("untouched")
    inner = tmp_path / "a" / "b" / "c"
    inner.mkdir(parents=True)
    yield inner
    assert victim.read_text() == "untouched"
    for path in inner.rglob("*"):
        assert not path.is_symlink() or path.resolve().is_relative_to(inner)
        assert path.name != EVIL or "store" in path.parts
    assert [p.name for p in tmp_path.iterdir() if p.name != "a"] == [EVIL]
    assert [p.name for p in inner.parent.iterdir()] == ["c"]


@pytest.mark.parametrize("way", [*ZIPS, *TARS], ids=lambda way: way.__name__)
@pytest.mark.parametrize("members", NAMES.values(), ids=NAMES)
def test_names_stay_inside(way, members, outside):
    with pytest.raises(KernforgeError):
        way(members, outside)


@pytest.mark.parametrize("way", TARS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("members", LINKS.values(), ids=LINKS)
def test_links_stay_inside(way, members, outside):
    try:
        way(members, outside)
    except KernforgeError:
        return
    assert way is as_depends_tar, "only headers are read there: a link is none"


def test_links_inside_are_kept(outside):
    as_shared_object([Member("a/b.h"), link("c", "a/b.h"), link("a/up", "..")], outside)
    tree = outside / "store" / "tree" / "include"
    assert (tree / "c").read_bytes() == b"evil"
    assert (tree / "a" / "up" / "c").is_file()


ZEROS = bytes(80 << 20)


@pytest.mark.parametrize("way", [*ZIPS, as_depends_tar], ids=lambda way: way.__name__)
def test_what_grows_a_thousand_times_is_refused(way, outside):
    with pytest.raises(KernforgeError, match="would grow"):
        way([Member("a.h", ZEROS)], outside)


def test_all_members_together_are_bounded(tmp_path):
    small = Budgets(members=3, file=10, total=15)
    unpacked = Extraction(tmp_path, "it", small)
    unpacked.file("a", b"0123456789")
    with pytest.raises(KernforgeError, match="in all"):
        unpacked.file("b", iter([b"0123", b"456789"]))
    with pytest.raises(KernforgeError, match="larger than"):
        Extraction(tmp_path / "x", "it", small).file("c", b"0123456789a")
    many = Extraction(tmp_path / "y", "it", small)
    for number in range(3):
        many.file(f"{number}", b"")
    with pytest.raises(KernforgeError, match="more than 3"):
        many.file("one", b"")
    with pytest.raises(KernforgeError, match="one too many"):
        extraction.refuse_growth("it", [("a", 1, 1)] * 4, small)


def test_a_packed_tree_that_grows_without_bound_is_refused(tmp_path):
    plain = tar([Member("a", ZEROS)], "")
    line = f"kernforge-tree 1 {hashlib.sha256(plain).hexdigest()}\n".encode()
    with pytest.raises(KernforgeError, match="grows to more than 200 times"):
        tree_archive.unpack(io.BytesIO(line + zlib.compress(plain)), tmp_path / "tree")


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME], ids=["pax", "gnu"])
def test_attributes_of_a_member_take_no_memory(kind, tmp_path):
    header = tarfile.TarInfo("evil")
    header.type, header.size = kind, 2 << 30
    plain = header.tobuf(tarfile.GNU_FORMAT) + bytes(1024)
    line = f"kernforge-tree 1 {hashlib.sha256(plain).hexdigest()}\n".encode()
    with pytest.raises(KernforgeError, match="a tar has a header that is refused"):
        tree_archive.unpack(io.BytesIO(line + zlib.compress(plain)), tmp_path / "tree")


def test_the_directory_of_a_zip_takes_no_memory():
    data = bytearray(zipped([Member("a.h")], "torch/include/"))
    end = data.rfind(b"PK\5\6")
    data[end + 12 : end + 16] = (1 << 31).to_bytes(4, "little")
    with pytest.raises(KernforgeError, match="is not a wheel that can be read"):
        LocalWheel(io.BytesIO(bytes(data)))


# -- locks -----------------------------------------------------------------------------------


def toolkit_of(file, sha256="0" * 64, **more):
    return LockedToolkit(release="13.0.0", wheels=(LockedWheel(file=file, sha256=sha256),), **more)


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
    with pytest.raises(KernforgeError, match=r"not a wheel of|is not a SHA-256 hash"):
        toolchains.toolkit(toolkit_of(file))
    wheel = LockedWheel(file=file, sha256="0" * 64, record="0" * 64)
    with pytest.raises(KernforgeError):
        toolchains.library_headers(wheel)
    if not file.startswith("torch"):
        with pytest.raises(KernforgeError):
            toolchains.torch_headers(wheel)


def test_a_known_release_has_its_hash(tmp_path):
    file = next(name for name in projects.known_hashes() if name.startswith("nvidia_cuda_nvcc-13"))
    with pytest.raises(KernforgeError, match="its release has"):
        Toolchains(Store(tmp_path / "store"), NoIndex()).toolkit(toolkit_of(file, "1" * 64))


PATHS = [
    "../../evil.tar.xz",
    "cuda_nvcc/../evil.tar.xz",
    "http://evil/x.tar.xz",
    "evil/linux-x86_64/evil-linux-x86_64-1-archive.tar.xz",
    "cuda_nvcc/linux-x86_64/cuda_cccl-linux-x86_64-12.8-archive.tar.xz",
    "/etc/passwd",
]


@pytest.mark.parametrize("path", PATHS)
def test_a_lock_cannot_name_another_archive_as_the_toolkit(path, tmp_path):
    toolkit = LockedToolkit(release="12.8.1", archives=(LockedArchive(path=path, sha256="0" * 64),))
    with pytest.raises(KernforgeError, match="not a component"):
        Toolchains(Store(tmp_path / "store"), NoIndex()).toolkit(toolkit)
