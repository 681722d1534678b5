# SPDX-License-Identifier: Apache-2.0
"""Requests to a Hugging Face hub: references, listings, files.

Session, proxies, certificates, tokens and uploads are those of ``huggingface_hub``. Its own
readers are not used, because an answer of a hub is untrusted: they name a file in the cache by the
header ``ETag`` as it comes, so that a hub can write outside of the cache; they send the token to
the next page of a listing at any host; and they wait without limit for an answer, or for as long
as ``Retry-After`` says.

What may be temporary (a rate limit, a server error, a broken connection) is tried again; a file
that was interrupted is continued where it stopped. Every failure becomes one of ours
(``hub_errors``).
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from kernforge import untrusted
from kernforge._version import __version__
from kernforge.errors import (
    KernforgeError,
    NetworkError,
    RegistryError,
    UsageError,
)
from kernforge.registry import hub_errors
from kernforge.registry.base import RemoteFile, valid_file
from kernforge.registry.names import COMMIT, check_repo_id
from kernforge.system import extras, files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import ModuleType

    from huggingface_hub import HfApi

    from kernforge.registry.hub_endpoint import HubEndpoint

T = TypeVar("T")

log = logging.getLogger("kernforge")

_ATTEMPTS = 5
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 60.0
_WORTH_A_LINE_S = 2.0
_CONNECT_S, _SILENCE_S = 5.0, 30.0
_ERROR_BYTES = 1 << 20
_PARTIAL = 206
_CLIENT = {"library_name": "kernforge", "library_version": __version__}
# What reading an answer raises that is not in the hub's protocol.
_WRONG = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


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
    """Requests to one hub, as a ``Transport``; no answer is kept."""

    def __init__(self, endpoint: HubEndpoint, wait: Callable[[float], None] | None = None) -> None:
        self.endpoint = endpoint
        self.address, self.cache = endpoint.url, endpoint.cache
        self.is_offline = endpoint.offline
        self._wait = wait
        self._options: dict[str, Any] = {
            "token": None if endpoint.own_token else False,
            "user_agent": endpoint.user_agent or None,
            **_CLIENT,
        }

    @property
    def api(self) -> HfApi:
        """The hub's own client, for this hub."""
        api: HfApi = library().HfApi(endpoint=self.endpoint.url, **self._options)
        return api

    def refs(self, repo_id: str) -> dict[str, str]:
        """Branches and tags of a kernel with their commits; a tag hides a branch of its name.

        Raises:
            NotPublishedError: there is no such kernel, or it is not shown to this user.
        """
        path = f"kernels/{check_repo_id(repo_id)}/refs"
        return self.call(repo_id, lambda: self._answer(self._address(path), read_refs)[0])

    def files(self, repo_id: str, commit: str) -> dict[str, RemoteFile] | None:
        """All files of a commit or branch by path; None when there is no such one."""
        path = f"kernels/{check_repo_id(repo_id)}/tree/{quote(commit, safe='')}"

        def ask() -> dict[str, RemoteFile] | None:
            found: dict[str, RemoteFile] = {}
            page: str | None = self._address(f"{path}?recursive=true&expand=false")
            try:
                while page:
                    listed, page = self._answer(page, read_tree)
                    found |= listed
                    if len(found) > untrusted.MEMBERS:
                        raise RegistryError(
                            f"{repo_id} lists more than {untrusted.MEMBERS:,} files",
                            hint="report it to whoever runs the hub",
                        )
            except hub_errors.StatusError as error:
                if error.code == "RevisionNotFound":
                    return None
                raise
            return found

        return self.call(repo_id, ask)

    def search(self, text: str, limit: int) -> tuple[str, ...]:
        """The repo ids of the kernels that the hub finds for a text."""
        path = f"kernels?{urlencode({'search': text, 'limit': limit})}"
        return self.call(
            f"search {text!r}", lambda: self._answer(self._address(path), read_found)[0]
        )

    def trusts(self, owner: str) -> bool:
        """Whether the hub marks an organisation as a trusted publisher of kernels."""
        path = f"organizations/{quote(owner, safe='')}/overview"

        def ask() -> bool:
            try:
                return self._answer(self._address(path), read_trust)[0]
            except hub_errors.StatusError as error:
                if error.status == hub_errors.NOT_FOUND:
                    return False  # a user, or an unknown name
                raise

        return self.call(owner, ask)

    def download(
        self,
        repo_id: str,
        commit: str,
        path: str,
        file: RemoteFile,
        *,
        target: Path,
        advance: Callable[[int], None],
        ended: threading.Event,
    ) -> None:
        """Add the bytes of a file that its target lacks; the documentation is ``Transport``'s."""
        url = library().hf_hub_url(
            repo_id, path, repo_type="kernel", revision=commit, endpoint=self.endpoint.url
        )
        self.call(
            repo_id,
            lambda: self._continue(url, file.size, target, advance=advance, ended=ended),
            ended.wait,
        )

    def _continue(
        self,
        url: str,
        size: int,
        target: Path,
        *,
        advance: Callable[[int], None],
        ended: threading.Event,
    ) -> None:
        """Request the bytes of a file that are not in the target yet, and add them."""

        def until_ended(chunks: Iterator[bytes]) -> Iterator[bytes]:
            for chunk in chunks:
                if ended.is_set():
                    raise CancelledError("the download was ended")
                yield chunk

        have = target.stat().st_size
        if have < size:
            # A range of a compressed body would mean nothing.
            headers = {"Accept-Encoding": "identity"}
            if have:
                headers["Range"] = f"bytes={have}-"
            with reading(url), self._request(url, headers) as response:
                ranged = response.status_code == _PARTIAL
                if have and not ranged:
                    advance(-have)
                limit = size - have if ranged else size
                # As they arrive: chunks of a size would hide a server that sends a byte a second.
                chunks = untrusted.bounded(until_ended(response.iter_bytes()), url, limit)
                files.write_stream(target, chunks, append=ranged, advance=advance)
        if (have := target.stat().st_size) < size:
            raise NetworkError(
                f"{url} was interrupted after {have} of {size} bytes",
                hint="check the network, and try again: it goes on where it stopped",
            )

    def _address(self, path: str) -> str:
        return f"{self.endpoint.url}/api/{path}"

    def _answer(self, url: str, read: Callable[[Any], T]) -> tuple[T, str | None]:
        """What is read from the JSON document at an address, and the address of its next page.

        Raises:
            RegistryError: it is not such a document, or is too large, or leads to another host.
        """
        with reading(url):
            with self._request(url, {}) as response:
                limit = untrusted.DOCUMENT
                data = b"".join(untrusted.bounded(response.iter_bytes(), url, limit))
                following = response.links.get("next", {}).get("url")
            here, there = urlsplit(self.endpoint.url), urlsplit(following or self.endpoint.url)
            if (here.scheme, here.netloc) != (there.scheme, there.netloc):
                # The token would go there too.
                raise ValueError(f"it names a next page at {there.netloc}")
            return read(untrusted.parse_json(data)), following

    @contextlib.contextmanager
    def _request(self, url: str, headers: dict[str, str]) -> Iterator[Any]:
        """An answer whose body is still to be read.

        Raises:
            StatusError: its status is an error.
        """
        from huggingface_hub.utils import build_hf_headers, get_session  # noqa: PLC0415 - see library

        with get_session().stream(
            "GET",
            url,
            headers={**build_hf_headers(**self._options), **headers},
            follow_redirects=True,
            timeout=(_CONNECT_S, _SILENCE_S, _SILENCE_S, _SILENCE_S),
        ) as response:
            if response.is_error:
                body = b"".join(untrusted.bounded(response.iter_bytes(), url, _ERROR_BYTES))
                kind = response.headers.get("Content-Type", "")
                raise hub_errors.StatusError.of(response, hub_errors.body_text(body, kind))
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
        self._check_environment()
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return ask()
            except Exception as error:
                cause = hub_errors.cause(error)
                converted = hub_errors.convert(self.endpoint.url, what, cause)
                if converted is None:
                    raise
                last = hub_errors.useful_attempts(cause, _ATTEMPTS)
                if attempt >= last or not isinstance(converted, NetworkError):
                    raise converted from error
                refused = hub_errors.status_error(cause)
                pause = max(refused.wait_s if refused else 0.0, _FIRST_WAIT_S * 2**attempt)
                pause = min(pause, _LONGEST_WAIT_S)
                if pause >= _WORTH_A_LINE_S:
                    log.warning(
                        "%s: attempt %d of %d in %.0f s",
                        *(converted.message, attempt + 1, last, pause),
                    )
            (self._wait or wait)(pause)
        raise AssertionError("the last attempt returns or raises")

    def _check_environment(self) -> None:
        """Refuse variables with which no request can be made.

        Raises:
            UsageError: the HTTP session cannot be made as they say, or no request can carry the
                token, whose text the HTTP library would print.
        """
        library()
        from huggingface_hub.utils import build_hf_headers, get_session  # noqa: PLC0415 - see library

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
        sent = build_hf_headers(**self._options).get("authorization", "")
        if not (sent.isascii() and sent.isprintable()):
            raise UsageError(
                "the token for the hub has a character that cannot be sent",
                hint="copy it again into HF_TOKEN, or run hf auth login",
            )


def read_refs(document: Any) -> dict[str, str]:
    """Branches and tags with their commits, in a hub's answer; read it within ``reading``."""
    found = {}
    for ref in (*document["branches"], *document["tags"]):
        name, commit = ref["name"], ref["targetCommit"]
        if not isinstance(name, str) or not COMMIT.fullmatch(commit):
            raise ValueError(f"the reference {str(name)[:200]!r} names {commit[:80]!r}")
        found[name] = commit
    return found


def read_tree(document: Any) -> dict[str, RemoteFile]:
    """The files of one page of a listing, by path; read it within ``reading``."""
    found = {}
    for item in document:
        if item["type"] == "file":
            content = item.get("lfs") or item
            found[item["path"]] = valid_file(item["path"], content["size"], content["oid"])
    return found


def read_found(document: Any) -> tuple[str, ...]:
    """The repo ids in the answer to a search; read it within ``reading``."""
    return tuple(str(item["id"])[:200] for item in document)


def read_trust(document: Any) -> bool:
    """Whether the answer about an organisation says that it is trusted; within ``reading``."""
    return document.get("trustedKernelPublisher") is True


@contextlib.contextmanager
def reading(url: str) -> Iterator[None]:
    """Turn whatever an answer raises that is not in the hub's protocol into one of our errors.

    Raises:
        RegistryError: it is not.
    """
    try:
        yield
    except KernforgeError:
        raise
    except _WRONG as error:
        raise RegistryError(
            f"the answer of {url} is not a hub's: {hub_errors.one_line(error)}",
            hint="report it to whoever runs the hub, or check HF_ENDPOINT",
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
