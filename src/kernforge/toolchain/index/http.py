# SPDX-License-Identifier: Apache-2.0
"""Pages and files of package indexes: of http by ``system.http``, and of this machine."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from kernforge.errors import NetworkError
from kernforge.system import http, untrusted
from kernforge.system.environment import Environment, user_file
from kernforge.toolchain.index import pip_config
from kernforge.toolchain.index.pip_config import PipConfig

_ACCEPT_INDEX = (
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, "
    "text/html;q=0.01"
)
_CHUNK = 1 << 18
_PARTIAL, _NOT_FOUND = 206, 404
_HINTS = {
    401: "give the credentials in the index URL or in ~/.netrc",
    403: "the index refuses this file: check the credentials in the index URL or ~/.netrc",
    404: "the index lists this file but does not have it",
}
_UNREACHABLE = (
    f"{http.UNREACHABLE}; pip's options index-url, proxy and cert hold here; without a network a "
    "project is built whose kernforge.lock is there and names what is in the store"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A small document: its text, its content type, and the address it came from in the end."""

    url: str
    text: str
    content_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A file's bytes from ``start`` on.

    Attributes:
        start: position of the first byte; 0 although more was asked for when the server does not
            do ranges.
        total: the whole file's size in bytes; None when the server does not say.
        ranged: whether the server answered with the range that was asked for.
        chunks: the bytes, to be read once.
    """

    start: int
    total: int | None
    ranged: bool
    chunks: Iterator[bytes]

    def read(self) -> bytes:
        """Return all the bytes."""
        return b"".join(self.chunks)


class Transport:
    """Requests with pip's settings; a login is in the address or in ``.netrc``."""

    def __init__(self, config: PipConfig) -> None:
        self._client = http.Client(
            login=_login,
            hint=_UNREACHABLE,
            proxy=config.proxy,
            authorities=config.cert,
            certificate=config.client_cert,
            unverified=functools.partial(pip_config.is_trusted, config),
            silence_s=config.timeout_s,
            reuse=True,
        )
        self.close = self._client.close
        self.received = 0  # bytes of bodies and pages

    def page(self, url: str) -> Page | None:
        """Read an index page; None where there is none."""
        if path := local_path(url):
            return _local_page(path)
        return http.again(lambda: self._page(url))

    @contextlib.contextmanager
    def body(self, url: str, *, start: int = 0, stop: int | None = None) -> Iterator[Body]:
        """Open a file, or a part of it.

        Args:
            start: the first byte; negative counts from the end, as in ``bytes=-n``.
            stop: one past the last byte; None reads to the end.
        """
        with contextlib.ExitStack() as stack:
            if path := local_path(url):
                yield _local_body(path, stack)
                return
            wanted = start != 0 or stop is not None
            header = f"bytes={start}{'' if start < 0 else '-'}{'' if stop is None else stop - 1}"
            headers, most = {"Range": header} if wanted else {}, untrusted.FILE
            if wanted and (start < 0 or stop is not None):
                most = -start if stop is None else stop - start

            def opened() -> http.Response:
                return stack.enter_context(self._request(url, headers, is_file=True))

            response = http.again(opened)
            ranged = response.status == _PARTIAL
            length = response.headers.get("Content-Length", "")
            first, total = 0, int(length) if length.isdecimal() else None
            if ranged:
                first, total = _content_range(response)
            chunks = untrusted.bounded(
                response.chunks(), http.bare(url), most if ranged else untrusted.FILE
            )
            yield Body(start=first, total=total, ranged=ranged, chunks=self._counted(chunks))

    def _page(self, url: str) -> Page | None:
        try:
            with self._request(url, {"Accept": _ACCEPT_INDEX}) as response:
                data = b"".join(self._counted(response.chunks()))
                kind = response.headers.get("Content-Type", "text/html").partition(";")[0].strip()
                # In whatever encoding, the names of wheels are ASCII.
                text = data.decode(errors="replace")
                return Page(url=response.url, text=text, content_type=kind)
        except http.StatusError as error:
            if error.status != _NOT_FOUND:
                raise
            return None

    @contextlib.contextmanager
    def _request(
        self, url: str, headers: Mapping[str, str], *, is_file: bool = False
    ) -> Iterator[http.Response]:
        meter = self._client.meter(url, is_file=is_file)
        try:
            with self._client.request(url, headers, meter=meter) as response:
                yield response
        except http.StatusError as error:
            error.hint = _HINTS.get(error.status, error.hint)
            raise

    def _counted(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.received += len(chunk)
            yield chunk


def _login(url: str) -> str:
    """The login for an address: its own, or that of the user's netrc."""
    netrc_file = user_file(Environment.live().variables.get("NETRC") or "~/.netrc")
    return http.url_login(url) or http.netrc_login(netrc_file, url)


def local_path(url: str) -> Path | None:
    """The file or directory that an address of this machine names; None for other addresses."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _local_body(path: Path, stack: contextlib.ExitStack) -> Body:
    """A file of this machine, of which all is given whatever was asked for."""
    try:
        stream: IO[bytes] = stack.enter_context(path.open("rb"))
        total = path.stat().st_size
    except OSError as error:
        raise NetworkError(f"{path}: {error.strerror}") from error
    chunks = iter(functools.partial(stream.read, _CHUNK), b"")
    return Body(start=0, total=total, ranged=False, chunks=chunks)


def _local_page(path: Path) -> Page | None:
    path = path / "index.html" if path.is_dir() else path
    if not path.is_file():
        return None
    return Page(url=path.as_uri(), text=path.read_text(), content_type="text/html")


def _content_range(response: http.Response) -> tuple[int, int | None]:
    match = re.match(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    if not match:
        raise NetworkError(
            f"{http.bare(response.url)}: a partial answer that does not say which part it is",
            hint="the index or a proxy before it breaks range requests; use another index",
        )
    return int(match[1]), None if match[2] == "*" else int(match[2])
