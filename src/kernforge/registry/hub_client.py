# SPDX-License-Identifier: Apache-2.0
"""Requests to a Hugging Face hub, by ``huggingface_hub``: references, listings, files.

Every failure of a hub or of the network becomes one of our errors here. What may be temporary (a
rate limit, a server error, a broken connection) is tried again; a file that was interrupted is
continued where it stopped.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
import time
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from kernforge import budgets, documents
from kernforge._version import __version__
from kernforge.errors import (
    IntegrityError,
    KernforgeError,
    MovedError,
    NetworkError,
    NotPublishedError,
    RegistryError,
    UsageError,
)
from kernforge.registry import hub_endpoint
from kernforge.registry.names import COMMIT, SHA256
from kernforge.system import extras, files
from kernforge.system.digest import git_blob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path
    from types import ModuleType

    from huggingface_hub import HfApi

    from kernforge.registry.hub_endpoint import HubEndpoint

T = TypeVar("T")

log = logging.getLogger("kernforge")

_ATTEMPTS = 5
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 60.0
_WORTH_A_LINE_S = 2.0
_ATTEMPTS_TO_CONNECT = 2
_CONNECT_S, _SILENCE_S = 5.0, 30.0
_ERROR_BYTES = 1 << 20
_ERROR_TEXT = 300
_OF_BODY = {b"content-encoding", b"content-length", b"transfer-encoding"}
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CHANGED, _TOO_MANY, _SERVER = 401, 403, 404, 412, 429, 500
_PARTIAL, _PROXY_LOGIN = 206, 407
_CLIENT = {"library_name": "kernforge", "library_version": __version__}
_LOG_IN = "it does not exist, or it is private: set HF_TOKEN, or run hf auth login"


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFile:
    """A file in a listing.

    Attributes:
        size: bytes.
        blob: the name of its content in a cache: hex SHA-256 of a large file, git's hex SHA-1 of
            any other. The bytes that arrive must have this hash.
    """

    size: int
    blob: str


def library() -> ModuleType:
    """``huggingface_hub``.

    Raises:
        UsageError: it is not installed, or Python has no TLS, which it imports.
    """
    extras.require_tls("a Hugging Face hub")
    try:
        import huggingface_hub  # noqa: PLC0415 - an extra, and slow
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "huggingface_hub":
            raise
        raise UsageError(
            "a Hugging Face hub needs huggingface_hub, which is not installed",
            hint="pip install 'kernforge[hub]'",
        ) from None
    module: ModuleType = huggingface_hub
    return module


def user_agent(said: str) -> str:
    """The header ``User-Agent`` of every request to a hub.

    Args:
        said: what is told of this process; empty for nothing.
    """
    library()
    from huggingface_hub.utils import build_hf_headers  # noqa: PLC0415 - see library

    headers: dict[str, str] = build_hf_headers(token=False, user_agent=said or None, **_CLIENT)
    return headers["user-agent"]


class HubClient:
    """Requests to one hub; no answer is kept."""

    def __init__(self, endpoint: HubEndpoint, wait: Callable[[float], None] | None = None) -> None:
        self.endpoint = endpoint
        self._wait = wait
        self._token = None if endpoint.own_token else False
        self._said_until = 0.0

    @property
    def api(self) -> HfApi:
        """The hub's own client, for this hub."""
        api: HfApi = library().HfApi(
            endpoint=self.endpoint.url, token=self._token, user_agent=self._told(), **_CLIENT
        )
        return api

    def _told(self) -> str | None:
        """What the header ``User-Agent`` says beyond the versions of kernforge and its library."""
        return (hub_endpoint.TOLD.get() or None) if self.endpoint.tells else None

    def refs(self, repo_id: str) -> dict[str, str]:
        """Branches and tags of a kernel with their commits; a tag hides a branch of its name.

        Raises:
            NotPublishedError: there is no such kernel, or it is not shown to this user.
        """
        url = f"{self.endpoint.url}/api/kernels/{_valid(repo_id)}/refs"
        return self.call(repo_id, lambda: read_refs(repo_id, self._answer(url)[0]))

    def listing(self, repo_id: str, revision: str) -> dict[str, HubFile] | None:
        """All files of a commit or branch by path; None when there is no such one."""
        library()
        first = (
            f"{self.endpoint.url}/api/kernels/{_valid(repo_id)}/tree/{quote(revision, safe='')}"
            "?recursive=true&expand=false"
        )

        def ask() -> dict[str, HubFile] | None:
            from huggingface_hub.errors import RevisionNotFoundError  # noqa: PLC0415 - see library

            found: dict[str, HubFile] = {}
            page: str | None = first
            try:
                while page:
                    document, page = self._answer(page)
                    found |= read_tree(repo_id, document)
                    if len(found) > budgets.current().members:
                        raise RegistryError(
                            f"{repo_id} lists more than {budgets.current().members:,} files",
                            hint="report it to whoever runs the hub; KERNFORGE_BUDGETS=members=NUMBER "
                            "allows more",
                        )
            except RevisionNotFoundError:
                return None
            return found

        return self.call(repo_id, ask)

    def search(self, text: str, limit: int) -> tuple[str, ...]:
        """The repo ids of the kernels that the hub finds for a text."""
        url = f"{self.endpoint.url}/api/kernels?{urlencode({'search': text, 'limit': limit})}"
        return self.call(f"search {text!r}", lambda: read_found(self._answer(url)[0]))

    def trusts(self, owner: str) -> bool:
        """Whether the hub marks an organisation as a trusted publisher of kernels."""
        url = f"{self.endpoint.url}/api/organizations/{quote(owner, safe='')}/overview"

        def ask() -> bool:
            from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415 - see library

            try:
                overview = self._answer(url)[0]
            except HfHubHTTPError as error:
                if error.response.status_code == _NOT_FOUND:
                    return False  # a user, or an unknown name
                raise
            return isinstance(overview, dict) and overview.get("trustedKernelPublisher") is True

        return self.call(owner, ask)

    def download(
        self,
        repo_id: str,
        commit: str,
        path: str,
        file: HubFile,
        *,
        target: Path,
        advance: Callable[[int], None],
        ended: threading.Event | None = None,
    ) -> None:
        """Download one file, and compare it with its listing.

        Args:
            file: the file's size and hash in the listing.
            target: where to write it; a name that no other process uses. What an interrupted
                download left there is continued.
            advance: called with the number of bytes as they arrive; negative when they are
                discarded.
            ended: set by another thread to end the download soon, with a CancelledError. What
                arrived stays in the target.

        Raises:
            IntegrityError: the hub sent other bytes than it listed, twice.
            NetworkError: the download was interrupted at every attempt.
        """
        ended = ended or threading.Event()
        url = library().hf_hub_url(
            repo_id, path, repo_type="kernel", revision=commit, endpoint=self.endpoint.url
        )
        for last in (False, True):
            self._download(repo_id, url, file.size, target, advance=advance, ended=ended)
            if blob_name(target, file) == file.blob:
                return
            files.remove_tree(target)
            if not last:
                advance(-file.size)
        raise IntegrityError(
            f"{path} of {repo_id} at {commit} is not what {self.endpoint.url} lists",
            hint="a proxy or the hub changes files; nothing of it was kept",
        )

    def _download(
        self,
        repo_id: str,
        url: str,
        size: int,
        target: Path,
        *,
        advance: Callable[[int], None],
        ended: threading.Event,
    ) -> None:
        """Read a whole file, continuing where a connection was interrupted."""
        have = target.stat().st_size if target.is_file() else 0
        if not 0 < have <= size:
            files.write_new(target, b"")
        else:
            advance(have)

        def more() -> None:
            have = target.stat().st_size
            if have < size:
                _refuse_ended(ended)
                with self._open(url, have) as (ranged, arriving):
                    if have and not ranged:
                        advance(-have)
                    limit = size - have if ranged else size
                    chunks = budgets.bounded(_until(ended, arriving), url, limit)
                    files.write_stream(target, chunks, append=ranged, advance=advance)
            have = target.stat().st_size
            if have < size:
                raise NetworkError(
                    f"{url} was interrupted after {have} of {size} bytes",
                    hint="check the network, and try again: it goes on where it stopped",
                )

        self.call(repo_id, more, ended.wait)

    @contextlib.contextmanager
    def _open(self, url: str, start: int) -> Iterator[tuple[bool, Iterator[bytes]]]:
        """Whether the server sends a file from ``start`` on, and the bytes that it sends."""
        # A range of a compressed body would mean nothing.
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        with self._request(url, headers) as response:
            # As they arrive: chunks of a size would hide a server that sends a byte a second.
            yield response.status_code == _PARTIAL, response.iter_bytes()

    def _answer(self, url: str) -> tuple[Any, str | None]:
        """The JSON document at an address of the hub, and the address of its next page.

        Raises:
            RegistryError: it is not JSON, or too large, or leads to another host.
        """
        library()
        with self._request(url, {}) as response:
            limit = budgets.current().document
            data = b"".join(budgets.bounded(response.iter_bytes(), url, limit))
            following = response.links.get("next", {}).get("url")
        try:
            document = documents.parse_json(data)
        except ValueError as error:
            raise wrong_answer(f"{url} is not JSON: {_one_line(error)}") from None
        here, there = urlsplit(self.endpoint.url), urlsplit(following or self.endpoint.url)
        if (here.scheme, here.netloc) != (there.scheme, there.netloc):
            # The token would go there too.
            raise wrong_answer(f"{url} names a next page at {there.netloc}")
        return document, following

    @contextlib.contextmanager
    def _request(self, url: str, headers: dict[str, str]) -> Iterator[Any]:
        """An answer whose body is still to be read; its status is a good one."""
        from huggingface_hub.utils import (  # noqa: PLC0415 - see library
            build_hf_headers,
            get_session,
            hf_raise_for_status,
        )

        common = build_hf_headers(token=self._token, user_agent=self._told(), **_CLIENT)
        session = get_session()
        with contextlib.ExitStack() as stack:
            try:
                response = stack.enter_context(
                    session.stream(
                        "GET",
                        url,
                        headers={**common, **headers},
                        follow_redirects=True,
                        timeout=(_CONNECT_S, _SILENCE_S, _SILENCE_S, _SILENCE_S),
                    )
                )
            except UnicodeError as error:
                # A cookie of an earlier answer cannot be sent back; no later request could be made.
                session.cookies.clear()
                raise NetworkError(
                    f"{url} cannot be asked: a cookie or a redirect of that host is not in ASCII: "
                    f"{_one_line(error)}",
                    hint="try again; report it to whoever runs the hub, or the proxy before it",
                ) from error
            if response.is_error:
                # The hub's client reads the message of an error from its body.
                body = b"".join(budgets.bounded(response.iter_bytes(), url, _ERROR_BYTES))
                # As bytes: a header may be text that is not in ASCII, as the name of a place.
                kept = [(k, v) for k, v in response.headers.raw if k.lower() not in _OF_BODY]
                response = type(response)(
                    response.status_code,
                    headers=kept,
                    content=readable_error(body, response.headers.get("Content-Type", "")),
                    request=response.request,
                )
            hf_raise_for_status(response)
            yield response

    def call(
        self, what: str, ask: Callable[[], T], wait: Callable[[float], object] = time.sleep
    ) -> T:
        """Make a request, again if that may help, and convert its errors into ours.

        Args:
            what: the kernel or owner that errors name.
            ask: makes the request; it can be called again after an error.
            wait: waits for some seconds, where the client was not given another way.
        """
        _check_session()
        self._check_token()
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return ask()
            except Exception as error:
                cause = _cause(error)
                converted = self._convert_error(what, cause)
                if converted is None:
                    raise
                lasting = isinstance(converted, budgets.StreamError) or _is_lasting(cause)
                # Without a network every attempt ends alike, some of them after seconds.
                last = _ATTEMPTS_TO_CONNECT if _is_connecting(cause) else _ATTEMPTS
                if lasting or attempt >= last or not isinstance(converted, NetworkError):
                    raise converted from error
                pause = min(_LONGEST_WAIT_S, max(_retry_after_s(cause), _FIRST_WAIT_S * 2**attempt))
                self._say(f"{converted.message}: attempt {attempt + 1} of {last}", pause)
            (self._wait or wait)(pause)
        raise AssertionError("the last attempt returns or raises")

    def _check_token(self) -> None:
        """Refuse a token that no request can carry, whose text the HTTP library would print."""
        from huggingface_hub.utils import build_hf_headers  # noqa: PLC0415 - see library

        sent = build_hf_headers(token=self._token).get("authorization", "")
        if not (sent.isascii() and sent.isprintable()):
            raise UsageError(
                "the token for the hub has a character that cannot be sent",
                hint="copy it again into HF_TOKEN, or run hf auth login",
            )

    def _say(self, what: str, pause: float) -> None:
        """Say why nothing happens for a while; once, where many files wait for the same."""
        now = time.monotonic()
        if pause >= _WORTH_A_LINE_S and now >= self._said_until:
            self._said_until = now + pause
            log.warning("%s in %.0f s", what, pause)

    def _convert_error(self, what: str, error: Exception) -> KernforgeError | None:
        """Our error for one of the hub's client; None for an unexpected one."""
        if isinstance(error, KernforgeError):
            return error
        from huggingface_hub import errors  # noqa: PLC0415 - see library

        hub = self.endpoint.url
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
            return self._http_error(what, error)
        if isinstance(error, errors.HFValidationError):
            return UsageError(str(error), hint="write a repo id like owner/name")
        if isinstance(error, ValueError) and "repo type" in str(error):
            return UsageError(
                "this huggingface_hub is too old for kernels: " + _one_line(error),
                hint="pip install --upgrade huggingface_hub",
            )
        # The HTTP library under huggingface_hub changes its name between releases; the base of
        # the hub's own error is the base of that library's errors. Uploads use another one.
        if isinstance(error, (errors.HfHubHTTPError.__bases__[0], ConnectionError)):
            return self._unreachable(error)
        return None

    def _unreachable(self, error: Exception) -> NetworkError:
        hub = where = self.endpoint.url
        hint = "check the network and HF_ENDPOINT; HF_HUB_OFFLINE=1 loads what the cache has"
        if _is_lasting(error):
            hint = (
                "the certificate of the hub, or of a proxy before it, is not trusted here: name "
                "the file of its authority in SSL_CERT_FILE"
            )
        elif proxy := _proxy(hub):
            where = f"{hub} through the proxy {proxy}"
            hint = f"check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY; {hint}"
        return NetworkError(f"{where} cannot be reached: {_one_line(error)}", hint=hint)

    def _http_error(self, what: str, error: Any) -> KernforgeError:
        hub, status = self.endpoint.url, error.response.status_code
        request = error.response.request
        message = _one_line(error.server_message or f"HTTP {status} for {request.url}")
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
            return NetworkError(
                f"{hub} has an internal error: HTTP {status}", hint="try again later"
            )
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
    return json.dumps({"error": text[:_ERROR_TEXT]}).encode()


def check_path(repo_id: str, path: str, file: HubFile) -> None:
    """Check that a listed path stays within its commit, and that its content is named by a hash."""
    limits = budgets.current()
    strange = any(part in {"", ".", ".."} for part in path.split("/")) or not path.isprintable()
    plain = not strange and "\\" not in path and len(path) <= limits.name
    if not plain or not COMMIT.fullmatch(file.blob) or not 0 <= file.size <= limits.file:
        raise RegistryError(
            f"{repo_id} lists {path[:200]!r} of {file.size} bytes with content {file.blob!r}, "
            "which is not valid",
            hint="report it to whoever runs the hub",
        )


def listed_file(size: object, blob: object) -> HubFile:
    """A file of a listing that somebody else wrote."""
    if not isinstance(size, int) or isinstance(size, bool) or not isinstance(blob, str):
        raise wrong_answer(
            f"a listing has a file of {str(size)[:80]} bytes with content {blob!r:.80}"
        )
    return HubFile(size=size, blob=blob)


def blob_name(path: Path, file: HubFile) -> str:
    """The name of a file's content in a cache, by the kind of hash that its listing has."""
    return files.sha256_file(path) if SHA256.fullmatch(file.blob) else git_blob(path)


def read_refs(repo_id: str, document: object) -> dict[str, str]:
    """Branches and tags with their commits, from a hub's answer; a tag hides a branch of its name."""
    found: dict[str, str] = {}
    for kind in ("branches", "tags"):
        for ref in _tables(repo_id, document.get(kind) if isinstance(document, dict) else None):
            name, commit = ref.get("name"), ref.get("targetCommit")
            if (
                not isinstance(name, str)
                or not isinstance(commit, str)
                or not COMMIT.fullmatch(commit)
            ):
                raise wrong_answer(
                    f"the references of {repo_id} have {name!r:.200} at {commit!r:.80}"
                )
            found[name] = commit
    return found


def read_tree(repo_id: str, document: object) -> dict[str, HubFile]:
    """The files of one page of a listing, by path.

    Raises:
        RegistryError: it is not such an answer, or a file is not valid.
    """
    found = {}
    for item in _tables(repo_id, document):
        if item.get("type") != "file":
            continue
        path, large = item.get("path"), item.get("lfs")
        content = large if isinstance(large, dict) else item
        file = listed_file(content.get("size"), content.get("oid"))
        if not isinstance(path, str):
            raise wrong_answer(f"the listing of {repo_id} has a file {path!r:.200}")
        check_path(repo_id, path, file)
        found[path] = file
    return found


def read_found(document: object) -> tuple[str, ...]:
    """The repo ids in the answer to a search."""
    return tuple(str(found.get("id", ""))[:200] for found in _tables("the search", document))


def _tables(what: str, document: object) -> list[dict[str, Any]]:
    if not isinstance(document, list) or not all(isinstance(item, dict) for item in document):
        raise wrong_answer(f"the answer for {what} is not a list of objects")
    return document


def wrong_answer(problem: str) -> RegistryError:
    """The error for an answer that is not in the hub's protocol."""
    return RegistryError(problem, hint="report it to whoever runs the hub, or check HF_ENDPOINT")


def _valid(repo_id: str) -> str:
    """A repo id that can be a part of an address."""
    library()
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415 - see library
    from huggingface_hub.utils import validate_repo_id  # noqa: PLC0415 - see library

    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise UsageError(str(error), hint="write a repo id like owner/name") from None
    return repo_id


def _refuse_ended(ended: threading.Event) -> None:
    if ended.is_set():
        raise CancelledError("the download was ended")


def _until(ended: threading.Event, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks that arrive before a download is ended."""
    for chunk in chunks:
        _refuse_ended(ended)
        yield chunk


def _check_session() -> None:
    """Make the HTTP session of this process, which the environment describes.

    Raises:
        UsageError: it cannot be made as described.
    """
    library()
    from huggingface_hub.utils import get_session  # noqa: PLC0415 - see library

    try:
        get_session()
    except Exception as error:  # each library that has a part in it has its own kinds
        text = _one_line(error)
        more = "pip install socksio, or " if "socksio" in text else ""
        raise UsageError(
            f"no connection can be made as the environment says: {text}",
            hint=f"{more}correct the proxy (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY) or the "
            "certificates (SSL_CERT_FILE, SSL_CERT_DIR) that it names",
        ) from error


def _proxy(url: str) -> str:
    """The proxy that requests to a hub go through, without its password; empty for none."""
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - only for errors

    parts, named = urlsplit(url), getproxies()
    address = named.get(parts.scheme) or named.get("all") or ""
    if not address or proxy_bypass(parts.netloc):
        return ""
    return urlsplit(address if "://" in address else f"//{address}").netloc.rpartition("@")[2]


def _is_connecting(error: Exception) -> bool:
    """Whether there was no connection at all; the library's name changes between releases."""
    return type(error).__name__ in {"ConnectError", "ConnectTimeout", "ProxyError"}


def _is_lasting(error: Exception) -> bool:
    """Whether another attempt fails in the same way: the certificate is not trusted."""
    return _is_connecting(error) and "CERTIFICATE" in str(error).upper()


def _cause(error: Exception) -> Exception:
    """The error that the hub's client wraps in a RuntimeError when one of several uploads fails."""
    inner = error.__cause__
    return inner if type(error) is RuntimeError and isinstance(inner, Exception) else error


def _retry_after_s(error: Exception) -> float:
    """Seconds after which the server allows the next request; 0 when it does not say."""
    response = getattr(error, "response", None)
    headers: Mapping[str, str] = {} if response is None else response.headers
    text = headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else 0.0


def _one_line(error: Exception | str) -> str:
    """The text of an error in one line of at most 300 characters, which a terminal only shows."""
    line = " ".join(str(error).split())[:_ERROR_TEXT]
    return "".join(c if c.isprintable() else "\ufffd" for c in line) or type(error).__name__


@contextlib.contextmanager
def progress_bar(what: str, size: int) -> Iterator[Callable[[int], None]]:
    """The hub's own progress bar, which counts bytes; nothing where stderr is not a terminal.

    ``HF_HUB_DISABLE_PROGRESS_BARS`` switches it off.
    """
    if not size or not sys.stderr.isatty():
        yield lambda _count: None
        return
    library()
    from huggingface_hub.utils import tqdm  # noqa: PLC0415 - see library

    with tqdm(total=size, unit="B", unit_scale=True, desc=what) as bar:
        yield lambda count: bar.update(count) and None
