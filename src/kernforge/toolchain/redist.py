# SPDX-License-Identifier: Apache-2.0
"""CUDA toolkits from NVIDIA's redistributable archives, at an address that the user names.

Format (NVIDIA's "redistrib" manifests): ``redistrib_<release>.json`` maps each component to
``{"version": ..., "linux-x86_64": {"relative_path", "sha256", "size"}}``; each archive is a
``.tar.xz`` with one directory at its top, whose content is the component's part of a toolkit.
"""

from __future__ import annotations

import functools
import re
import tarfile
from typing import TYPE_CHECKING, Any

from kernforge import documents
from kernforge.errors import IntegrityError, ToolchainError
from kernforge.system import files
from kernforge.system.extraction import BoundedTarInfo, Extraction
from kernforge.toolchain import projects
from kernforge.toolchain.index.wheels import download
from kernforge.toolchain.lockfile import LockedArchive, LockedToolkit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernforge.artifact.version import Version2
    from kernforge.toolchain.index.http import Transport
    from kernforge.toolchain.index.wheels import Progress

VARIABLE = "KERNFORGE_CUDA_REDIST"
# A compiler, the runtime and the C++ core libraries.
_NEEDED = ("cuda_nvcc", "cuda_cudart", "cuda_cccl")
# Parts of later releases, and the libraries whose headers ATen and kernels include.
_WANTED = tuple(name for name in projects.COMPONENTS if name not in _NEEDED)
# Of these only the headers are unpacked: their libraries are torch's, and weigh gigabytes.
_HEADERS_ONLY = frozenset(_WANTED) - {"cuda_crt", "libnvvm", "libnvptxcompiler"}
_PLATFORMS = {"x86_64": "linux-x86_64", "aarch64": "linux-sbsa"}
_NEWEST_PATCH = 9
_CHUNK = 1 << 20
_SHA256 = re.compile("[0-9a-f]{64}")


class Redist:
    """An address with NVIDIA's manifests and archives.

    Args:
        base: its address, http, https or file.
        connect: opens the door to the network; called at the first use only.
        downloads: where unfinished downloads wait for the next attempt.
    """

    def __init__(
        self, base: str, connect: Callable[[], Transport], downloads: Path, progress: Progress
    ) -> None:
        self.base = base.rstrip("/")
        self._connect, self._downloads, self._progress = connect, downloads, progress

    def resolve(self, version: Version2, cpu: str) -> LockedToolkit:
        """Find the newest patch release of a toolkit.

        Raises:
            ToolchainError: there is none here, or it lacks a part for this CPU.
            NetworkError: the address cannot be reached.
        """
        release, manifest = self._newest(version)
        platform = _PLATFORMS[cpu]
        archives = []
        for name in (*_NEEDED, *_WANTED):
            entry = manifest.get(name, {}).get(platform)
            if entry is None and name in _NEEDED:
                raise ToolchainError(
                    f"the redistributables of CUDA {release} have no {name} for {platform}",
                    hint="ask for another CUDA version",
                )
            if entry is not None:
                archives.append(_archive(entry, name, release))
        return LockedToolkit(release=release, archives=tuple(archives))

    def unpack(self, toolkit: LockedToolkit, tree: Path) -> None:
        """Fetch a toolkit's archives and merge them into an empty tree.

        Raises:
            IntegrityError: an archive is not what the lock says.
            NetworkError: the address cannot be reached.
        """
        for archive in toolkit.archives:
            name = archive.path.rpartition("/")[2]
            part = self._downloads / f"{archive.sha256}-{name}.part"
            with files.locked(part.with_suffix(".lock")):
                transport, url = self._connect(), f"{self.base}/{archive.path}"
                download(transport, url, part, self._progress, name, sha256=archive.sha256)
                try:
                    _unpack(part, archive, Extraction(tree, archive.path))
                finally:
                    files.remove_tree(part)

    def _newest(self, version: Version2) -> tuple[str, dict[str, Any]]:
        # A directory's listing is not part of the format, so the patch releases are tried in turn.
        for patch in range(_NEWEST_PATCH, -1, -1):
            release = f"{version}.{patch}"
            page = self._connect().page(f"{self.base}/redistrib_{release}.json")
            if page is not None:
                return release, _manifest(page.text, release)
        raise ToolchainError(
            f"no redistrib_{version}.*.json at the address of --cuda-redist",
            hint="name the directory that holds the manifests",
        )


def _manifest(text: str, release: str) -> dict[str, Any]:
    """The components of a manifest; what else it says, such as its date, is left out."""
    try:
        entries = documents.parse_json(text)
        return {name: entry for name, entry in entries.items() if isinstance(entry, dict)}
    except (ValueError, AttributeError) as error:
        raise _no_manifest(release, str(error)) from error


def _archive(entry: dict[str, Any], component: str, release: str) -> LockedArchive:
    try:
        path, sha256 = str(entry["relative_path"]), str(entry["sha256"])
    except (KeyError, TypeError) as error:
        raise _no_manifest(release, f"{component} has no {error}") from error
    if not _SHA256.fullmatch(sha256) or _leaves(path) or "://" in path:
        raise _no_manifest(release, f"{component} names {path!r} with sha256 {sha256!r}")
    return LockedArchive(path=path, sha256=sha256)


def _no_manifest(release: str, reason: str) -> ToolchainError:
    return ToolchainError(
        f"redistrib_{release}.json is not a manifest: {reason}",
        hint="check the address that --cuda-redist names",
    )


def _unpack(part: Path, archive: LockedArchive, unpacked: Extraction) -> None:
    """Write what is below an archive's top directory."""
    component = archive.path.partition("/")[0]
    with (
        documents.foreign_parser(
            lambda reason: IntegrityError(
                f"{archive.path} is damaged: {reason}", hint="run the command again"
            )
        ),
        tarfile.open(part, tarinfo=BoundedTarInfo) as opened,
    ):
        for member in opened:
            _, _, path = member.name.removeprefix("./").partition("/")
            if component in _HEADERS_ONLY and not path.startswith("include/"):
                continue
            if not path or member.isdir():
                continue
            if member.issym():
                unpacked.link(path, member.linkname)
            elif (
                member.isreg() and not member.issparse() and (stream := opened.extractfile(member))
            ):
                chunks = iter(functools.partial(stream.read, _CHUNK), b"")
                unpacked.file(path, chunks, executable=bool(member.mode & 0o100))
            else:
                raise IntegrityError(
                    f"{archive.path}: {path} is neither a file, a directory nor a link"
                )


def _leaves(path: str) -> bool:
    return path.startswith("/") or ".." in path.split("/")
