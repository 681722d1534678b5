# SPDX-License-Identifier: Apache-2.0
"""A registry on a Hugging Face hub, read through the cache that the hub's own tools use.

A kernel is a repository of type ``kernel``: a branch ``v<major>`` and tags ``vX.Y.Z`` hold
``build/<variant>/<file>``. The variables of the hub's own tools mean what they mean there:
``HF_ENDPOINT``, ``HF_HUB_OFFLINE`` (and its old name ``TRANSFORMERS_OFFLINE``), ``HF_TOKEN``,
``KERNELS_CACHE``, ``HF_HUB_CACHE``, ``HF_HOME`` and ``XDG_CACHE_HOME``.
"""

from __future__ import annotations

import contextlib
import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from kernforge.errors import (
    KernforgeError,
    MovedError,
    NotPublishedError,
    RegistryError,
    UsageError,
)
from kernforge.registry.http import NOT_FOUND, Http, body_of, busy, check_address, one_line, reading
from kernforge.registry.listing import RemoteFile, valid_file
from kernforge.registry.names import COMMIT, check_repo_id
from kernforge.registry.remote import Part, RemoteRegistry, Transport, again
from kernforge.system import untrusted
from kernforge.system.environment import Environment, expanded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

VARIABLES = (
    *("HF_ENDPOINT", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN", "HF_TOKEN_PATH"),
    *("HF_HUB_DISABLE_IMPLICIT_TOKEN", "KERNELS_CACHE", "HF_HUB_CACHE", "HF_HOME"),
    *("XDG_CACHE_HOME", "KERNFORGE_HOME"),
)
"""The variables that configure a hub."""

_DEFAULT = "https://huggingface.co"
_YES = frozenset({"1", "ON", "YES", "TRUE"})
NEXT = re.compile(r'<([^>]*)>\s*;\s*rel="?next"?')
_UNAUTHORIZED, _FORBIDDEN, _PROXY_LOGIN, _CHANGED = 401, 403, 407, 412


@dataclass(frozen=True, slots=True, kw_only=True)
class HubEndpoint:
    """A hub and its cache.

    Attributes:
        url: ``https://host`` without a slash at the end.
        cache: a directory that is laid out as the cache of ``huggingface_hub``.
        token: the user's token, where it is meant for this hub.
        token_file: where ``hf auth login`` writes it.
    """

    url: str
    cache: Path
    offline: bool = False
    token: str | None = None
    token_file: Path | None = None
    user_agent: str = ""


def endpoint(location: str, environment: Environment, user_agent: str = "") -> HubEndpoint:
    """The hub of a registry's URL.

    A hub other than that of ``HF_ENDPOINT`` gets a cache of its own, because a cache does not
    record the hub of its ``v1``, and never receives the user's token.

    Args:
        location: ``hf://``, ``hf+https://host`` or ``hf+http://host:port``.
    """
    usual = check_address(environment.hf_endpoint or _DEFAULT)
    url = usual if location == "hf://" else check_address(location.removeprefix("hf+"))
    variable = environment.variables.get

    def is_set(*names: str) -> bool:
        return any((variable(name) or "").upper() in _YES for name in names)

    offline = is_set("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    if url != usual:
        label = re.sub(r"[^A-Za-z0-9.-]+", "-", url.partition("://")[2])
        cache = environment.home / "hubs" / label
        return HubEndpoint(url=url, cache=cache, offline=offline, user_agent=user_agent)
    above = environment.xdg_cache_home or "~/.cache"
    home = expanded(environment.hf_home or f"{above}/huggingface")
    chosen = environment.kernels_cache or environment.hf_hub_cache
    sends_token = not is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN")
    return HubEndpoint(
        url=url,
        cache=expanded(chosen) if chosen else home / "hub",
        offline=offline,
        token=variable("HF_TOKEN") if sends_token else None,
        token_file=expanded(variable("HF_TOKEN_PATH") or str(home / "token"))
        if sends_token
        else None,
        user_agent=user_agent,
    )


class HubRegistry(RemoteRegistry):
    """A hub."""

    def __init__(self, endpoint: HubEndpoint) -> None:
        self.hub = HubTransport(endpoint)
        super().__init__(self.hub, f"hf+{endpoint.url}", endpoint.cache)

    def search(self, text: str, limit: int) -> tuple[str, ...]:
        """Search the hub; its best result first."""
        query = urlencode({"search": text, "limit": limit})
        ask = functools.partial(
            self.hub.answer, f"search {text!r}", f"kernels?{query}", read_search
        )
        return again(ask)[0]

    def is_trusted_publisher(self, owner: str) -> bool | None:
        """Whether the hub marks an organisation as a trusted publisher of kernels."""
        path = f"organizations/{quote(owner, safe='')}/overview"
        try:
            return again(functools.partial(self.hub.answer, owner, path, read_trust))[0]
        except _NotFoundError:
            return False  # a user, or an unknown name


class HubTransport(Transport):
    """Requests to one hub, as a ``Transport``; no answer is kept."""

    def __init__(self, endpoint: HubEndpoint) -> None:
        self.endpoint = endpoint
        self.address = endpoint.url
        self._http = Http(
            endpoint.url,
            functools.partial(refused, endpoint.url),
            authorization=self._authorization,
            user_agent=endpoint.user_agent,
            hint="HF_ENDPOINT, ",
        )

    def refs(self, repo_id: str) -> dict[str, str]:
        """Branches and tags of a kernel with their commits; a tag hides a branch of its name."""
        return self.answer(repo_id, f"kernels/{check_repo_id(repo_id)}/refs", read_refs)[0]

    def files(self, repo_id: str, commit: str) -> dict[str, RemoteFile] | None:
        """All files of a commit or branch by path; None if it does not exist."""
        path = f"kernels/{check_repo_id(repo_id)}/tree/{quote(commit, safe='')}?recursive=true"
        files: dict[str, RemoteFile] = {}
        page: str | None = f"{path}&expand=false"
        while page:
            try:
                more, page = self.answer(repo_id, page, read_tree)
            except _NotFoundError:
                return None
            files |= more
            if len(files) > untrusted.MEMBERS:
                raise RegistryError(
                    f"{repo_id} lists more than {untrusted.MEMBERS:,} files",
                    hint="report it to the hub's operator",
                )
        return files

    def open(self, repo_id: str, commit: str, part: Part) -> Iterator[bytes]:
        """The bytes of a file from ``part.start`` on, as they arrive."""
        path = quote(part.path)
        url = f"{self.address}/kernels/{check_repo_id(repo_id)}/resolve/{commit}/{path}"
        return self._http.stream(repo_id, url, part.start)

    def answer(self, what: str, path: str, read: Callable[[Any], T]) -> tuple[T, str | None]:
        """The parsed JSON answer of the hub's API, and the path of its next page.

        Args:
            what: the kernel or owner that errors name.
        """
        api = f"{self.address}/api/"
        url = f"{api}{path}"
        with self._http.request(what, url) as response:
            data = body_of(response, url)
            following = NEXT.search(response.headers.get("Link", ""))
        with reading(url, "a hub"):
            if following is not None and not following[1].startswith(api):
                # The token would go there too.
                raise ValueError(f"it names a next page at {following[1][:200]}")
            read_answer = read(untrusted.parse_json(data))
            return read_answer, following[1].removeprefix(api) if following else None

    def token(self) -> str:
        """The token of every request; empty without one."""
        token = self.endpoint.token
        if token is None and self.endpoint.token_file is not None:
            with contextlib.suppress(OSError):
                token = self.endpoint.token_file.read_text(errors="replace")
        token = (token or "").strip()
        if not (token.isascii() and token.isprintable()):  # the HTTP library would print it
            raise UsageError(
                "the token for the hub has a character that cannot be sent",
                hint="copy it again into HF_TOKEN, or run hf auth login",
            )
        return token

    def _authorization(self) -> str:
        token = self.token()
        return f"Bearer {token}" if token else ""


class _NotFoundError(NotPublishedError):
    """A commit, file or owner that a hub lacks."""


def refused(
    hub: str,
    what: str,
    status: int,
    headers: Any,
    reason: str,
    *,
    writing: bool = False,
) -> KernforgeError:
    """The error for an HTTP status of a hub, or of a proxy before it.

    Args:
        what: the kernel or owner that the error names.
        headers: of the answer; a hub's own have its name of the error, such as ``GatedRepo``.
    """
    code, detail = headers.get("X-Error-Code", ""), headers.get("X-Error-Message") or reason
    message = f"{hub} refuses {what}: HTTP {status}, {one_line(detail)}"
    if error := busy(hub, status, headers):
        return error
    if code == "RepoNotFound":
        return NotPublishedError(
            f"{hub} has no kernel {what!r}",
            hint="it does not exist, or it is private: set HF_TOKEN, or run hf auth login",
        )
    if status == NOT_FOUND:
        return _NotFoundError(message, hint="`kernforge info --versions` lists the versions")
    if status == _CHANGED:
        return MovedError(f"another process published {what} at once", hint="publish again")
    write_access = (
        "the token needs write access there; publishing kernels may have to be granted to its "
        "owner by the hub first"
    )
    hints = {
        "GatedRepo": f"accept its conditions at {hub}/kernels/{what}, then set HF_TOKEN",
        _UNAUTHORIZED: "set HF_TOKEN to a token that the hub accepts, or run hf auth login",
        _FORBIDDEN: write_access
        if writing
        else "ask its owner for access; the token in HF_TOKEN may have to allow it too",
        _PROXY_LOGIN: "write the login into HTTP_PROXY and HTTPS_PROXY: "
        "http://USER:PASSWORD@HOST:PORT",
    }
    other = "if the request was right, a newer kernforge may be needed"
    return RegistryError(message, hint=hints.get(code or status, other))


def read_refs(document: Any) -> dict[str, str]:
    """Branches and tags with their commits, within ``reading``."""
    refs = {}
    for ref in (*document["branches"], *document["tags"]):
        name, commit = ref["name"], ref["targetCommit"]
        if not isinstance(name, str) or not COMMIT.fullmatch(commit):
            raise ValueError(f"the reference {str(name)[:200]!r} names {commit[:80]!r}")
        refs[name] = commit
    return refs


def read_tree(document: Any) -> dict[str, RemoteFile]:
    """The files of one page of a listing by path, within ``reading``."""
    files = {}
    for item in document:
        if item["type"] == "file":
            content = item.get("lfs") or item
            files[item["path"]] = valid_file(item["path"], content["size"], content["oid"])
    return files


def read_search(document: Any) -> tuple[str, ...]:
    """The repo ids in the answer to a search, within ``reading``."""
    return tuple(str(item["id"])[:200] for item in document)


def read_trust(document: Any) -> bool:
    """Whether an organisation is a trusted publisher, within ``reading``."""
    return document.get("trustedKernelPublisher") is True
