# SPDX-License-Identifier: Apache-2.0
"""Requests to a Hugging Face hub, by ``huggingface_hub``: references, listings, files.

Every failure of a hub or of the network becomes one of our errors here. What may be temporary (a
rate limit, a server error, a broken connection) is tried again; a file that was interrupted is
continued where it stopped.
"""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

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
from kernforge.registry.names import COMMIT, SHA256
from kernforge.system import files
from kernforge.system.digest import git_blob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import ModuleType

    from huggingface_hub import HfApi

    from kernforge.registry.hub_endpoint import HubEndpoint

T = TypeVar("T")

_ATTEMPTS = 5
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 60.0
_CHUNK = 1 << 18
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CHANGED, _TOO_MANY, _SERVER = 401, 403, 404, 412, 429, 500
_PARTIAL = 206
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
        UsageError: it is not installed.
    """
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
    """Requests to one hub; no answer is kept.

    Args:
        endpoint: the hub.
        wait: sleeps for that many seconds.
    """

    def __init__(self, endpoint: HubEndpoint, wait: Callable[[float], None] | None = None) -> None:
        self.endpoint = endpoint
        self._wait = wait or time.sleep
        self._token = None if endpoint.own_token else False

    @property
    def api(self) -> HfApi:
        """The hub's own client, for this hub."""
        api: HfApi = library().HfApi(
            endpoint=self.endpoint.url,
            token=self._token,
            library_name="kernforge",
            library_version=__version__,
        )
        return api

    def refs(self, repo_id: str) -> dict[str, str]:
        """Branches and tags of a kernel with their commits; a tag hides a branch of its name.

        Raises:
            NotPublishedError: there is no such kernel, or it is not shown to this user.
        """
        api = self.api
        refs = self.call(repo_id, lambda: api.list_repo_refs(repo_id, repo_type="kernel"))
        return {ref.name: ref.target_commit for ref in (*refs.branches, *refs.tags)}

    def listing(self, repo_id: str, revision: str) -> dict[str, HubFile] | None:
        """All files of a commit or branch by path; None when there is no such one."""
        api = self.api

        def ask() -> dict[str, HubFile] | None:
            from huggingface_hub.errors import RevisionNotFoundError  # noqa: PLC0415 - see library

            try:
                tree = list(
                    api.list_repo_tree(
                        repo_id, repo_type="kernel", revision=revision, recursive=True
                    )
                )
            except RevisionNotFoundError:
                return None
            return {item.path: _listed_file(item) for item in tree if hasattr(item, "blob_id")}

        listing = self.call(repo_id, ask)
        for path, file in (listing or {}).items():
            check_path(repo_id, path, file)
        return listing

    def search(self, text: str, limit: int) -> tuple[str, ...]:
        """The repo ids of the kernels that the hub finds for a text."""
        self.api  # noqa: B018 - an error that names the extra, if it is missing

        def ask() -> tuple[str, ...]:
            from huggingface_hub.utils import (  # noqa: PLC0415 - see library
                build_hf_headers,
                get_session,
                hf_raise_for_status,
            )

            headers = build_hf_headers(
                token=self._token, library_name="kernforge", library_version=__version__
            )
            response = get_session().get(
                f"{self.endpoint.url}/api/kernels",
                params={"search": text, "limit": limit},
                headers=headers,
                timeout=60,
            )
            hf_raise_for_status(response)
            return tuple(str(found["id"]) for found in response.json())

        return self.call(f"search {text!r}", ask)

    def trusts(self, owner: str) -> bool:
        """Whether the hub marks an organisation as a trusted publisher of kernels."""
        api = self.api

        def ask() -> bool:
            from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415 - see library

            try:
                overview = api.get_organization_overview(owner)
            except HfHubHTTPError as error:
                if error.response.status_code == _NOT_FOUND:
                    return False  # a user, or an unknown name
                raise
            return bool(getattr(overview, "trustedKernelPublisher", False))

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
    ) -> None:
        """Download one file, and compare it with its listing.

        Args:
            repo_id: ``owner/name``.
            commit: the commit that has the file.
            path: in the commit.
            file: the file's size and hash in the listing.
            target: where to write it; a name that no other process uses.
            advance: called with the number of bytes as they arrive; negative when they are
                discarded.

        Raises:
            IntegrityError: the hub sent other bytes than it listed, twice.
            NetworkError: the download was interrupted at every attempt.
        """
        url = library().hf_hub_url(
            repo_id, path, repo_type="kernel", revision=commit, endpoint=self.endpoint.url
        )
        for last in (False, True):
            self._download(repo_id, url, file.size, target, advance)
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
        self, repo_id: str, url: str, size: int, target: Path, advance: Callable[[int], None]
    ) -> None:
        """Read a whole file, continuing where a connection was interrupted."""
        files.write_new(target, b"")

        def more() -> None:
            have = target.stat().st_size
            if have < size:
                with self._open(url, have) as (ranged, chunks):
                    if have and not ranged:
                        advance(-have)
                    files.write_stream(target, chunks, append=ranged, advance=advance)
            have = target.stat().st_size
            if have < size:
                raise NetworkError(
                    f"{url} was interrupted after {have} of {size} bytes",
                    hint="check the network, and try again: what arrived is not kept",
                )

        self.call(repo_id, more)

    @contextlib.contextmanager
    def _open(self, url: str, start: int) -> Iterator[tuple[bool, Iterator[bytes]]]:
        """Whether the server sends a file from ``start`` on, and the bytes that it sends."""
        from huggingface_hub.utils import (  # noqa: PLC0415 - see library
            build_hf_headers,
            get_session,
            hf_raise_for_status,
        )

        headers = build_hf_headers(
            token=self._token, library_name="kernforge", library_version=__version__
        )
        # A range of a compressed body would mean nothing.
        headers["Accept-Encoding"] = "identity"
        if start:
            headers["Range"] = f"bytes={start}-"
        with get_session().stream(
            "GET", url, headers=headers, follow_redirects=True, timeout=60
        ) as response:
            hf_raise_for_status(response)
            yield response.status_code == _PARTIAL, response.iter_bytes(_CHUNK)

    def call(self, what: str, ask: Callable[[], T]) -> T:
        """Make a request, again if that may help, and convert its errors into ours.

        Args:
            what: the kernel or owner that errors name.
            ask: makes the request; it can be called again after an error.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return ask()
            except Exception as error:
                cause = _cause(error)
                converted = self._convert_error(what, cause)
                if converted is None:
                    raise
                if attempt == _ATTEMPTS or not isinstance(converted, NetworkError):
                    raise converted from error
                pause = _retry_after_s(cause)
            self._wait(min(_LONGEST_WAIT_S, max(pause, _FIRST_WAIT_S * 2**attempt)))
        raise AssertionError("the last attempt returns or raises")

    def _convert_error(self, what: str, error: Exception) -> KernforgeError | None:
        """Our error for one of the hub's client; None for an unexpected one."""
        from huggingface_hub import errors  # noqa: PLC0415 - see library

        hub = self.endpoint.url
        if isinstance(error, KernforgeError):
            return error
        if isinstance(error, errors.OfflineModeIsEnabled):
            return RegistryError(
                f"{hub} must not be used: HF_HUB_OFFLINE was set when this process started",
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
        # the hub's own error is the base of that library's errors.
        if isinstance(error, errors.HfHubHTTPError.__bases__[0]):
            return NetworkError(
                f"{hub} cannot be reached: {_one_line(error)}",
                hint="check the network and HF_ENDPOINT; HF_HUB_OFFLINE=1 loads what the cache has",
            )
        return None

    def _http_error(self, what: str, error: Any) -> KernforgeError:
        hub, status = self.endpoint.url, error.response.status_code
        message = error.server_message or _one_line(error)
        if status == _UNAUTHORIZED:
            return RegistryError(
                f"{hub} requires a token for {what}: {message}",
                hint="set HF_TOKEN to a token that it accepts, or run hf auth login",
            )
        if status == _FORBIDDEN:
            return RegistryError(
                f"{hub} does not allow this for {what}: {message}",
                hint="the token needs write access there; publishing kernels may have to be "
                "granted to its owner by the hub first",
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


def check_path(repo_id: str, path: str, file: HubFile) -> None:
    """Check that a listed path stays within its commit, and that its content is named by a hash.

    Raises:
        RegistryError: one of the two is wrong.
    """
    strange = any(part in {"", ".", ".."} for part in path.split("/")) or not path.isprintable()
    if strange or "\\" in path or not COMMIT.fullmatch(file.blob):
        raise RegistryError(
            f"{repo_id} lists {path!r} with content {file.blob!r}, which is not valid",
            hint="report it to whoever runs the hub",
        )


def blob_name(path: Path, file: HubFile) -> str:
    """The name of a file's content in a cache, by the kind of hash that its listing has."""
    return files.sha256_file(path) if SHA256.fullmatch(file.blob) else git_blob(path)


def _listed_file(item: Any) -> HubFile:
    """One item of a listing."""
    if item.lfs is not None:
        return HubFile(size=item.lfs.size, blob=item.lfs.sha256)
    return HubFile(size=item.size, blob=item.blob_id)


def _cause(error: Exception) -> Exception:
    """The error that the hub's client wraps in a RuntimeError when one of several uploads fails."""
    inner = error.__cause__
    return inner if type(error) is RuntimeError and isinstance(inner, Exception) else error


def _retry_after_s(error: Exception) -> float:
    """Seconds after which the server allows the next request; 0 when it does not say."""
    response = getattr(error, "response", None)
    headers: Mapping[str, str] = {} if response is None else response.headers
    text = headers.get("Retry-After", "")
    return float(text) if text.isdigit() else 0.0


def _one_line(error: Exception) -> str:
    """The text of an error in one line of at most 300 characters."""
    return " ".join(str(error).split())[:300] or type(error).__name__


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
