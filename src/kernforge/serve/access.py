# SPDX-License-Identifier: Apache-2.0
"""Who may read which kernels: a file with the hashes of tokens.

The file is TOML, and is read again when it changes::

    public = ["acme/open-*"]     # kernels that need no token; none by default

    [[token]]
    name = "ci"                  # for the access log
    sha256 = "9f86d081..."       # printf %s "$TOKEN" | sha256sum
    kernels = ["acme/*"]         # all by default
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import logging
import time
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

_LASTS_S = 1.0

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
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._stamp: object = None
        self._checked = 0.0
        self._public = Reader()
        self._readers: Mapping[str, Reader] = {}
        if path:
            self._load(path)

    def reader(self, authorization: str) -> Reader | None:
        """The reader of a request's header ``Authorization``; None for an unknown token."""
        if self._path is None:
            return self._public
        if time.monotonic() - self._checked >= _LASTS_S:
            try:
                self._load(self._path)
            except UsageError as error:  # the server goes on with the tokens that it has
                log.warning("%s", error)
        token = _token(authorization)
        # The lookup is by hash: its duration says nothing about a token.
        return self._readers.get(sha256(token)) if token else self._public

    def is_public(self, repo_id: str) -> bool:
        """Whether a kernel needs no token."""
        return self._public.may_read(repo_id)

    @property
    def asks_for_token(self) -> bool:
        """Whether a request without a token sees less than one with a token."""
        return self._path is not None

    def _load(self, path: Path) -> None:
        self._checked = time.monotonic()
        try:
            state = path.stat()
            stamp = (state.st_mtime_ns, state.st_size, state.st_ino)
            if stamp == self._stamp:
                return
            document = untrusted.parse_toml(path.read_bytes())
            public = Reader(kernels=_patterns(document.get("public", [])))
            readers = {}
            for row in document.get("token", []):
                if not SHA256.fullmatch(row["sha256"]):
                    raise ValueError(f"sha256 = {row['sha256']!r} has not 64 hex digits")
                kernels = (*_patterns(row.get("kernels", ["*"])), *public.kernels)
                readers[row["sha256"]] = Reader(str(row["name"]), kernels)
        except (OSError, *MALFORMED) as error:
            raise UsageError(
                f"{path} cannot be read as a file of tokens: {error!r}",
                hint='write [[token]] with name = "ci", sha256 = "<64 hex digits>" and maybe '
                'kernels = ["acme/*"]',
            ) from error
        self._stamp, self._public, self._readers = stamp, public, readers


def _patterns(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(pattern, str) for pattern in value):
        raise ValueError(f"{value!r} is not a list of repo ids and patterns")
    return tuple(value)


def _token(authorization: str) -> str:
    """The token in a header: of ``Bearer``, or the password of ``Basic``, as browsers send it."""
    kind, _, value = authorization.partition(" ")
    if kind.lower() == "basic":
        with contextlib.suppress(binascii.Error, UnicodeDecodeError):
            return base64.b64decode(value).decode().partition(":")[2]
    return value.strip()
