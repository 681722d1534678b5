# SPDX-License-Identifier: Apache-2.0
"""The door to the network: the only module that opens connections.

It speaks http, https and file, retries what may pass, and turns every foreign exception into a
``NetworkError`` once.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from kernforge._version import __version__
from kernforge.errors import NetworkError
from kernforge.system import untrusted
from kernforge.toolchain.index import pip_config
from kernforge.toolchain.index.pip_config import PipConfig

_ACCEPT_INDEX = (
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, "
    "text/html;q=0.01"
)
_CHUNK = 1 << 18
_OK, _PARTIAL, _NOT_FOUND = 200, 206, 404


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
    """One session with the user's certificates, proxy and credentials (``.netrc`` included)."""

    def __init__(self, config: PipConfig) -> None:
        self._config = config
        self._session = requests.Session()
        # A server may ask to wait for hours: it is asked again within seconds, or not at all.
        retry = Retry(
            total=4,
            connect=2,
            backoff_factor=0.5,
            status_forcelist=(429, 500, 502, 503, 504),
            respect_retry_after_header=False,
        )
        adapter = HTTPAdapter(max_retries=retry, pool_maxsize=8)
        self._session.mount("https://", adapter)
        self._session.mount("http://", adapter)
        self._session.headers["User-Agent"] = f"kernforge/{__version__}"
        # The bytes on the wire must be the file's own: a range of a compressed body means nothing.
        self._session.headers["Accept-Encoding"] = "identity"
        if config.cert:
            self._session.verify = config.cert
        if config.client_cert:
            self._session.cert = config.client_cert
        if config.proxy:
            self._session.proxies = {"http": config.proxy, "https": config.proxy}
        self.received = 0  # bytes of bodies and pages

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def page(self, url: str) -> Page | None:
        """Read an index page; None where there is none."""
        if path := local_path(url):
            return _local_page(path)
        with self._get(url, {"Accept": _ACCEPT_INDEX}) as response:
            if response.status_code == _NOT_FOUND:
                return None
            self._refuse(response)
            data = b"".join(self._chunks(url, response, untrusted.DOCUMENT))
            kind = response.headers.get("Content-Type", "text/html").partition(";")[0].strip()
            # In whatever encoding, the names of wheels are ASCII.
            return Page(url=response.url, text=data.decode(errors="replace"), content_type=kind)

    def body(self, url: str, *, start: int = 0, stop: int | None = None) -> Body:
        """Open a file, or a part of it.

        Args:
            start: the first byte; negative counts from the end, as in ``bytes=-n``.
            stop: one past the last byte; None reads to the end.
        """
        if path := local_path(url):
            return _local_body(path)
        wanted = start != 0 or stop is not None
        header = f"bytes={start}{'' if start < 0 else '-'}{'' if stop is None else stop - 1}"
        response = self._get(url, {"Range": header} if wanted else {})
        self._refuse(response)
        ranged = response.status_code == _PARTIAL
        length = response.headers.get("Content-Length", "")
        first, total = 0, int(length) if length.isdigit() else None
        if ranged:
            first, total = _content_range(response)
        most = untrusted.FILE
        if ranged and (start < 0 or stop is not None):
            most = -start if stop is None else stop - start
        chunks = self._chunks(url, response, most)
        return Body(start=first, total=total, ranged=ranged, chunks=chunks)

    def _get(self, url: str, headers: dict[str, str]) -> requests.Response:
        verify = False if pip_config.is_trusted(self._config, url) else None
        try:
            return self._session.get(
                url, headers=headers, stream=True, timeout=self._config.timeout_s, verify=verify
            )
        except requests.RequestException as error:
            raise _unreachable(url, error) from error

    def _refuse(self, response: requests.Response) -> None:
        if response.status_code in {_OK, _PARTIAL}:
            return
        response.close()
        hint = {
            401: "give the credentials in the index URL or in ~/.netrc",
            403: "the index refuses this file: check the credentials in the index URL or ~/.netrc",
            404: "the index lists this file but does not have it",
        }.get(response.status_code, "try again later, or use another index")
        raise NetworkError(f"{bare(response.url)}: HTTP {response.status_code}", hint=hint)

    def _chunks(self, url: str, response: requests.Response, most: int) -> Iterator[bytes]:
        try:
            with response:
                arriving = iter(lambda: response.raw.read1(_CHUNK, decode_content=True), b"")
                for chunk in untrusted.bounded(arriving, bare(url), most):
                    self.received += len(chunk)
                    yield chunk
        except (requests.RequestException, HTTPError) as error:
            raise _unreachable(url, error) from error


def local_path(url: str) -> Path | None:
    """The file or directory that an address of this machine names; None for other addresses."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _local_body(path: Path) -> Body:
    """A file of this machine, of which all is given whatever was asked for."""
    try:
        stream, total = path.open("rb"), path.stat().st_size
    except OSError as error:
        raise NetworkError(f"{path}: {error.strerror}") from error
    return Body(start=0, total=total, ranged=False, chunks=_closing(stream))


def _closing(stream: IO[bytes]) -> Iterator[bytes]:
    with stream:
        yield from iter(functools.partial(stream.read, _CHUNK), b"")


def _local_page(path: Path) -> Page | None:
    path = path / "index.html" if path.is_dir() else path
    if not path.is_file():
        return None
    return Page(url=path.as_uri(), text=path.read_text(), content_type="text/html")


def _content_range(response: requests.Response) -> tuple[int, int | None]:
    match = re.match(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    if not match:
        raise NetworkError(
            f"{bare(response.url)}: a partial answer that does not say which part it is",
            hint="the index or a proxy before it breaks range requests; use another index",
        )
    return int(match[1]), None if match[2] == "*" else int(match[2])


def _unreachable(url: str, error: Exception) -> NetworkError:
    return NetworkError(
        f"{bare(url)} cannot be read: {_reason(error)}",
        hint="check the network and pip's index and proxy settings; without a network a project is "
        "built whose kernforge.lock is there and names what is in the store",
    )


def _reason(error: Exception) -> str:
    """Innermost reason of a chain of wrapped exceptions, in one line."""
    while isinstance(error.args[0] if error.args else None, Exception):
        error = error.args[0]
    reason = getattr(error, "reason", None)
    return " ".join(str(reason or error).split())[:300]


def bare(url: str) -> str:
    """Address without the credentials that it may carry."""
    return re.sub(r"//[^/@]*@", "//", url.partition("#")[0])
