# SPDX-License-Identifier: Apache-2.0
"""What a Hugging Face hub, a proxy or the network refuses, as our errors with hints.

Downloads and publications get errors of two libraries: ``huggingface_hub`` and the HTTP library
under it. This is the one place that knows them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from kernforge import untrusted
from kernforge.errors import (
    KernforgeError,
    MovedError,
    NetworkError,
    NotPublishedError,
    RegistryError,
    UsageError,
)
from kernforge.untrusted import StreamError

_TEXT = 300
_UNAUTHORIZED, _FORBIDDEN, NOT_FOUND, _PROXY_LOGIN = 401, 403, 404, 407
_CHANGED, _TOO_MANY, _SERVER = 412, 429, 500


@dataclass(eq=False)
class StatusError(Exception):
    """An answer of a hub, or of a proxy before it, whose status is an error.

    Attributes:
        code: the hub's own name of the error, such as ``GatedRepo``; empty from others.
        message: what it says about it, in one line.
        wait_s: seconds after which it allows the next request; 0 when it does not say.
    """

    status: int
    method: str
    code: str
    message: str
    wait_s: float

    @classmethod
    def of(cls, response: Any, text: object) -> StatusError:
        """The error in a response of the HTTP library.

        Args:
            response: its status and headers are read.
            text: what its body says; empty for nothing.
        """
        headers, status = response.headers, response.status_code
        wait = headers.get("Retry-After", "")
        said = headers.get("X-Error-Message") or text or f"HTTP {status} for {response.request.url}"
        return cls(
            status=status,
            method=response.request.method,
            code=headers.get("X-Error-Code", ""),
            message=one_line(str(said)),
            wait_s=float(wait) if wait.isdecimal() else 0.0,
        )


def body_text(body: bytes, content_type: str) -> str:
    """What the body of an error says: the hub's JSON, or text; nothing for a page in HTML."""
    text = body.decode(errors="replace")
    try:
        return str(untrusted.parse_json(text)["error"])
    except (ValueError, KeyError, TypeError, IndexError):
        return "" if "html" in content_type.lower() else text[:_TEXT].strip()


def status_error(error: Exception) -> StatusError | None:
    """The status that an error is about; None for another error."""
    if isinstance(error, StatusError):
        return error
    from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415 - see hub_client.library

    if isinstance(error, HfHubHTTPError):
        return StatusError.of(error.response, error.server_message)
    return None


def convert(hub: str, what: str, error: Exception) -> KernforgeError | None:
    """Our error for one of the hub's client; None for an unexpected one.

    Args:
        hub: its address.
        what: the kernel or owner that the error names.
    """
    if isinstance(error, KernforgeError):
        return error
    if refused := status_error(error):
        return _refused(hub, what, refused)
    from huggingface_hub import errors  # noqa: PLC0415 - see hub_client.library

    if isinstance(error, errors.OfflineModeIsEnabled):
        return RegistryError(
            f"{hub} is not asked: HF_HUB_OFFLINE was set when this process started",
            hint="unset it, and start the process again",
        )
    if isinstance(error, errors.HFValidationError):
        return UsageError(str(error), hint="write a repo id like owner/name")
    if isinstance(error, ValueError) and "repo type" in str(error):
        return UsageError(
            "this huggingface_hub is too old for kernels: " + one_line(error),
            hint="pip install --upgrade huggingface_hub",
        )
    # The HTTP library changes its name between releases; the base of the hub's own error is the
    # base of that library's errors. Uploads use another one.
    if isinstance(error, (errors.HfHubHTTPError.__bases__[0], ConnectionError)):
        return _unreachable(hub, error)
    return None


def _refused(hub: str, what: str, refused: StatusError) -> KernforgeError:
    status, message = refused.status, refused.message
    error: type[KernforgeError] = RegistryError
    if refused.code == "GatedRepo":
        text = f"{what} is gated by its owner at {hub}"
        hint = f"accept its conditions at {hub}/kernels/{what}, then set HF_TOKEN"
    elif refused.code == "RepoNotFound":
        error, text = NotPublishedError, f"{hub} has no kernel {what!r}"
        hint = "it does not exist, or it is private: set HF_TOKEN, or run hf auth login"
    elif status == _UNAUTHORIZED:
        text = f"{hub} requires a token for {what}: {message}"
        hint = "set HF_TOKEN to a token that it accepts, or run hf auth login"
    elif status == _FORBIDDEN and refused.method in {"GET", "HEAD"}:
        text = f"{hub} does not let you read {what}: {message}"
        hint = "ask its owner for access; the token in HF_TOKEN may have to allow it too"
    elif status == _FORBIDDEN:
        text = f"{hub} does not allow this for {what}: {message}"
        hint = (
            "the token needs write access there; publishing kernels may have to be granted to its "
            "owner by the hub first"
        )
    elif status == _PROXY_LOGIN:
        text = f"the proxy {_proxy(hub)} before {hub} requires a login: {message}"
        hint = "write it into HTTP_PROXY and HTTPS_PROXY: http://USER:PASSWORD@HOST:PORT"
    elif status == _CHANGED:
        error, text = MovedError, f"another process published {what} at the same time"
        hint = "publish again"
    elif status == _TOO_MANY:
        error, text = NetworkError, f"{hub} received too many requests from this address"
        hint = "wait, or set HF_TOKEN"
    elif status >= _SERVER:
        error, text = NetworkError, f"{hub} has an internal error: HTTP {status}"
        hint = "try again later"
    else:
        text = f"{hub} refuses a request for {what}: HTTP {status}, {message}"
        hint = "if the request was right, a newer kernforge or huggingface_hub may be needed"
    return error(text, hint=hint)


def _unreachable(hub: str, error: Exception) -> NetworkError:
    where = hub
    hint = "check the network and HF_ENDPOINT; HF_HUB_OFFLINE=1 loads what the cache has"
    if _is_about_certificate(error):
        hint = (
            "the certificate of the hub, or of a proxy before it, is not trusted here: name "
            "the file of its authority in SSL_CERT_FILE"
        )
    elif proxy := _proxy(hub):
        where = f"{hub} through the proxy {proxy}"
        hint = f"check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY; {hint}"
    return NetworkError(f"{where} cannot be reached: {one_line(error)}", hint=hint)


def _proxy(url: str) -> str:
    """The proxy that requests to a hub go through, without its password; empty for none."""
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - only for errors

    parts, named = urlsplit(url), getproxies()
    address = named.get(parts.scheme) or named.get("all") or ""
    if not address or proxy_bypass(parts.netloc):
        return ""
    return urlsplit(address if "://" in address else f"//{address}").netloc.rpartition("@")[2]


def cause(error: Exception) -> Exception:
    """The error that the hub's client wraps in a RuntimeError when one of several uploads fails."""
    inner = error.__cause__
    return inner if type(error) is RuntimeError and isinstance(inner, Exception) else error


def useful_attempts(error: Exception, most: int) -> int:
    """How many attempts may help: without a connection each one ends alike, after seconds."""
    if isinstance(error, StreamError) or _is_about_certificate(error):
        return 1
    return 2 if _is_connecting(error) else most


def _is_connecting(error: Exception) -> bool:
    """Whether there was no connection at all; the library's name changes between releases."""
    return type(error).__name__ in {"ConnectError", "ConnectTimeout", "ProxyError"}


def _is_about_certificate(error: Exception) -> bool:
    return _is_connecting(error) and "CERTIFICATE" in str(error).upper()


def one_line(error: Exception | str) -> str:
    """The text of an error in one line of at most 300 characters, which a terminal only shows."""
    line = " ".join(str(error).split())[:_TEXT]
    return "".join(c if c.isprintable() else "\ufffd" for c in line) or type(error).__name__
