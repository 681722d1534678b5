# SPDX-License-Identifier: Apache-2.0
"""Ask a Hugging Face hub, by ``huggingface_hub``: references, listings, bytes.

Everything that a hub or the way to it can do wrong becomes one of our errors here. What may pass
(a rate limit, a server error, a broken connection) is tried again; a file that broke off is
continued where it stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import ModuleType

    from huggingface_hub import HfApi

    from kernforge.registry.hub_endpoint import HubPlace

T = TypeVar("T")

_ATTEMPTS = 5
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 60.0
_CHUNK = 1 << 18
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CHANGED, _TOO_MANY, _SERVER = 401, 403, 404, 412, 429, 500
_PARTIAL = 206
_LOG_IN = "it does not exist, or it is private: set HF_TOKEN, or run hf auth login"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file in a listing.

    Attributes:
        size: bytes.
        blob: what a cache calls its content: hex SHA-256 of a large file, git's hex SHA-1 of any
            other. Either is the hub's promise of what will come.
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
    """What a registry asks one hub; nothing is kept.

    Args:
        place: the hub.
        wait: sleeps for that many seconds.
    """

    def __init__(self, place: HubPlace, wait: Callable[[float], None] | None = None) -> None:
        self.place = place
        self._wait = wait or time.sleep
        self._token = None if place.own_token else False

    @property
    def api(self) -> HfApi:
        """The hub's own client, for this hub."""
        api: HfApi = library().HfApi(
            endpoint=self.place.endpoint,
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
        found = self.call(repo_id, lambda: api.list_repo_refs(repo_id, repo_type="kernel"))
        return {ref.name: ref.target_commit for ref in (*found.branches, *found.tags)}

    def listing(self, repo_id: str, revision: str) -> dict[str, Entry] | None:
        """All files of a commit or branch by path; None when there is no such one."""
        api = self.api

        def ask() -> dict[str, Entry] | None:
            from huggingface_hub.errors import RevisionNotFoundError  # noqa: PLC0415 - see library

            try:
                tree = list(
                    api.list_repo_tree(
                        repo_id, repo_type="kernel", revision=revision, recursive=True
                    )
                )
            except RevisionNotFoundError:
                return None
            return {item.path: _entry(item) for item in tree if hasattr(item, "blob_id")}

        found = self.call(repo_id, ask)
        for path, entry in (found or {}).items():
            check_path(repo_id, path, entry)
        return found

    def trusts(self, owner: str) -> bool:
        """Whether the hub marks an organisation as a trusted publisher of kernels."""
        api = self.api

        def ask() -> bool:
            from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415 - see library

            try:
                overview = api.get_organization_overview(owner)
            except HfHubHTTPError as error:
                if error.response.status_code == _NOT_FOUND:
                    return False  # a user, or nobody
                raise
            return bool(getattr(overview, "trustedKernelPublisher", False))

        return self.call(owner, ask)

    def download(
        self,
        repo_id: str,
        commit: str,
        path: str,
        entry: Entry,
        *,
        target: Path,
        advance: Callable[[int], None],
    ) -> None:
        """Bring one file, and hold it against its listing.

        Args:
            repo_id: ``owner/name``.
            commit: whose file it is.
            path: in the commit.
            entry: of the listing.
            target: where to write it; a name that nobody else knows.
            advance: told the number of bytes as they come; negative when they were for nothing.

        Raises:
            IntegrityError: the hub sent other bytes than it listed, twice.
            NetworkError: the file broke off again and again.
        """
        url = library().hf_hub_url(
            repo_id, path, repo_type="kernel", revision=commit, endpoint=self.place.endpoint
        )
        for last in (False, True):
            self._bring(repo_id, url, entry.size, target, advance)
            if blob_name(target, entry) == entry.blob:
                return
            files.remove_tree(target)
            if not last:
                advance(-entry.size)
        raise IntegrityError(
            f"{path} of {repo_id} at {commit} is not what {self.place.endpoint} lists",
            hint="a proxy or the hub changes files on the way; nothing of it was kept",
        )

    def _bring(
        self, repo_id: str, url: str, size: int, target: Path, advance: Callable[[int], None]
    ) -> None:
        """Read a file whole, going on where it broke off."""
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
                    f"{url} broke off after {have} of {size} bytes",
                    hint="check the network, and try again: what came is not kept",
                )

        self.call(repo_id, more)

    @contextlib.contextmanager
    def _open(self, url: str, start: int) -> Iterator[tuple[bool, Iterator[bytes]]]:
        """A file's bytes from ``start`` on; says whether the server did begin there."""
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
        """Ask, again if that may help, and turn what goes wrong into our errors.

        Args:
            what: the kernel or owner that it is about.
            ask: asks, with nothing half-done when it is asked again.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return ask()
            except Exception as error:
                cause = _cause(error)
                mapped = self._mapped(what, cause)
                if mapped is None:
                    raise
                if attempt == _ATTEMPTS or not isinstance(mapped, NetworkError):
                    raise mapped from error
                pause = _asked_to_wait(cause)
            self._wait(min(_LONGEST_WAIT_S, max(pause, _FIRST_WAIT_S * 2**attempt)))
        raise AssertionError("the last attempt returns or raises")

    def _mapped(self, what: str, error: Exception) -> KernforgeError | None:
        """Our error for one of theirs; None for one that is a mistake of ours."""
        from huggingface_hub import errors  # noqa: PLC0415 - see library

        hub = self.place.endpoint
        if isinstance(error, KernforgeError):
            return error
        if isinstance(error, errors.OfflineModeIsEnabled):
            return RegistryError(
                f"{hub} may not be asked: HF_HUB_OFFLINE was set when this process began",
                hint="unset it, and begin again",
            )
        if isinstance(error, errors.GatedRepoError):
            return RegistryError(
                f"{what} is gated by its owner at {hub}",
                hint=f"accept its conditions at {hub}/kernels/{what}, then set HF_TOKEN",
            )
        if isinstance(error, errors.RepositoryNotFoundError):
            return NotPublishedError(f"{hub} shows no kernel {what!r}", hint=_LOG_IN)
        if isinstance(error, errors.HfHubHTTPError):
            return self._refused(what, error)
        if isinstance(error, errors.HFValidationError):
            return UsageError(str(error), hint="write a repo id like owner/name")
        if isinstance(error, ValueError) and "repo type" in str(error):
            return UsageError(
                "this huggingface_hub is too old for kernels: " + _said(error),
                hint="pip install --upgrade huggingface_hub",
            )
        # The HTTP library under huggingface_hub changes its name between releases; the base of
        # the hub's own error is the base of that library's errors.
        if isinstance(error, errors.HfHubHTTPError.__bases__[0]):
            return NetworkError(
                f"{hub} cannot be reached: {_said(error)}",
                hint="check the network and HF_ENDPOINT; HF_HUB_OFFLINE=1 loads what the cache has",
            )
        return None

    def _refused(self, what: str, error: Any) -> KernforgeError:
        hub, status = self.place.endpoint, error.response.status_code
        said = error.server_message or _said(error)
        if status == _UNAUTHORIZED:
            return RegistryError(
                f"{hub} wants to know who asks for {what}: {said}",
                hint="set HF_TOKEN to a token that it accepts, or run hf auth login",
            )
        if status == _FORBIDDEN:
            return RegistryError(
                f"{hub} does not allow this for {what}: {said}",
                hint="the token needs write access there; publishing kernels may have to be "
                "granted to its owner by the hub first",
            )
        if status == _CHANGED:
            return MovedError(
                f"somebody else published {what} at the same time", hint="publish again"
            )
        if status == _TOO_MANY:
            return NetworkError(
                f"{hub} has had too many requests from here", hint="wait, or set HF_TOKEN"
            )
        if status >= _SERVER:
            return NetworkError(f"{hub} is out of order: HTTP {status}", hint="try again later")
        return RegistryError(
            f"{hub} refuses a request for {what}: HTTP {status}, {said}",
            hint="if the request was right, a newer kernforge or huggingface_hub may be needed",
        )


def check_path(repo_id: str, path: str, entry: Entry) -> None:
    """Refuse a listing that names a place outside of a commit, or content by no hash.

    Raises:
        RegistryError: it does.
    """
    strange = any(part in {"", ".", ".."} for part in path.split("/")) or not path.isprintable()
    if strange or "\\" in path or not COMMIT.fullmatch(entry.blob):
        raise RegistryError(
            f"{repo_id} lists {path!r} with content {entry.blob!r}, which cannot be",
            hint="tell who runs the hub",
        )


def blob_name(file: Path, entry: Entry) -> str:
    """What a cache would call a file's content, by the kind of name that its listing has."""
    return files.sha256_file(file) if SHA256.fullmatch(entry.blob) else git_blob(file)


def git_blob(content: Path | bytes) -> str:
    """Git's hex SHA-1 of a file: of ``blob``, a space, the size, a zero byte, the content."""
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    found = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    if isinstance(content, bytes):
        found.update(content)
        return found.hexdigest()
    with content.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            found.update(chunk)
    return found.hexdigest()


def _entry(item: Any) -> Entry:
    """One line of a listing."""
    if item.lfs is not None:
        return Entry(size=item.lfs.size, blob=item.lfs.sha256)
    return Entry(size=item.size, blob=item.blob_id)


def _cause(error: Exception) -> Exception:
    """What the hub's client wraps in an error of no kind when one of several uploads ends."""
    inner = error.__cause__
    return inner if type(error) is RuntimeError and isinstance(inner, Exception) else error


def _asked_to_wait(error: Exception) -> float:
    """Seconds that the server asks to wait; 0 when it does not say."""
    response = getattr(error, "response", None)
    headers: Mapping[str, str] = {} if response is None else response.headers
    text = headers.get("Retry-After", "")
    return float(text) if text.isdigit() else 0.0


def _said(error: Exception) -> str:
    """What an error says, in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__


@contextlib.contextmanager
def progress_bar(what: str, size: int) -> Iterator[Callable[[int], None]]:
    """The hub's own bar for bytes; ``HF_HUB_DISABLE_PROGRESS_BARS`` switches it off."""
    library()
    from huggingface_hub.utils import tqdm  # noqa: PLC0415 - see library

    with tqdm(total=size, unit="B", unit_scale=True, desc=what) as bar:
        yield lambda count: bar.update(count) and None
