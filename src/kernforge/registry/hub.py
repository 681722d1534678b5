# SPDX-License-Identifier: Apache-2.0
"""A registry on a Hugging Face hub, read through the cache that the hub's own tools use.

A kernel is a repository of type ``kernel``: a branch ``v<major>`` and tags ``vX.Y.Z`` hold
``build/<variant>/<file>``. The variables of the hub's own tools mean what they mean there:
``HF_ENDPOINT``, ``HF_HUB_OFFLINE`` (and its old name ``TRANSFORMERS_OFFLINE``), ``HF_TOKEN``,
``KERNELS_CACHE``, ``HF_HUB_CACHE``, ``HF_HOME`` and ``XDG_CACHE_HOME``.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from kernforge.errors import NotPublishedError, UsageError
from kernforge.registry.http import Http, check_address, reading
from kernforge.registry.listing import RemoteFile, valid_file, valid_refs
from kernforge.registry.names import check_repo_id, is_ref
from kernforge.registry.remote import Part, RemoteRegistry, Transport
from kernforge.system import untrusted
from kernforge.system.environment import Environment, expanded, user_file
from kernforge.system.http import again, netrc_login

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")

_DEFAULT = "https://huggingface.co"
_YES = frozenset({"1", "ON", "YES", "TRUE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HubEndpoint:
    """A hub and its cache.

    Attributes:
        url: ``https://host`` without a slash at the end.
        cache: a directory that is laid out as the cache of ``huggingface_hub``.
        token: the user's token, where it is meant for this hub.
        token_file: where ``hf auth login`` writes it.
        netrc: the file with logins, for another hub than that of the token.
    """

    url: str
    cache: Path
    offline: bool = False
    token: str | None = None
    token_file: Path | None = None
    netrc: Path | None = None
    user_agent: str = ""


def endpoint(location: str, environment: Environment, user_agent: str = "") -> HubEndpoint:
    """The hub of a registry's URL.

    A hub other than that of ``HF_ENDPOINT`` gets a cache of its own, because a cache does not
    record the hub of its ``v1``. It never receives the user's token, which is for that hub: its
    login is that of its host in ``~/.netrc``, which the user wrote for it.

    Args:
        location: ``hf://``, ``hf+https://host`` or ``hf+http://host:port``.
    """
    usual = check_address(environment.hf_endpoint or _DEFAULT)
    url = usual if location == "hf://" else check_address(location.removeprefix("hf+"))
    variable = environment.variables.get

    def is_set(*names: str) -> bool:
        return any((variable(name) or "").upper() in _YES for name in names)

    offline = is_set("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    label = re.sub(r"[^A-Za-z0-9.-]+", "-", url.partition("://")[2])
    if url != usual:
        cache = environment.home / "hubs" / label
        netrc = user_file(variable("NETRC") or "~/.netrc")
        return HubEndpoint(
            url=url, cache=cache, offline=offline, netrc=netrc, user_agent=user_agent
        )
    above = environment.xdg_cache_home or "~/.cache"
    home = environment.hf_home or f"{above}/huggingface"
    try:
        cache = expanded(environment.kernels_cache or environment.hf_hub_cache or f"{home}/hub")
    except UsageError:  # a user without a home directory
        cache = environment.home / "hubs" / label
    found = HubEndpoint(url=url, cache=cache, offline=offline, user_agent=user_agent)
    if is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN"):
        return found
    token_file = user_file(variable("HF_TOKEN_PATH") or f"{home}/token")
    return replace(found, token=variable("HF_TOKEN"), token_file=token_file)


class HubRegistry(RemoteRegistry):
    """A hub."""

    def __init__(self, endpoint: HubEndpoint) -> None:
        self.hub = HubTransport(endpoint)
        super().__init__(self.hub, f"hf+{endpoint.url}", endpoint.cache)

    def search(self, text: str, limit: int) -> tuple[str, ...]:
        """Search the hub; its best result first."""
        path = f"kernels?{urlencode({'search': text, 'limit': limit})}"

        def read(document: Any) -> tuple[str, ...]:
            return tuple(str(item["id"])[:200] for item in document)

        return again(lambda: self.hub.answer(f"search {text!r}", path, read))

    def is_trusted_publisher(self, owner: str) -> bool | None:
        """Whether the hub marks an organisation as a trusted publisher of kernels."""
        path = f"organizations/{quote(owner, safe='')}/overview"

        def read(document: Any) -> bool:
            return document.get("trustedKernelPublisher") is True

        try:
            return again(lambda: self.hub.answer(owner, path, read))
        except NotPublishedError:
            return False  # a user, or an unknown name


class HubTransport(Transport):
    """Requests to one hub, as a ``Transport``; no answer is kept."""

    def __init__(self, endpoint: HubEndpoint) -> None:
        self.endpoint = endpoint
        self.address = endpoint.url
        login = "set HF_TOKEN, or run hf auth login"
        if endpoint.netrc:
            login = f"write a login for this host into {endpoint.netrc}, or set HF_ENDPOINT="
            login += f"{endpoint.url}, which receives HF_TOKEN"
        self.http = Http(
            endpoint.url,
            absent=f"it does not exist, or it is private: {login}",
            denied=f"{login}, with a token that allows it; accept its "
            f"conditions at {endpoint.url} if it is gated; the hub may have to grant publishing",
            authorization=self._authorization,
            user_agent=endpoint.user_agent,
        )

    def refs(self, repo_id: str) -> dict[str, str]:
        """Branches and tags of a kernel with their commits; a tag hides a branch of its name."""
        path = f"kernels/{check_repo_id(repo_id)}/refs"
        return self.answer(f"kernel {repo_id!r}", path, read_refs)

    def files(self, repo_id: str, commit: str) -> dict[str, RemoteFile] | None:
        """All files of a commit or branch by path; None if it does not exist."""
        path = f"kernels/{check_repo_id(repo_id)}/tree/{quote(commit, safe='')}"
        url = f"{self.address}/api/{path}?recursive=true&expand=false"
        files: dict[str, RemoteFile] = {}
        try:
            for page in self.http.pages(repo_id, url):
                with reading(url, "a hub"):
                    files |= read_tree(untrusted.parse_json(page))
        except NotPublishedError:
            self.refs(repo_id)  # raises if there is no such kernel
            return None
        return files

    def open(self, repo_id: str, commit: str, part: Part) -> Generator[bytes, None, None]:
        """The bytes of a part of a file, as they arrive."""
        path = quote(part.path)
        url = f"{self.address}/kernels/{check_repo_id(repo_id)}/resolve/{commit}/{path}"
        return self.http.stream(f"{part.path} of {repo_id}", url, part.start, part.stop)

    def answer(self, what: str, path: str, read: Callable[[Any], T]) -> T:
        """The parsed JSON answer of the hub's API.

        Args:
            what: the kernel or owner that errors name.
        """
        url = f"{self.address}/api/{path}"
        data = self.http.document(what, url)
        with reading(url, "a hub"):
            return read(untrusted.parse_json(data))

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
        if self.endpoint.netrc:
            return netrc_login(self.endpoint.netrc, self.address)
        return f"Bearer {token}" if (token := self.token()) else ""


def read_refs(document: Any) -> dict[str, str]:
    """Branches and tags with their commits, within ``reading``."""
    refs = (*document["branches"], *document["tags"])
    # Git allows other names, which no version has.
    return valid_refs({r["name"]: r["targetCommit"] for r in refs if is_ref(r["name"])})


def read_tree(document: Any) -> dict[str, RemoteFile]:
    """The files of one page of a listing by path, within ``reading``."""
    files = {}
    for item in document:
        if item["type"] == "file":
            content = item.get("lfs") or item
            files[item["path"]] = valid_file(item["path"], content["size"], content["oid"])
    return files
