# SPDX-License-Identifier: Apache-2.0
"""Requests to a Hugging Face hub, by ``huggingface_hub``: references, listings, files.

Every failure of a hub or of the network becomes one of ours (``hub_errors``). What may be temporary
(a rate limit, a server error, a broken connection) is tried again; a file that was interrupted is
continued where it stopped.
"""

from __future__ import annotations

import contextlib
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
    NetworkError,
    RegistryError,
    UsageError,
)
from kernforge.registry import hub_errors
from kernforge.registry.names import COMMIT, SHA256
from kernforge.system import extras, files
from kernforge.system.digest import git_blob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
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
_OF_BODY = {b"content-encoding", b"content-length", b"transfer-encoding"}
_PARTIAL, _NOT_FOUND = 206, 404
_CLIENT = {"library_name": "kernforge", "library_version": __version__}


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
            endpoint=self.endpoint.url,
            token=self._token,
            user_agent=self.endpoint.user_agent or None,
            **_CLIENT,
        )
        return api

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
                            hint="report it to whoever runs the hub",
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
            raise wrong_answer(f"{url} is not JSON: {hub_errors.one_line(error)}") from None
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

        common = build_hf_headers(
            token=self._token, user_agent=self.endpoint.user_agent or None, **_CLIENT
        )
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
                    f"{hub_errors.one_line(error)}",
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
                    content=hub_errors.readable_error(
                        body, response.headers.get("Content-Type", "")
                    ),
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
                cause = hub_errors.cause(error)
                converted = hub_errors.convert(self.endpoint.url, what, cause)
                if converted is None:
                    raise
                lasting = isinstance(converted, budgets.StreamError) or hub_errors.is_lasting(cause)
                # Without a network every attempt ends alike, some of them after seconds.
                last = _ATTEMPTS_TO_CONNECT if hub_errors.is_connecting(cause) else _ATTEMPTS
                if lasting or attempt >= last or not isinstance(converted, NetworkError):
                    raise converted from error
                pause = min(
                    _LONGEST_WAIT_S,
                    max(hub_errors.retry_after_s(cause), _FIRST_WAIT_S * 2**attempt),
                )
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
    """Commits of branches and tags in a hub's answer; a tag hides the branch of its name."""
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
        text = hub_errors.one_line(error)
        more = "pip install socksio, or " if "socksio" in text else ""
        raise UsageError(
            f"no connection can be made as the environment says: {text}",
            hint=f"{more}correct the proxy (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY) or the "
            "certificates (SSL_CERT_FILE, SSL_CERT_DIR) that it names",
        ) from error


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
