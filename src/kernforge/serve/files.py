# SPDX-License-Identifier: Apache-2.0
"""A file on this machine as an answer, whole or a part of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import anyio.to_thread
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

_CHUNK = 1 << 18
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


class FileResponse(Response):
    """A file, or the one range of it that the request names.

    Several ranges, and what is no range, give the whole file, as HTTP allows. The server sends a
    whole file itself, without Python.
    """

    def __init__(self, path: Path, size: int, headers: Mapping[str, str]) -> None:
        super().__init__(None, 200, headers)
        self._path, self._size = path, size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send it."""
        start, stop = self._range(Headers(scope=scope))
        if start >= stop and self._size:
            self.headers["Content-Range"] = f"bytes */{self._size}"
            self.headers["Content-Length"] = "0"
            await send({"type": "http.response.start", "status": 416, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": b""})
            return
        whole = stop - start == self._size
        if not whole:
            self.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{self._size}"
            self.headers["Content-Length"] = str(stop - start)
        status = 200 if whole else 206
        await send({"type": "http.response.start", "status": status, "headers": self.raw_headers})
        if whole and "http.response.pathsend" in scope.get("extensions", {}):
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
        """The first byte, and the one behind the last; empty if there are no such bytes."""
        match = _RANGE.fullmatch(headers.get("range", ""))
        if (
            not match
            or match[0] == "bytes=-"
            or headers.get("if-range", self.headers["ETag"]) != self.headers["ETag"]
        ):
            return 0, self._size
        first, last = match.groups()
        if not first:
            return max(0, self._size - int(last)), self._size
        return int(first), min(self._size, int(last) + 1 if last else self._size)
