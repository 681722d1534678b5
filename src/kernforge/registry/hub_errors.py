# SPDX-License-Identifier: Apache-2.0
"""What a Hugging Face hub, a proxy or the network refuses, as our errors with hints.

``huggingface_hub`` raises its own errors and those of its HTTP library; ``hub_client`` hands them
here, and asks whether another attempt may help.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kernforge import documents
from kernforge.errors import (
    KernforgeError,
    MovedError,
    NetworkError,
    NotPublishedError,
    RegistryError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEXT = 300
_UNAUTHORIZED, _FORBIDDEN, _PROXY_LOGIN, _CHANGED, _TOO_MANY, _SERVER = 401, 403, 407, 412, 429, 500
_LOG_IN = "it does not exist, or it is private: set HF_TOKEN, or run hf auth login"


def convert(hub: str, what: str, error: Exception) -> KernforgeError | None:
    """Our error for one of the hub's client; None for an unexpected one.

    Args:
        hub: its address.
        what: the kernel or owner that the error names.
    """
    if isinstance(error, KernforgeError):
        return error
    from huggingface_hub import errors  # noqa: PLC0415 - see library

    if isinstance(error, errors.OfflineModeIsEnabled):
        return RegistryError(
            f"{hub} is not asked: HF_HUB_OFFLINE was set when this process started",
            hint="unset it, and start the process again",
        )
    if isinstance(error, errors.GatedRepoError):
        return RegistryError(
            f"{what} is gated by its owner at {hub}",
            hint=f"accept its conditions at {hub}/kernels/{what}, then set HF_TOKEN",
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return NotPublishedError(f"{hub} has no kernel {what!r}", hint=_LOG_IN)
    if isinstance(error, errors.HfHubHTTPError):
        return _http_error(hub, what, error)
    if isinstance(error, errors.HFValidationError):
        return UsageError(str(error), hint="write a repo id like owner/name")
    if isinstance(error, ValueError) and "repo type" in str(error):
        return UsageError(
            "this huggingface_hub is too old for kernels: " + one_line(error),
            hint="pip install --upgrade huggingface_hub",
        )
    # The HTTP library under huggingface_hub changes its name between releases; the base of
    # the hub's own error is the base of that library's errors. Uploads use another one.
    if isinstance(error, (errors.HfHubHTTPError.__bases__[0], ConnectionError)):
        return _unreachable(hub, error)
    return None


def _unreachable(hub: str, error: Exception) -> NetworkError:
    where = hub
    hint = "check the network and HF_ENDPOINT; HF_HUB_OFFLINE=1 loads what the cache has"
    if is_lasting(error):
        hint = (
            "the certificate of the hub, or of a proxy before it, is not trusted here: name "
            "the file of its authority in SSL_CERT_FILE"
        )
    elif proxy := _proxy(hub):
        where = f"{hub} through the proxy {proxy}"
        hint = f"check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY; {hint}"
    return NetworkError(f"{where} cannot be reached: {one_line(error)}", hint=hint)


def _http_error(hub: str, what: str, error: Any) -> KernforgeError:
    status = error.response.status_code
    request = error.response.request
    message = one_line(error.server_message or f"HTTP {status} for {request.url}")
    if status == _UNAUTHORIZED:
        return RegistryError(
            f"{hub} requires a token for {what}: {message}",
            hint="set HF_TOKEN to a token that it accepts, or run hf auth login",
        )
    if status == _FORBIDDEN and request.method in {"GET", "HEAD"}:
        return RegistryError(
            f"{hub} does not let you read {what}: {message}",
            hint="ask its owner for access; the token in HF_TOKEN may have to allow it too",
        )
    if status == _FORBIDDEN:
        return RegistryError(
            f"{hub} does not allow this for {what}: {message}",
            hint="the token needs write access there; publishing kernels may have to be "
            "granted to its owner by the hub first",
        )
    if status == _PROXY_LOGIN:
        return RegistryError(
            f"the proxy {_proxy(hub)} before {hub} requires a login: {message}",
            hint="write it into HTTP_PROXY and HTTPS_PROXY: http://USER:PASSWORD@HOST:PORT",
        )
    if status == _CHANGED:
        return MovedError(
            f"another process published {what} at the same time", hint="publish again"
        )
    if status == _TOO_MANY:
        return NetworkError(
            f"{hub} received too many requests from this address", hint="wait, or set HF_TOKEN"
        )
    if status >= _SERVER:
        return NetworkError(f"{hub} has an internal error: HTTP {status}", hint="try again later")
    return RegistryError(
        f"{hub} refuses a request for {what}: HTTP {status}, {message}",
        hint="if the request was right, a newer kernforge or huggingface_hub may be needed",
    )


def readable_error(body: bytes, content_type: str) -> bytes:
    """The body of an error, as the hub's client can read it whoever sent it.

    It takes an object in JSON; anything else than that becomes the text of one, and a page in HTML
    nothing.
    """
    text = body.decode(errors="replace")
    try:
        document = documents.parse_json(text)
    except ValueError:
        document = None
    if isinstance(document, dict):
        listed = document.get("errors") or []
        if isinstance(listed, list) and all(isinstance(each, dict) for each in listed):
            return text.encode()
    if "html" in content_type.lower() or not text.strip():
        return b""
    return json.dumps({"error": text[:_TEXT]}).encode()


def _proxy(url: str) -> str:
    """The proxy that requests to a hub go through, without its password; empty for none."""
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - only for errors

    parts, named = urlsplit(url), getproxies()
    address = named.get(parts.scheme) or named.get("all") or ""
    if not address or proxy_bypass(parts.netloc):
        return ""
    return urlsplit(address if "://" in address else f"//{address}").netloc.rpartition("@")[2]


def is_connecting(error: Exception) -> bool:
    """Whether there was no connection at all; the library's name changes between releases."""
    return type(error).__name__ in {"ConnectError", "ConnectTimeout", "ProxyError"}


def is_lasting(error: Exception) -> bool:
    """Whether another attempt fails in the same way: the certificate is not trusted."""
    return is_connecting(error) and "CERTIFICATE" in str(error).upper()


def cause(error: Exception) -> Exception:
    """The error that the hub's client wraps in a RuntimeError when one of several uploads fails."""
    inner = error.__cause__
    return inner if type(error) is RuntimeError and isinstance(inner, Exception) else error


def retry_after_s(error: Exception) -> float:
    """Seconds after which the server allows the next request; 0 when it does not say."""
    response = getattr(error, "response", None)
    headers: Mapping[str, str] = {} if response is None else response.headers
    text = headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else 0.0


def one_line(error: Exception | str) -> str:
    """The text of an error in one line of at most 300 characters, which a terminal only shows."""
    line = " ".join(str(error).split())[:_TEXT]
    return "".join(c if c.isprintable() else "\ufffd" for c in line) or type(error).__name__
