# SPDX-License-Identifier: Apache-2.0
"""Who may read which kernels: a TOML file with the hashes of tokens, read again when it changes.

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
from collections.abc import Mapping
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
        asks_for_token: whether a request without a token sees less than one with a token.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.asks_for_token = path is not None
        self._path, self._stamp = path, (0, 0)
        self._readers = {"": Reader()}
        if path:
            self._load(path)

    def reader(self, authorization: str) -> Reader | None:
        """The reader of a request's header ``Authorization``; None for an unknown token."""
        if self._path is None:
            return self._readers[""]
        try:
            self._load(self._path)
        except UsageError as error:  # the server goes on with the tokens that it has
            log.warning("%s", error)
        token = _token(authorization)
        # The lookup is by hash: its duration says nothing about a token.
        return self._readers.get(sha256(token) if token else "")

    def is_public(self, repo_id: str) -> bool:
        """Whether a kernel needs no token."""
        return self._readers[""].may_read(repo_id)

    def _load(self, path: Path) -> None:
        try:
            state = path.stat()
            stamp = (state.st_mtime_ns, state.st_ino)
            if stamp != self._stamp:
                self._stamp = stamp
                self._readers = _read(path.read_bytes())
        except (OSError, *MALFORMED) as error:
            raise UsageError(
                f"{path} cannot be read as a file of tokens: {error!r}",
                hint='write [[token]] with name = "ci", sha256 = "<64 hex digits>" and maybe '
                'kernels = ["acme/*"]',
            ) from error


def _read(data: bytes) -> dict[str, Reader]:
    """The readers by the hash of their token, and the one without a token."""
    document = untrusted.parse_toml(data)
    readers = {"": Reader(kernels=_patterns(document, "public", []))}
    for row in document.get("token", []):
        if not SHA256.fullmatch(row["sha256"]):
            raise ValueError(f"sha256 = {row['sha256']!r} has not 64 hex digits")
        kernels = (*_patterns(row, "kernels", ["*"]), *readers[""].kernels)
        readers[row["sha256"]] = Reader(str(row["name"]), kernels)
    return readers


def _patterns(table: Mapping[str, object], name: str, default: list[str]) -> tuple[str, ...]:
    value = table.get(name, default)
    if not isinstance(value, list) or not all(isinstance(pattern, str) for pattern in value):
        raise ValueError(f"{name} = {value!r} is not a list of repo ids and patterns")
    return tuple(value)


def _token(authorization: str) -> str:
    """The token in a header: of ``Bearer``, or the password of ``Basic``, as browsers send it."""
    kind, _, value = authorization.partition(" ")
    if kind.lower() == "basic":
        with contextlib.suppress(ValueError):
            return base64.b64decode(value).decode().partition(":")[2]
    return value.strip()
