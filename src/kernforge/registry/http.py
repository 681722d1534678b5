# SPDX-License-Identifier: Apache-2.0
"""Requests to the server of a registry, with Python's own library: reading needs no package.

An answer is untrusted: it is bounded in size, time and redirects, and credentials go to no other
host.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from kernforge._version import __version__
from kernforge.errors import (
    KernforgeError,
    MovedError,
    NetworkError,
    NotPublishedError,
    RegistryError,
)
from kernforge.registry.listing import MALFORMED
from kernforge.system import untrusted

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from urllib.request import OpenerDirector

UNREACHABLE = (
    "check the address, the network, HTTP_PROXY, HTTPS_PROXY and NO_PROXY; the certificate of an "
    "own authority is named in SSL_CERT_FILE"
)
_ADDRESS = re.compile(r"https?://[^/\s@?#]+(?:/[^\s@?#]*)?")
_NEXT = re.compile(r'<([^>]*)>\s*;\s*rel="?next"?')
_SILENCE_S = 30.0
_CHUNK = 1 << 18
_PARTIAL, _UNAUTHORIZED, _NOT_FOUND, _PROXY_LOGIN = 206, 401, 404, 407
_CHANGED, _TOO_MANY, _SERVER = 412, 429, 500


class BusyError(NetworkError):
    """A server that is busy now; a retry may help, ``wait_s`` seconds later."""

    def __init__(self, message: str, *, hint: str, wait_s: float = 0.0) -> None:
        super().__init__(message, hint=hint)
        self.wait_s = wait_s


class Http:
    """Requests to one server.

    Args:
        address: its address in messages.
        absent: what a user does when the server has no such thing.
        denied: what a user does when it refuses.
        authorization: the value of the header ``Authorization``; empty for none.
        challenged: takes the headers of a 401 of this host; returns whether to send it once more.
    """

    def __init__(
        self,
        address: str,
        *,
        absent: str,
        denied: str,
        authorization: Callable[[], str] = str,
        challenged: Callable[[Any], bool] = lambda _headers: False,
        user_agent: str = "",
    ) -> None:
        self.address, self._absent, self._denied = address, absent, denied
        self._authorization, self._challenged = authorization, challenged
        self._agent = f"kernforge/{__version__}; {user_agent}".rstrip("; ")

    @contextlib.contextmanager
    def request(
        self,
        what: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "GET",
        body: bytes | IO[bytes] | None = None,
    ) -> Iterator[HTTPResponse]:
        """An HTTP response, whose body is not read yet.

        Args:
            what: what errors name: a kernel, or an owner.
        """
        from http.client import HTTPException  # noqa: PLC0415 - slow, and not for a warm cache
        from urllib.error import HTTPError, URLError  # noqa: PLC0415
        from urllib.request import Request  # noqa: PLC0415

        own = host_of(self.address)

        def send(*, again: bool) -> HTTPResponse:
            # A range of a compressed body would mean nothing.
            sent = {"User-Agent": self._agent, "Accept-Encoding": "identity", **(headers or {})}
            if (authorization := self._authorization()) and host_of(url) == own:
                sent["Authorization"] = authorization
            if body is not None and not isinstance(body, bytes):
                body.seek(0)
            # A new one each time: urllib sends a second use through a proxy unencrypted.
            request = Request(url, body, sent, method=method)  # noqa: S310 - http or https
            try:
                response: HTTPResponse = self._opener.open(request, timeout=_SILENCE_S)
            except HTTPError as error:
                error.close()
                # Another host, to which a redirect led, would get the password for this one.
                asks = error.code == _UNAUTHORIZED and host_of(error.url or "") == own
                if not (again and asks and self._challenged(error.headers)):
                    raise
                response = send(again=False)
            return response

        try:
            with send(again=True) as response:
                yield response
        except HTTPError as error:
            raise self.refused(what, error.code, error.headers, error.reason) from None
        except (OSError, HTTPException) as error:
            # Without a connection: a wrong name, certificate or proxy, which stays wrong.
            kind = NetworkError if isinstance(error, URLError) else BusyError
            reason = one_line(error.reason if isinstance(error, URLError) else error)
            raise kind(f"{self.address} cannot be reached: {reason}", hint=UNREACHABLE) from error

    def document(self, what: str, url: str, headers: Mapping[str, str] | None = None) -> bytes:
        """The body of a small answer."""
        with self.request(what, url, headers) as response:
            return body_of(response, url)

    def pages(self, what: str, url: str) -> Iterator[bytes]:
        """The bodies of a list that comes in pages."""
        size = 0
        while url:
            with self.request(what, url) as response:
                data, link = body_of(response, url), _NEXT.search(response.headers.get("Link", ""))
            size += max(len(data), _CHUNK)  # a server could send empty pages without end
            if size > untrusted.DOCUMENT:
                raise RegistryError(
                    f"{self.address} lists {what} without end",
                    hint="report it to the operator of the server",
                )
            yield data
            url = following(url, link[1]) if link else ""

    def stream(self, what: str, url: str, start: int, stop: int) -> Iterator[bytes]:
        """The bytes of a file from ``start`` to ``stop``, as they arrive."""
        # Caches between here and the server keep whole files alone.
        headers = {"Range": f"bytes={start}-{stop - 1}"} if start else {}
        with self.request(what, url, headers) as response:
            # A server without ranges sends the whole file.
            position = start if response.status == _PARTIAL else 0
            for chunk in untrusted.bounded(chunks_of(response), url, untrusted.FILE):
                yield chunk[max(0, start - position) : stop - position]
                position += len(chunk)
                if position >= stop:
                    return

    def refused(self, what: str, status: int, headers: Any, reason: str) -> KernforgeError:
        """The error for an HTTP status, see ``refusal``."""
        hints = {"absent": self._absent, "denied": self._denied}
        return refusal(self.address, what, status, headers, reason, **hints)

    @functools.cached_property
    def _opener(self) -> OpenerDirector:
        """Requests through the user's proxies, with the user's certificates."""
        from urllib import request  # noqa: PLC0415 - slow, and not for a warm cache

        class Redirect(request.HTTPRedirectHandler):
            def redirect_request(self, req: Any, *rest: Any) -> Any:
                following = super().redirect_request(req, *rest)
                if following is not None and host_of(following.full_url) != host_of(req.full_url):
                    following.remove_header("Authorization")
                return following

        return request.build_opener(Redirect)


def check_address(text: str) -> str:
    """The address of a server, without a slash at its end."""
    if not _ADDRESS.fullmatch(text):
        raise RegistryError(
            f"{text!r} is not the address of a registry",
            hint="write it like https://host/path, without credentials: a hub's token is in "
            "HF_TOKEN, the login for another server in ~/.netrc, or of oci:// in docker's files",
        )
    return text.rstrip("/")


def refusal(
    address: str, what: str, status: int, headers: Any, reason: str, *, absent: str, denied: str
) -> KernforgeError:
    """The error for an HTTP status of a server, or of a proxy before it; hints as of ``Http``."""
    if status == _TOO_MANY or status >= _SERVER:
        wait = headers.get("Retry-After", "")
        return BusyError(
            f"{address} is busy or has an internal error: HTTP {status}",
            hint="try again later; a token may raise the limit",
            wait_s=float(wait) if wait.isdecimal() and wait.isascii() else 0.0,
        )
    if status == _CHANGED:
        return MovedError(f"another process published {what} at once", hint="publish again")
    detail = f"HTTP {status}, {one_line(headers.get('X-Error-Message') or reason)}"
    # A hub answers 401 to a user who may not see a kernel.
    if status == _NOT_FOUND or headers.get("X-Error-Code") == "RepoNotFound":
        return NotPublishedError(f"{address} has no {what}: {detail}", hint=absent)
    hint = UNREACHABLE if status == _PROXY_LOGIN else denied
    return RegistryError(f"{address} refuses {what}: {detail}", hint=hint)


def following(url: str, location: str) -> str:
    """An address in an answer, which may be relative; never one without the encryption of ours."""
    target = urljoin(url, location)
    if urlsplit(target).scheme not in {"https", urlsplit(url).scheme}:
        raise RegistryError(
            f"{url} leads to {target[:200]!r}, which is not encrypted",
            hint="report it to the operator; a registry without TLS is named oci+http://",
        )
    return target


def basic(user: str, password: str) -> str:
    """The value of the header ``Authorization`` for a password."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def host_of(url: str) -> tuple[str, str]:
    """The scheme and the host with its port."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def body_of(response: HTTPResponse, url: str) -> bytes:
    """The body of a small answer."""
    return b"".join(untrusted.bounded(chunks_of(response), url, untrusted.DOCUMENT))


def chunks_of(response: HTTPResponse) -> Iterator[bytes]:
    """The body as it arrives: whole chunks would hide a server that sends a byte a second."""
    from http.client import IncompleteRead  # noqa: PLC0415 - see Http.request

    while chunk := response.read1(_CHUNK):
        yield chunk
    if response.length:
        raise IncompleteRead(b"", response.length)


def one_line(error: object) -> str:
    """The text of an error as one printable line of at most 300 characters."""
    line = " ".join(str(error).split())[:300]
    return "".join(c if c.isprintable() else "\ufffd" for c in line) or type(error).__name__


@contextlib.contextmanager
def reading(url: str, kind: str = "a registry") -> Iterator[None]:
    """Convert the exceptions of a malformed answer to a RegistryError."""
    try:
        yield
    except MALFORMED as error:
        raise RegistryError(
            f"the answer of {url} is not that of {kind}: {one_line(error)}",
            hint="report it to the operator of the server, or check the address",
        ) from error
