# SPDX-License-Identifier: Apache-2.0
"""Answers with a file: its headers, all of it, or a part.

The headers of a file are made once and kept as bytes: making them takes longer than the rest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import anyio.to_thread
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from kernforge.registry.listing import RemoteFile

RawHeaders: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""The headers of an answer as they are sent."""

_CHUNK = 1 << 18
_RANGE = re.compile(r"bytes=(?!-$)([0-9]{0,18})-([0-9]{0,18})")


def encoded(headers: Mapping[str, str]) -> RawHeaders:
    """Headers as they are sent; their values are ASCII."""
    return tuple((name.lower().encode(), value.encode("ascii")) for name, value in headers.items())


class Answer:
    """An answer without a body.

    Args:
        other: headers in the place of those of the same names.
    """

    def __init__(
        self, status: int, headers: RawHeaders, other: Mapping[str, str] | None = None
    ) -> None:
        self.status = status
        self.headers = _replaced(headers, other) if other else headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send it."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": b""})


class FileAnswer:
    """A file, or the one range of it that the request names.

    Several ranges, and what is no range, give the whole file, as HTTP allows. The server sends a
    whole file itself, without Python.
    """

    def __init__(self, path: Path, file: RemoteFile, headers: RawHeaders) -> None:
        self._path, self._file, self._headers = path, file, headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        size = self._file.size
        start, stop = self._range(Headers(scope=scope))
        if start >= stop and size:
            other = {"Content-Range": f"bytes */{size}", "Content-Length": "0"}
            await Answer(416, self._headers, other)(scope, receive, send)
            return
        status, headers = 200, self._headers
        if stop - start < size:
            part = f"bytes {start}-{stop - 1}/{size}"
            other = {"Content-Range": part, "Content-Length": str(stop - start)}
            status, headers = 206, _replaced(headers, other)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if status == 200 and "http.response.pathsend" in scope.get("extensions", {}):  # noqa: PLR2004
            await send({"type": "http.response.pathsend", "path": str(self._path)})
            return
        with self._path.open("rb") as stream:
            while start < stop:
                count = min(_CHUNK, stop - start)
                chunk = await anyio.to_thread.run_sync(os.pread, stream.fileno(), count, start)
                if not chunk:
                    raise OSError(f"{self._path} became shorter")
                start += len(chunk)
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _range(self, headers: Headers) -> tuple[int, int]:
        """The first byte, and the one behind the last."""
        size = self._file.size
        match = _RANGE.fullmatch(headers.get("range", ""))
        if not match or headers.get("if-range", tag := f'"{self._file.blob}"') != tag:
            return 0, size
        first, last = match.groups()
        if not first:
            return max(0, size - int(last)), size
        return int(first), min(size, int(last) + 1 if last else size)


def _replaced(headers: RawHeaders, other: Mapping[str, str]) -> RawHeaders:
    return tuple({**dict(headers), **dict(encoded(other))}.items())
