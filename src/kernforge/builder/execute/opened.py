# SPDX-License-Identifier: Apache-2.0
"""The machine's headers that an action's compilers opened, which its result holds good for.

The key of an action has what its include lines name. A macro or a flag may name another header;
what was really opened stands in the result with its content, and a result whose headers this
machine does not have is made again.
"""

from __future__ import annotations

import functools
import json
import os
import posixpath
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from kernforge.builder.execute.sandbox import OPENED, WORK, ActionDirectory
from kernforge.system import files, untrusted_tree

FILE = "kernforge-headers.json"
"""File of a result: hex SHA-256 by path of the headers behind it."""
_LIST_BYTES = 1 << 28
_NAME = re.compile(r"(?:\\.|[^\s\\])+")
_ESCAPED = re.compile(r"\\(.)|\$(\$)")
# The fingerprint of a compiler covers its own headers. What these others hold is no header, and
# may have no end.
_NOT_HEADERS = re.compile(r"^/(?:proc|sys|dev)/|/include/c\+\+/|/lib(?:32|64)?/gcc/")


def read(directory: ActionDirectory, known: Iterable[str]) -> dict[str, str]:
    """Hex SHA-256 of each header of the machine that an action opened, by path.

    Args:
        known: paths of those that its key has already.

    Raises:
        IntegrityError: the action made something else of the list than a file.
    """
    try:
        data = untrusted_tree.read_bytes(directory.scratch, OPENED, limit=_LIST_BYTES)
    except FileNotFoundError:  # no compiler ran
        return {}
    trees = (os.path.realpath(real) for real in directory.mounted().values())
    own = tuple(f"{path}/" for path in (directory.inside, *trees))
    found = sorted(_paths(data.decode(errors="surrogateescape"), f"{directory.inside}/{WORK}"))
    digests = {
        path: sha256(path)
        for path in found
        if not path.startswith(own) and not _NOT_HEADERS.search(path) and path not in {*known}
    }
    # Compilers that append at the same time may cut a name; what is no file was none.
    return {path: digest for path, digest in digests.items() if digest}


def _paths(text: str, cwd: str) -> set[str]:
    """The paths in rules for make."""
    names = {_ESCAPED.sub(r"\1\2", name) for name in set(_NAME.findall(text))}
    return {posixpath.normpath(posixpath.join(cwd, name)) for name in names}


def write(tree: Path, headers: Mapping[str, str], needed: Iterable[Path]) -> None:
    """Note in a result which headers it and the results that it was made of were made with."""
    behind = {path: digest for each in needed for path, digest in noted(each).items()}
    if found := behind | dict(headers):
        files.write_new(tree / FILE, json.dumps(found, indent=0, sort_keys=True))


def are_here(tree: Path) -> bool:
    """Whether this machine has the headers that a result was made with."""
    try:
        return all(sha256(path) == digest for path, digest in noted(tree).items())
    except (ValueError, AttributeError):  # damaged, and of no use for anything
        return False


def noted(tree: Path) -> dict[str, str]:
    """Hex SHA-256 by path of the headers that a result, or what it was made of, was made with."""
    path = tree / FILE
    found: dict[str, str] = json.loads(path.read_bytes()) if path.is_file() else {}
    return found


def sha256(path: str) -> str:
    """Hex SHA-256 of a file, which is read once while nothing changes it; empty without one."""
    try:
        found = os.stat(path) if os.path.isfile(path) else None  # noqa: PTH113, PTH116
    except (OSError, ValueError):
        return ""
    if found is None:
        return ""
    return _sha256(path, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@functools.lru_cache(maxsize=1 << 14)
def _sha256(path: str, *_identity: int) -> str:
    return files.sha256_file(Path(path))
