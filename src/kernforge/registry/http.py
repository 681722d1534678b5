# SPDX-License-Identifier: Apache-2.0
"""Requests to the server of a registry: ``system.http`` with a registry's errors and logins."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import IO, Any

from kernforge.errors import KernforgeError, MovedError, NotPublishedError, RegistryError
from kernforge.registry.listing import MALFORMED
from kernforge.system.http import (
    SIGN_IN,
    SIGN_IN_HINT,
    UNREACHABLE,
    BusyError,
    Client,
    Response,
    StatusError,
    following,
    host_of,
    one_line,
    status_error,
)
from kernforge.system.untrusted import Meter

_ADDRESS = re.compile(r"https?://[^/\s@?#]+(?:/[^\s@?#]*)?")
_NEXT = re.compile(r'<([^>]*)>\s*;\s*rel="?next"?')
_PARTIAL, _UNAUTHORIZED, _NOT_FOUND, _PROXY_LOGIN = 206, 401, 404, 407
_CHANGED, _PORTAL = 412, 511
_PAGE = 1 << 16


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
        unreachable: str = UNREACHABLE,
    ) -> None:
        self.address, self._absent, self._denied = address, absent, denied
        self._challenged = challenged
        self._client = Client(
            login=lambda url: authorization() if host_of(url) == host_of(address) else "",
            user_agent=user_agent,
            hint=unreachable,
        )

    def meter(self) -> Meter:
        """The limits of a list that takes several requests."""
        return self._client.meter(self.address)

    @contextlib.contextmanager
    def request(
        self,
        what: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "GET",
        body: bytes | IO[bytes] | None = None,
        meter: Meter | None = None,
    ) -> Iterator[Response]:
        """An HTTP response, whose body is not read yet.

        Args:
            what: what errors name: a kernel, or an owner.
        """

        def send() -> contextlib.AbstractContextManager[Response]:
            return self._client.request(url, headers, method=method, body=body, meter=meter)

        try:
            with contextlib.ExitStack() as stack:
                try:
                    response = stack.enter_context(send())
                except StatusError as error:
                    # Another host, to which a redirect led, would get the password for this one.
                    asks = error.status == _UNAUTHORIZED
                    asks = asks and host_of(error.url) == host_of(self.address)
                    if not (asks and self._challenged(error.headers)):
                        raise
                    response = stack.enter_context(send())
                yield response
        except StatusError as error:
            raise self.refused(what, error.status, error.headers, error.reason) from None

    def document(
        self,
        what: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        meter: Meter | None = None,
    ) -> bytes:
        """The body of a small answer."""
        with self.request(what, url, headers, meter=meter) as response:
            return body_of(response)

    def pages(self, what: str, url: str) -> Iterator[bytes]:
        """The bodies of a list that comes in pages."""
        meter = self._client.meter(url)
        while url:
            with self.request(what, url, meter=meter) as response:
                data, link = body_of(response), _NEXT.search(response.headers.get("Link", ""))
            meter.count(_PAGE)  # a server could send empty pages without end
            yield data
            url = following(url, link[1]) if link else ""

    def stream(self, what: str, url: str, start: int, stop: int) -> Generator[bytes, None, None]:
        """The bytes of a file from ``start`` to ``stop``, as they arrive."""
        # Caches between here and the server keep whole files alone.
        headers = {"Range": f"bytes={start}-{stop - 1}"} if start else {}
        meter = self._client.meter(url, is_file=True)
        with self.request(what, url, headers, meter=meter) as response:
            # A server without ranges sends the whole file.
            position = start if response.status == _PARTIAL else 0
            for chunk in response.chunks():
                yield chunk[max(0, start - position) : stop - position]
                position += len(chunk)
                if position >= stop:
                    return

    def refused(self, what: str, status: int, headers: Any, reason: str) -> KernforgeError:
        """The error for an HTTP status of the server, or of a proxy before it."""
        error = status_error(self.address, status, headers, reason)
        if isinstance(error, BusyError):
            return error
        if status == _CHANGED:
            return MovedError(f"another process published {what} at once", hint="publish again")
        detail = f"HTTP {status}, {one_line(headers.get('X-Error-Message') or reason)}"
        # A hub answers 401 to a user who may not see a kernel.
        if status == _NOT_FOUND or headers.get("X-Error-Code") == "RepoNotFound":
            message = f"{self.address} has no {what}: {detail}"
            return NotPublishedError(message, hint=self._absent)
        hint = {_PROXY_LOGIN: UNREACHABLE, _PORTAL: SIGN_IN_HINT}.get(status, self._denied)
        return RegistryError(f"{self.address} refuses {what}: {detail}", hint=hint)


def check_address(text: str) -> str:
    """The address of a server, without a slash at its end."""
    if not _ADDRESS.fullmatch(text):
        raise RegistryError(
            f"{text!r} is not the address of a registry",
            hint="write it like https://host/path, without credentials: a hub's token is in "
            "HF_TOKEN, the login for another server in ~/.netrc, or of oci:// in docker's files",
        )
    return text.rstrip("/")


def body_of(response: Response) -> bytes:
    """The body of a small answer; those of registries are JSON.

    Raises:
        RegistryError: a network or a server asks for a login with a web page.
    """
    data = response.read()
    if data[:100].lstrip().startswith(b"<"):
        raise RegistryError(
            f"the answer of {response.url} is not that of a registry: {SIGN_IN}", hint=SIGN_IN_HINT
        )
    return data


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
