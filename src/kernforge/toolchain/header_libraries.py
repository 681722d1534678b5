# SPDX-License-Identifier: Apache-2.0
"""The header libraries that build.toml's ``depends`` names, and where each comes from.

NVIDIA publishes some CUTLASS releases as wheels, which hold the source tree. Wheels of projects that
compile with CUTLASS carry others; only those headers are read of them. A release without a wheel is
read from a checkout or an archive that the user names, and what counts is its content.
"""

from __future__ import annotations

import io
import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kernforge import documents
from kernforge.budgets import Budgets
from kernforge.errors import ToolchainError, UsageError
from kernforge.system import digest, untrusted
from kernforge.system.extraction import BoundedTarInfo, Extraction, refuse_growth
from kernforge.toolchain.index import remote_zip

RELEASES = {
    "cutlass_2_10": "2.10.0",
    "cutlass_3_5": "3.5.1",
    "cutlass_3_6": "3.6.0",
    "cutlass_3_8": "3.8.0",
    "cutlass_3_9": "3.9.2",
    "cutlass_4_0": "4.0.0",
    "cutlass_4_4": "4.4.2",
    "cutlass_4_5": "4.5.2",
}
"""Release that kernel-builder takes for each name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderWheel:
    """A wheel that carries a release of CUTLASS.

    Attributes:
        release: that it says in ``cutlass/version.h``.
        project: of the package index.
        version: of the wheel.
    """

    release: str
    project: str
    version: str


# Each was compared with the release's tag: all but 4.5.0, which is a state of shortly before, are the
# release's own. No wheel has 2.10, and what calls itself 4.0.0 is of long before it.
CARRIED = {
    "cutlass_3_5": HeaderWheel(release="3.5.1", project="nvidia-cutlass", version="3.5.1.0"),
    "cutlass_3_6": HeaderWheel(release="3.6.0", project="nvidia-cutlass", version="3.6.0.0"),
    "cutlass_3_8": HeaderWheel(release="3.8.0", project="nvidia-cutlass", version="3.8.0.0"),
    "cutlass_3_9": HeaderWheel(release="3.9.2", project="sgl-kernel", version="0.1.2.post1"),
    "cutlass_4_0": HeaderWheel(release="4.2.0", project="nvidia-cutlass", version="4.2.0.0"),
    "cutlass_4_4": HeaderWheel(release="4.4.2", project="flashinfer-python", version="0.6.10"),
    "cutlass_4_5": HeaderWheel(release="4.5.0", project="flashinfer-python", version="0.7.2"),
}
"""The wheel with the headers of each name."""
VARIABLE = "CUTLASS_SRC_DIR"
# Where a CUTLASS tree keeps its headers; all are found as <cutlass/...> and <cute/...>.
HEADERS = ("include/", "tools/util/include/")
# Where wheels keep that tree: NVIDIA's own, and others, of which only CUTLASS's directories are read.
_NVIDIAS = "cutlass_library/source/"
_OTHERS = ("deep_gemm/", "flashinfer/data/cutlass/")
_DIRECTORIES = ("cutlass/", "cute/")
_VERSION_FILE = "cutlass/version.h"
# Releases have some 6,000 files in 120 MB.
_SOURCES = Budgets(members=100_000, file=1 << 30, total=1 << 30, ratio=100)
_VERSION = re.compile(r"#define\s+CUTLASS_(MAJOR|MINOR|PATCH)\s+(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderFiles:
    """Headers that the user has.

    Attributes:
        files: content by path below ``include``.
    """

    place: str
    files: Mapping[str, bytes]

    @property
    def digest(self) -> str:
        """Hex digest of all paths and contents."""
        return digest.key(
            "header-files", files={p: digest.sha256(d) for p, d in self.files.items()}
        )

    @property
    def release(self) -> str:
        """Version that they state, as ``"4.0.0"``; empty when they state none."""
        text = self.files.get(_VERSION_FILE, b"").decode(errors="replace")
        parts = dict(_VERSION.findall(text))
        return ".".join(parts[part] for part in ("MAJOR", "MINOR", "PATCH") if part in parts)


def note(name: str) -> str:
    """What a user should know of the wheel for a name; empty where it is what kernel-builder takes."""
    wanted, carried = RELEASES.get(name), CARRIED.get(name)
    if wanted is None or carried is None or carried.release == wanted:
        return ""
    return (
        f"{name} is CUTLASS {carried.release} of the package index, kernel-builder takes {wanted}: "
        f"--depends {name}=PATH names another"
    )


def below_wheel(name: str) -> str:
    """Path below ``include`` of a member of a wheel; empty for what is not a header of CUTLASS."""
    if name.startswith(_NVIDIAS):
        return _below_include(name.removeprefix(_NVIDIAS))
    for start in _OTHERS:
        if name.startswith(start):
            below = _below_include(name.removeprefix(start))
            return below if below.startswith(_DIRECTORIES) else ""
    return ""


def read(place: Path) -> HeaderFiles:
    """Headers of a CUTLASS checkout, or of a .tar.gz, .tar.xz or .zip of one.

    Raises:
        IntegrityError: an archive grows to more than any release is.
        UsageError: there is no such file, or it holds no CUTLASS.
    """
    if place.is_dir():
        members: Iterable[tuple[str, bytes]] = _of_directory(place)
    elif place.is_file():
        members = _of_archive(place)
    else:
        raise UsageError(f"{place}: no such file or directory", hint="name a CUTLASS checkout")
    contents: dict[str, bytes] = {}
    for name, data in members:
        if not (below := _below_include(name)):
            continue
        if contents.setdefault(below, data) != data:
            raise UsageError(f"{place} holds two files {below}", hint="name one release's sources")
    if "cutlass/cutlass.h" not in contents:
        raise UsageError(
            f"{place} holds no CUTLASS: there is no include/cutlass/cutlass.h in it",
            hint="name the root of a checkout, or a .tar.gz or .zip of one",
        )
    return HeaderFiles(place=str(place), files=contents)


def write(headers: HeaderFiles, tree: Path) -> None:
    """Write headers into an empty tree, as ``include/...``.

    Raises:
        IntegrityError: they are of an archive that leads out of the tree.
    """
    unpacked = Extraction(tree, headers.place)
    for path, data in headers.files.items():
        unpacked.file(f"include/{path}", data)


def no_wheel(name: str) -> ToolchainError:
    """The error for a release that no wheel carries and the user did not name."""
    return ToolchainError(
        f"build.toml depends on {name} (CUTLASS {RELEASES.get(name, '')}), and no package index "
        "carries it",
        hint=f"get that release's sources and name them: --depends {name}=PATH for a checkout or "
        f"an archive of it, or the environment variable {VARIABLE}",
    )


def _below_include(name: str) -> str:
    for prefix in HEADERS:
        if name.startswith(prefix) and not name.endswith("/"):
            return name.removeprefix(prefix)
    return ""


def _of_directory(root: Path) -> Iterator[tuple[str, bytes]]:
    for prefix in HEADERS:
        for path in sorted((root / prefix).rglob("*")):
            if path.is_dir() and not path.is_symlink():
                continue
            real = untrusted.inside(root.resolve(), path)
            if real:
                yield path.relative_to(root).as_posix(), real.read_bytes()


def _of_archive(place: Path) -> Iterator[tuple[str, bytes]]:
    """Members without the one directory that such archives have at their top."""
    with documents.foreign_parser(
        lambda reason: UsageError(
            f"{place} is not an archive: {reason}", hint="name a .tar.gz, a .tar.xz or a .zip"
        )
    ):
        for name, data in _members(place.read_bytes()):
            top, _, rest = name.removeprefix("./").partition("/")
            yield (name, data) if f"{top}/" == HEADERS[0] else (rest, data)


def _members(data: bytes) -> Iterator[tuple[str, bytes]]:
    if zipfile.is_zipfile(io.BytesIO(data)):
        with remote_zip.open_zip(io.BytesIO(data)) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir()]
            sizes = ((i.filename, i.file_size, i.compress_size) for i in infos)
            refuse_growth("the archive", sizes, _SOURCES)
            for info in infos:
                yield info.filename, archive.read(info)
        return
    total = 0
    with tarfile.open(fileobj=io.BytesIO(data), tarinfo=BoundedTarInfo) as archive:
        for count, member in enumerate(archive, 1):
            total += member.size
            largest = [(member.name, max(total, member.size), len(data))]
            refuse_growth("the archive", largest, replace(_SOURCES, members=1))
            if count > _SOURCES.members:
                raise UsageError(f"the archive holds more than {_SOURCES.members:,} files")
            if (
                member.isfile()
                and not member.issparse()
                and (stream := archive.extractfile(member))
            ):
                yield member.name, stream.read()
