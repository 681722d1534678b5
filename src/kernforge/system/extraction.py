# SPDX-License-Identifier: Apache-2.0
"""Write the members of an archive into a directory: the one way for wheels, zips and tars.

An archive is written by somebody else. Its members stay inside the directory: names are relative
and plain, no member is written through a link, and links lead to other members. A name occurs once,
also where upper and lower case are the same. What all members together may take is bounded, and so
is what a small archive may grow to.
"""

from __future__ import annotations

import re
import tarfile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Self

from kernforge import budgets
from kernforge.errors import IntegrityError
from kernforge.system import files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from kernforge.budgets import Budgets

_HINT = "the archive is damaged or was made to do harm; nothing of it was stored"
_DRIVE = re.compile(r"[A-Za-z]:")
_LONGEST_NAME = 255  # bytes that a file system has for one name
_FIRST_PRINTABLE = 32
# Headers of a tar whose content tarfile reads into memory: names and attributes of a member.
_ATTRIBUTES = {
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
}
_ATTRIBUTE_BYTES = 1 << 20


class BoundedTarInfo(tarfile.TarInfo):
    """A header of a tar, for ``tarfile.open(tarinfo=...)``, that takes no memory by what it says."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Read a header.

        Raises:
            IntegrityError: it announces attributes of more than 1 MiB, or a file with holes.
        """
        info = super().frombuf(buf, encoding, errors)
        large = info.type in _ATTRIBUTES and info.size > _ATTRIBUTE_BYTES
        if large or info.type == tarfile.GNUTYPE_SPARSE or info.size < 0:
            raise IntegrityError(f"a tar has a header that is refused: {info.name!r}", hint=_HINT)
        return info


class Extraction:
    """Writes members into a directory.

    Args:
        into: a directory that only this process writes to.
        source: what is unpacked, as errors call it.
        limits: what it may take; those of this process by default.
    """

    def __init__(self, into: Path, source: str, limits: Budgets | None = None) -> None:
        self._into, self._source = into, source
        self._limits = limits or budgets.current()
        self._kinds: dict[str, str] = {}
        self._folded: dict[str, str] = {}
        self._total = 0

    def directory(self, name: str) -> None:
        """Make a directory; one that is there already is another member's parent."""
        name = self._checked(name)
        if name and self._kinds.get(name) != "directory":
            self._add(name, "directory")
            files.make_dir(self._into / name)

    def file(
        self, name: str, content: bytes | Iterable[bytes], *, executable: bool = False
    ) -> None:
        """Write a file.

        Raises:
            IntegrityError: its name is refused, it occurs twice, or it takes too much.
        """
        name = self._checked(name)
        self._add(name, "file")
        chunks = (content,) if isinstance(content, bytes) else content
        files.write_chunks(self._into / name, self._counted(name, chunks), executable=executable)

    def link(self, name: str, target: str) -> None:
        """Make a symbolic link.

        Raises:
            IntegrityError: its name is refused, it occurs twice, or it leads out of the directory.
        """
        name = self._checked(name)
        parts = target.split("/")
        ups = next((n for n, part in enumerate(parts) if part != ".."), len(parts))
        # Only at the beginning: after a name, ".." would start from where that name's link leads.
        if ".." in parts[ups:] or ups > len(PurePosixPath(name).parts) - 1 or not target:
            raise self._refused(name, f"is a link to {target!r}, out of the tree")
        self._plain(name, target.lstrip("./") or ".", target)
        self._add(name, "link")
        files.symlink(target, self._into / name)

    def _checked(self, name: str) -> str:
        """The name without a leading ``./`` and without a slash at its end."""
        plain = name.removeprefix("./").rstrip("/")
        if name.startswith("/") or ".." in plain.split("/"):
            raise self._refused(name, "leads out of the tree")
        return self._plain(name, plain, name)

    def _plain(self, name: str, plain: str, whole: str) -> str:
        parts = plain.split("/") if plain and plain != "." else []
        if whole.startswith("/") or "\\" in whole or any(map(_DRIVE.match, parts)):
            raise self._refused(name, "leads out of the tree")
        odd = any(ord(c) < _FIRST_PRINTABLE or "\ud800" <= c <= "\udfff" for c in plain)
        if odd or any(part in {"", "."} or len(part.encode()) > _LONGEST_NAME for part in parts):
            raise self._refused(name, "is not a plain name")
        if len(parts) > self._limits.nesting or len(plain) > self._limits.name:
            raise self._refused(name, "is too long or too deep")
        return "/".join(parts)

    def _add(self, name: str, kind: str) -> None:
        if not name:
            raise self._refused(name, "has no name")
        if len(self._kinds) >= self._limits.members:
            raise self._refused(name, f"is one more than {self._limits.members:,} members")
        parents = [str(parent) for parent in PurePosixPath(name).parents][:-1]
        for parent in reversed(parents):
            if self._kinds.setdefault(parent, "directory") != "directory":
                raise self._refused(name, f"is below {parent}, which is a {self._kinds[parent]}")
            self._fold(parent)
        if name in self._kinds:
            raise self._refused(name, "occurs twice")
        self._fold(name)
        self._kinds[name] = kind

    def _fold(self, name: str) -> None:
        other = self._folded.setdefault(name.casefold(), name)
        if other != name:
            raise self._refused(name, f"and {other} are one name where case does not count")

    def _counted(self, name: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
        size = 0
        for chunk in chunks:
            size += len(chunk)
            self._total += len(chunk)
            if size > self._limits.file:
                raise self._refused(name, f"is larger than {self._limits.file:,} bytes")
            if self._total > self._limits.total:
                raise self._refused(name, f"is beyond {self._limits.total:,} bytes in all")
            yield chunk

    def _refused(self, name: str, reason: str) -> IntegrityError:
        return IntegrityError(f"{self._source}: {name!r} {reason}", hint=_HINT)


def refuse_growth(
    source: str, members: Iterable[tuple[str, int, int]], limits: Budgets | None = None
) -> None:
    """Refuse an archive by what its directory says, before anything is unpacked.

    Args:
        source: what is unpacked, as the error calls it.
        members: name, size and packed size of each.
        limits: what they may take; those of this process by default.

    Raises:
        IntegrityError: a member grows too much, or all are too many or too large.
    """
    limits = limits or budgets.current()
    count = total = 0
    for name, size, packed in members:
        count, total = count + 1, total + size
        if size > limits.file or total > limits.total or count > limits.members:
            raise IntegrityError(f"{source}: {name!r} is too large or one too many", hint=_HINT)
        if size > limits.slack and size > limits.ratio * max(packed, 1):
            raise IntegrityError(
                f"{source}: {name!r} would grow from {packed:,} to {size:,} bytes", hint=_HINT
            )
