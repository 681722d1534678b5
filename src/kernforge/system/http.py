# SPDX-License-Identifier: Apache-2.0
"""HTTP for package indexes, registries and token servers: the one door to the network.

It is Python's own client, so that a kernel loads from a server without another package. An answer
is untrusted: an exchange with all its redirects is bounded in size and time (``untrusted.Meter``),
a redirect leads neither to another protocol nor from https to http, and a login goes to no other
host.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import io
import logging
import os
import re
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from kernforge._version import __version__
from kernforge.errors import NetworkError, printable
from kernforge.system import untrusted
from kernforge.system.environment import Environment
from kernforge.system.untrusted import SILENCE_S, Meter

if TYPE_CHECKING:
    import socket
    import ssl
    from http.client import HTTPConnection, HTTPResponse

T = TypeVar("T")

UNREACHABLE = (
    "check the address, the network, HTTP_PROXY, HTTPS_PROXY and NO_PROXY; the certificate of an "
    "own authority is named in SSL_CERT_FILE, SSL_CERT_DIR or REQUESTS_CA_BUNDLE"
)
SIGN_IN = "it is a web page: a sign-in page?"
SIGN_IN_HINT = "sign in to the network or the server with a browser, or check the address"
ANSWER_S = 120.0
"""Seconds for an answer that is no file, with its redirects and pages."""

_WAITS_S = (0.5, 1.0, 2.0)
_LONGEST_WAIT_S = 60.0
_CHUNK = 1 << 18
_MOVED, _HOPS = {301, 302, 303, 307, 308}, 10
_OK, _NOT_OK = 200, 300
_PROXY_LOGIN, _TOO_MANY, _SERVER, _PORTAL = 407, 429, 500, 511
_SAFE = "%/:=&?~#+!$,;'@()*[]"  # of an address: all that is not to be escaped
_HOST = re.compile(r"https?://[A-Za-z0-9._:\[\]-]+(?:[/?]|\Z)")
# OpenSSL's own places may be those of the machine that built it, as in Python of uv.
_AUTHORITIES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")

log = logging.getLogger("kernforge")


class BusyError(NetworkError):
    """A server that is busy now; a retry may help, ``wait_s`` seconds later."""

    def __init__(self, message: str, *, hint: str, wait_s: float = 0.0) -> None:
        super().__init__(message, hint=hint)
        self.wait_s = wait_s


class StatusError(NetworkError):
    """An answer with an HTTP status that is no success."""

    def __init__(self, url: str, status: int, headers: Any, reason: str) -> None:
        hint = SIGN_IN_HINT if status == _PORTAL else UNREACHABLE
        super().__init__(f"{bare(url)}: HTTP {status}, {one_line(reason)}", hint=hint)
        self.url, self.status, self.headers, self.reason = url, status, headers, reason


def again(ask: Callable[[], T], wait: Callable[[float], object] | None = None) -> T:
    """Make a request, with a few retries while the server is busy.

    Args:
        ask: makes the request; it can be called again after an error.
        wait: waits for some seconds; None sleeps.
    """
    for usual in _WAITS_S:
        try:
            return ask()
        except BusyError as error:
            pause = min(max(usual, error.wait_s), _LONGEST_WAIT_S)
            if pause >= _WAITS_S[-1]:
                log.warning("%s; next attempt in %.0f s", error.message, pause)
            (wait or time.sleep)(pause)
    return ask()


class Response:
    """An answer whose content is not read yet."""

    def __init__(self, response: HTTPResponse, url: str, meter: Meter, hint: str) -> None:
        self._response, self._meter, self._hint = response, meter, hint
        self.url, self.status, self.headers = url, response.status, response.headers

    def chunks(self) -> Iterator[bytes]:
        """The content as it arrives: whole chunks would hide a slow server."""
        from http.client import IncompleteRead  # noqa: PLC0415 - see Client.request

        packed = self.headers.get("Content-Encoding", "").lower() in {"gzip", "x-gzip", "deflate"}
        unpack = zlib.decompressobj(zlib.MAX_WBITS | 32) if packed else None
        with _translated(self.url, self._hint, BusyError):
            while chunk := self._response.read1(_CHUNK):
                while chunk:
                    data = unpack.decompress(chunk, _CHUNK) if unpack else chunk
                    self._meter.count(len(data))
                    yield data
                    chunk = unpack.unconsumed_tail if unpack else b""
            if self._response.length:
                raise IncompleteRead(b"", self._response.length)

    def read(self) -> bytes:
        """All the content."""
        return b"".join(self.chunks())


class Client:
    """Requests with the user's proxies and certificates.

    Args:
        login: the value of the header ``Authorization`` for a URL; empty for none.
        hint: of errors of the network.
        proxy: in the place of those of the environment.
        authorities: a file of certificates in the place of those of the environment.
        certificate: the client's own, with its key.
        unverified: whether the certificate of a URL's host does not matter.
        silence_s: seconds without a byte after which a request is aborted.
        reuse: whether connections are kept for the next request: an index gets hundreds.
    """

    def __init__(
        self,
        *,
        login: Callable[[str], str] = lambda _url: "",
        user_agent: str = "",
        hint: str = UNREACHABLE,
        proxy: str | None = None,
        authorities: str | None = None,
        certificate: str | None = None,
        unverified: Callable[[str], bool] = lambda _url: False,
        silence_s: float = SILENCE_S,
        reuse: bool = False,
    ) -> None:
        self._login, self._hint, self._given_proxy = login, hint, proxy
        self._authorities, self._certificate = authorities, certificate
        self._unverified, self._silence_s = unverified, silence_s
        self._agent = f"kernforge/{__version__}; {user_agent}".rstrip("; ")
        self._reuse = reuse
        self._idle: dict[object, list[HTTPConnection]] = {}
        self.close = weakref.finalize(self, _close_all, self._idle)

    def meter(self, url: str, *, is_file: bool = False) -> Meter:
        """The limits of one exchange: of a document or a list, or of a file, however large."""
        most, within_s = (untrusted.FILE, None) if is_file else (untrusted.DOCUMENT, ANSWER_S)
        return Meter(bare(url), most, within_s, self._silence_s)

    @contextlib.contextmanager
    def request(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "GET",
        body: bytes | IO[bytes] | None = None,
        meter: Meter | None = None,
    ) -> Iterator[Response]:
        """An answer of success, after redirects of GET and HEAD.

        Args:
            meter: shared by the requests of one exchange; by default that of one document.

        Raises:
            StatusError: another status; a BusyError if the server is busy.
            NetworkError: there is no connection, or an answer is not HTTP; a BusyError if a
                connection broke off.
        """
        is_file = body is not None and not isinstance(body, bytes)
        meter = meter or self.meter(url, is_file=is_file)
        meter.restart()
        for _ in range(_HOPS):
            connection, response = self._send(url, method, headers or {}, body, meter)
            with contextlib.ExitStack() as stack:
                stack.callback(self._release, url, connection, response)
                answer = Response(response, url, meter, self._hint)
                location = response.headers.get("Location")
                if response.status not in _MOVED or method not in {"GET", "HEAD"} or not location:
                    if not _OK <= response.status < _NOT_OK:
                        reason = _reason(answer, response.reason)
                        raise status_error(url, response.status, response.headers, reason)
                    yield answer
                    return
            # A header is read as Latin-1; an address that is not ASCII is UTF-8.
            url = following(url, location.encode("latin-1").decode(errors="replace"))
        raise NetworkError(
            f"{bare(url)} leads on after {_HOPS} redirects",
            hint="report it to the operator of the server, or check the address",
        )

    def _send(
        self,
        url: str,
        method: str,
        headers: Mapping[str, str],
        body: bytes | IO[bytes] | None,
        meter: Meter,
    ) -> tuple[HTTPConnection, HTTPResponse]:
        with _translated(url, self._hint, NetworkError):
            parts, login = urlsplit(url), self._login(url)
            proxy = self._proxy(parts)
            sent = {"User-Agent": self._agent, "Accept-Encoding": "identity", **headers}
            sent |= {"Authorization": login} if login else {}
            sent |= {} if self._reuse else {"Connection": "close"}
            target = parts._replace(scheme="", netloc="", path=parts.path or "/", fragment="")
            if proxy and parts.scheme == "http":
                target = target._replace(scheme="http", netloc=parts.netloc.rpartition("@")[2])
                sent |= _proxy_headers(proxy)
        idle = self._idle.setdefault((os.getpid(), host_of(url)), [])  # a fork makes its own
        with _translated(url, self._hint, NetworkError):
            try:
                connection = idle.pop()
            except IndexError:
                connection = self._connection(url, parts, proxy, meter)
        connection.response_class = functools.partial(_metered, meter)  # type: ignore[assignment]
        try:
            with _translated(url, self._hint, NetworkError):
                if connection.sock is None:
                    connection.connect()
            with _translated(url, self._hint, BusyError):
                connection.sock.settimeout(meter.wait_s())
                if body is not None and not isinstance(body, bytes):
                    body.seek(0)
                connection.request(method, target.geturl(), body, sent)
                if body:
                    meter.restart()
                return connection, connection.getresponse()
        except BaseException:
            connection.close()
            _close_all(self._idle)  # the server may have closed these, too: no retry with them
            raise

    def _connection(
        self, url: str, parts: SplitResult, proxy: SplitResult | None, meter: Meter
    ) -> HTTPConnection:
        """A new connection, which is not open yet, through the proxy if there is one."""
        from http.client import HTTPConnection, HTTPSConnection  # noqa: PLC0415

        host, port, timeout = parts.hostname or "", parts.port, meter.wait_s()
        via = (proxy.hostname or "", proxy.port or 80) if proxy else (host, port)
        if parts.scheme != "https":
            return HTTPConnection(*via, timeout=timeout)
        variables = map(Environment.live().variables.get, _CERTIFICATES)
        authorities = (self._authorities,) if self._authorities else variables
        context = _context(
            tuple(filter(None, authorities)), self._certificate, verify=not self._unverified(url)
        )
        connection = HTTPSConnection(*via, timeout=timeout, context=context)
        if proxy:
            connection.set_tunnel(host, port, _proxy_headers(proxy))
        return connection

    def _proxy(self, parts: SplitResult) -> SplitResult | None:
        """The proxy for an address; None for none."""
        from urllib import request  # noqa: PLC0415 - see _translated

        proxies = request.getproxies_environment()
        bypass: Callable[..., bool] = request.proxy_bypass_environment  # type: ignore[attr-defined]
        named = self._given_proxy
        if not named and not bypass(parts.netloc.rpartition("@")[2], proxies):
            every = proxies.get("all", "")  # often of SOCKS, for other programs
            named = proxies.get(parts.scheme) or (every if every.startswith("http") else None)
        if not named:
            return None
        proxy = urlsplit(named if "://" in named else f"http://{named}")
        if proxy.scheme not in {"http", "https"} or not proxy.hostname:
            raise ValueError(f"a proxy is an address like http://host:port, not {proxy.scheme}://")
        return proxy

    def _release(self, url: str, connection: HTTPConnection, response: HTTPResponse) -> None:
        """Keep the connection for the next request if all of the answer was read."""
        is_read = response.isclosed() or response.length == 0
        response.close()
        if self._reuse and is_read and not response.will_close:
            self._idle.setdefault((os.getpid(), host_of(url)), []).append(connection)
        else:
            connection.close()


class _Metered(io.RawIOBase):
    """The bytes of a socket, of which each read is metered: headers, chunks and trailers, too."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, meter: Meter) -> None:
        self._raw, self._sock, self._meter = raw, sock, meter

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._meter.wait_s())
        try:
            return self._raw.readinto(buffer)
        except TimeoutError:
            if self._meter.left_s() <= 0:
                self._meter.wait_s()  # no other attempt
            raise

    def close(self) -> None:
        self._raw.close()
        super().close()


def _metered(meter: Meter, sock: socket.socket, *rest: Any, **options: Any) -> HTTPResponse:
    from http.client import HTTPResponse  # noqa: PLC0415 - see Client._connection

    response = HTTPResponse(sock, *rest, **options)
    raw = response.fp.detach()
    response.fp = io.BufferedReader(_Metered(raw, sock, meter))
    return response


def _close_all(idle: dict[object, list[HTTPConnection]]) -> None:
    for connections in idle.values():
        while connections:
            connections.pop().close()


@contextlib.contextmanager
def _translated(url: str, hint: str, kind: type[NetworkError]) -> Iterator[None]:
    """Convert the exceptions of connections and of answers that are not HTTP.

    Args:
        kind: a BusyError where there was a connection: a wrong name, certificate or proxy stays.
    """
    from http.client import HTTPException  # noqa: PLC0415 - slow, and not for a warm cache

    try:
        yield
    except (OSError, HTTPException, ValueError, zlib.error) as error:
        reason = one_line(getattr(error, "strerror", None) or error)
        raise kind(f"{bare(url)} cannot be reached: {reason}", hint=hint) from error


def _reason(answer: Response, reason: str) -> str:
    """Why a request failed: a bucket's own words are at the beginning of its answer."""
    with contextlib.suppress(NetworkError):
        if "xml" in answer.headers.get("Content-Type", ""):
            beginning = next(answer.chunks(), b"").decode(errors="replace")
            if words := re.search("<Message>([^<]+)", beginning):
                return words[1]
    return reason


def status_error(url: str, status: int, headers: Any, reason: str) -> NetworkError:
    """The error for an HTTP status; a BusyError if a retry may help, as ``Retry-After`` says."""
    if status == _TOO_MANY or (status >= _SERVER and status != _PORTAL):
        wait = headers.get("Retry-After", "")
        return BusyError(
            f"{bare(url)} is busy or has an internal error: HTTP {status}",
            hint="try again later; a token may raise the limit",
            wait_s=float(wait) if wait.isdecimal() and wait.isascii() else 0.0,
        )
    return StatusError(url, status, headers, reason)


def following(url: str, location: str) -> str:
    """An address in an answer, which may be relative; at the same host with the same login.

    Raises:
        NetworkError: it is not one of http, or without the encryption of ours.
    """
    wrong = "is not an address"
    try:
        target = quote(urljoin(bare(url), location.strip()), safe=_SAFE).partition("#")[0]
        parts, known = urlsplit(target), urlsplit(url)
        is_address = _HOST.match(target) and parts.hostname and parts.hostname.encode("idna")
        if parts.scheme not in {"https", known.scheme}:
            wrong = "is not encrypted"
        elif is_address and parts.port != 0:  # a wrong one is a ValueError
            is_own = host_of(target) == host_of(url)
            return parts._replace(netloc=known.netloc).geturl() if is_own else target
    except ValueError:
        pass
    raise NetworkError(
        f"{bare(url)} leads to {location.partition('?')[0][:200]!r}, which {wrong}",
        hint="report it to the operator; a registry without TLS is named oci+http://",
    )


@functools.lru_cache(maxsize=16)
def _context(
    authorities: tuple[str, ...], certificate: str | None, *, verify: bool
) -> ssl.SSLContext:
    """Settings of TLS; reading the certificates of all authorities takes 20 ms.

    Args:
        authorities: files and directories, which hold alone; empty for the machine's own.
    """
    import ssl  # noqa: PLC0415 - slow, and not for a warm cache

    context = ssl.create_default_context()
    if authorities:
        flags, context = context.verify_flags, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.verify_flags = flags
    for path in authorities or _own_authorities():
        # OpenSSL itself takes several directories, with colons between them.
        kind = "capath" if Path(path.partition(":")[0]).is_dir() else "cafile"
        try:
            context.load_verify_locations(**{kind: path})
        except OSError as error:
            raise ValueError(f"the certificates of {path}: {one_line(error)}") from None
    if certificate:
        context.load_cert_chain(certificate)
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _own_authorities() -> tuple[str, ...]:
    """A file of authorities where OpenSSL has none at its own places."""
    import ssl  # noqa: PLC0415 - see _context

    paths = ssl.get_default_verify_paths()
    if paths.cafile or any(Path(paths.capath or "/nonexistent").glob("*.0")):
        return ()
    if found := next(filter(os.path.isfile, _AUTHORITIES), None):
        return (found,)
    try:
        import certifi  # noqa: PLC0415 - where the machine has none
    except ImportError:
        return ()
    return (certifi.where(),)


def netrc_login(netrc_file: Path, url: str) -> str:
    """The value of ``Authorization`` that a user's netrc has for a host; empty for none."""
    import netrc  # noqa: PLC0415 - slow, and not for a warm cache

    with contextlib.suppress(OSError, ValueError, netrc.NetrcParseError):
        if login := netrc.netrc(netrc_file).authenticators(urlsplit(url).hostname or ""):
            return basic(login[0], login[2] or "")
    return ""


def url_login(url: str) -> str:
    """The value of ``Authorization`` that an address carries; empty for none."""
    parts = urlsplit(url)
    if parts.username is None:
        return ""
    return basic(unquote(parts.username), unquote(parts.password or ""))


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    login = url_login(proxy.geturl())
    return {"Proxy-Authorization": login} if login else {}


def basic(user: str, password: str) -> str:
    """The value of the header ``Authorization`` for a password."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def host_of(url: str) -> tuple[str, str]:
    """The scheme and the host with its port, without a login."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2].lower()


def bare(url: str) -> str:
    """An address without what may be secret in it: a login, and a query with a signature."""
    return re.sub(r"//[^/@]*@", "//", re.split("[?#]", url, maxsplit=1)[0])


def one_line(error: object) -> str:
    """The text of an error or a server as one printable line of at most 300 characters."""
    line = printable(" ".join(str(error).split())[:300])
    return "".join(c if c.isprintable() else "\ufffd" for c in line) or type(error).__name__
