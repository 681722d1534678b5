# SPDX-License-Identifier: Apache-2.0
"""Who may read which kernels: a TOML file with the hashes of tokens.

::

    public = ["acme/open-*"]     # kernels that need no token; none by default

    [[token]]
    name = "ci"                  # for the access log
    sha256 = "9f86d081..."       # printf %s "$TOKEN" | sha256sum
    kernels = ["acme/*"]         # all by default
"""

from __future__ import annotations

import base64
import contextlib
import logging
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from kernforge.errors import UsageError
from kernforge.registry.listing import MALFORMED
from kernforge.registry.names import SHA256
from kernforge.system import untrusted
from kernforge.system.digest import sha256

log = logging.getLogger("kernforge")


@dataclass(frozen=True, slots=True)
class Reader:
    """The sender of a request.

    Attributes:
        name: of the token; empty without one.
        kernels: patterns of the repo ids that it may read.
    """

    name: str = ""
    kernels: tuple[str, ...] = ("*",)

    def may_read(self, repo_id: str) -> bool:
        """Whether a kernel exists for this reader."""
        return "*" in self.kernels or any(fnmatchcase(repo_id, each) for each in self.kernels)


READER = ContextVar("READER", default=Reader())  # noqa: B039 - it is frozen
"""The reader of the current request; all of ``Source`` asks it."""


class Access:
    """The readers of a server.

    Args:
        path: the file of tokens; None lets everybody read everything.

    Attributes:
        has_tokens: whether there is such a file.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.has_tokens = path is not None
        self._path = path
        self._readers = {"": Reader()} if path is None else _read(path)

    def reload(self) -> None:
        """Read the file again; while it cannot be read, the readers stay as they are."""
        if self._path is not None:
            try:
                self._readers = _read(self._path)
            except UsageError as error:
                log.warning("%s; the tokens stay as they were", error)

    def reader(self, authorization: str) -> Reader | None:
        """The reader of a request's header ``Authorization``; None for an unknown token."""
        token = _token(authorization) if self.has_tokens else ""
        # The lookup is by hash: its duration says nothing about a token.
        return self._readers.get(sha256(token) if token else "")

    def lacks_token(self) -> bool:
        """Whether the current reader might see more with a token."""
        return self.has_tokens and not READER.get().name


def _read(path: Path) -> dict[str, Reader]:
    """The readers by the hash of their token, and the one without a token."""
    try:
        document = untrusted.parse_toml(path.read_bytes())
        public = _patterns(document.get("public", []))
        readers = {"": Reader(kernels=public)}
        for row in document.get("token", []):
            if not SHA256.fullmatch(row["sha256"]):
                raise ValueError(f"sha256 = {row['sha256']!r} has not 64 hex digits")
            kernels = (*_patterns(row.get("kernels", ["*"])), *public)
            readers[row["sha256"]] = Reader(str(row["name"]), kernels)
    except (OSError, *MALFORMED) as error:
        raise UsageError(
            f"{path} cannot be read as a file of tokens: {error!r}",
            hint='write [[token]] with name = "ci", sha256 = "<64 hex digits>" and maybe '
            'kernels = ["acme/*"]',
        ) from error
    return readers


def _patterns(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):  # the letters of a text would be patterns, its "*" too
        raise TypeError(f"{value!r} is not a list of repo ids and patterns")
    return tuple(map(str, value))


def _token(authorization: str) -> str:
    """The token in a header: of ``Bearer``, or the password of ``Basic``, as browsers send it."""
    kind, _, value = authorization.partition(" ")
    if kind.lower() == "basic":
        with contextlib.suppress(ValueError):
            return base64.b64decode(value).decode().partition(":")[2]
    return value.strip()
