# SPDX-License-Identifier: Apache-2.0
"""A registry of the OCI distribution protocol: Harbor, Artifactory, zot, GHCR, distribution.

A kernel is the repository ``<prefix>/<owner>/<name>`` in lower case, a release a manifest under the
tags ``v1.2.0``, ``v1`` and ``main``, whose SHA-256 is the commit. It has one layer for each
variant and one for the rest: uncompressed tars. Its annotation lists the files with their hashes
and their places in the layers, in the form of ``registry.listing``. So a load requests the
manifest, ``metadata.json`` and the variant.

Logins are those of docker and podman, with their credential helpers.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from kernforge.errors import IntegrityError, NotPublishedError, RegistryError
from kernforge.registry.http import Http, body_of, check_address, reading
from kernforge.registry.listing import RemoteFile, read_listing
from kernforge.registry.names import SHA256, check_repo_id, is_ref, is_repo_id
from kernforge.registry.remote import Part, Transport
from kernforge.system import untrusted
from kernforge.system.digest import sha256
from kernforge.system.http import basic, following
from kernforge.system.logins import Login, find_login
from kernforge.system.untrusted import Meter

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
FILES = "org.kernforge.files"
"""Annotation of a manifest: the files of its layers."""

_AT_ONCE = 8
_ACCEPT = {"Accept": f"{MANIFEST}, {INDEX}"}  # without it, registries answer 404
_PARAMETER = re.compile(r'(\w+)=(?:"([^"]*)"|([^\s,"]+))')


class OciTransport(Transport):
    """Requests to one registry.

    Args:
        location: ``oci://host[:port]/prefix``, or ``oci+http://`` for a server without TLS.
        logins: files of docker's and podman's logins, which need not exist.
        actions: what tokens shall allow.
    """

    def __init__(
        self,
        location: str,
        logins: tuple[Path, ...] = (),
        user_agent: str = "",
        actions: str = "pull",
    ) -> None:
        scheme = "http" if location.startswith("oci+http://") else "https"
        parts = urlsplit(check_address(f"{scheme}://{location.partition('://')[2]}"))
        self.address, self.host = f"{parts.scheme}://{parts.netloc}", parts.netloc
        self.location, self.logins, self.user_agent = location, logins, user_agent
        self.actions = actions
        self._prefix = f"{parts.path.strip('/').lower()}/".lstrip("/")
        self.absent = "check the prefix; some registries want a repository to be created first"
        self.denied = (
            f"log in (docker login {self.host}), or ask its operator to allow this: reading, or "
            "writing where only tags vX.Y.Z are immutable"
        )
        self._https: dict[str, Http] = {}
        self._manifests: dict[tuple[str, str], bytes] = {}

    def ref(self, repo_id: str, name: str) -> str | None:
        """The commit of a tag; its manifest is kept for ``files``."""
        if (manifest := self.manifest(repo_id, name)) is None:
            return None
        self._manifests[repo_id, commit := sha256(manifest)] = manifest
        return commit

    def refs(self, repo_id: str) -> dict[str, str]:
        """The commits of all tags."""
        names = self._list(repo_id, self.url(repo_id, "tags/list"), "tags")
        # Tags that begin so are lists of referrers.
        tags = [name for name in names if is_ref(name) and not name.startswith("sha256-")]
        meter = self.http(repo_id).meter()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            commits = pool.map(lambda tag: self._commit(repo_id, tag, meter), tags)
            return {tag: commit for tag, commit in zip(tags, commits, strict=True) if commit}

    def files(self, repo_id: str, commit: str) -> dict[str, RemoteFile] | None:
        """All files of a commit by path; None if there is no such commit."""
        manifest = self.manifest(repo_id, commit) if SHA256.fullmatch(commit) else None
        if manifest is None:
            return None
        with reading(f"{self.address} about {repo_id}", "a registry of kernels"):
            listed = untrusted.parse_json(manifest)["annotations"][FILES]
            return read_listing(listed.encode())

    def open(self, repo_id: str, commit: str, part: Part) -> Generator[bytes, None, None]:  # noqa: ARG002
        """The bytes of a part of a layer or another blob, as they arrive."""
        url = self.url(repo_id, f"blobs/sha256:{part.file.object}")
        return self.http(repo_id).stream(f"{part.path} of {repo_id}", url, part.start, part.stop)

    def repo_ids(self) -> tuple[str, ...] | None:
        """The kernels below the prefix, sorted; None if the registry does not list them."""
        try:
            names = self._list("", f"{self.address}/v2/_catalog", "repositories")
        except RegistryError:  # most registries show it to administrators alone
            return None
        ids = (name.removeprefix(self._prefix) for name in names if name.startswith(self._prefix))
        return tuple(sorted(filter(is_repo_id, ids)))

    def manifest(self, repo_id: str, name: str, meter: Meter | None = None) -> bytes | None:
        """The manifest of a commit or at a tag; None if there is none."""
        if manifest := self._manifests.pop((repo_id, name), None):
            return manifest
        is_commit = SHA256.fullmatch(name)
        url = self.url(repo_id, f"manifests/{'sha256:' if is_commit else ''}{quote(name, safe='')}")
        try:
            manifest = self.http(repo_id).document(repo_id, url, _ACCEPT, meter)
        except NotPublishedError:
            return None
        if is_commit and sha256(manifest) != name:
            raise IntegrityError(
                f"{self.address} answers {repo_id} at {name} with other bytes",
                hint="a proxy or the server changes them; nothing was used",
            )
        return manifest

    def http(self, repo_id: str) -> Http:
        """Requests about one kernel, with a login of their own; of an empty id, about all."""
        if repo_id not in self._https:
            self._https[repo_id] = _Session(self, repo_id and self._repository(repo_id))
        return self._https[repo_id]

    def url(self, repo_id: str, place: str) -> str:
        """The address of something of a kernel."""
        return f"{self.address}/v2/{self._repository(repo_id)}/{place}"

    def _repository(self, repo_id: str) -> str:
        return f"{self._prefix}{check_repo_id(repo_id).lower()}"

    def _commit(self, repo_id: str, tag: str, meter: Meter) -> str | None:
        url = self.url(repo_id, f"manifests/{quote(tag)}")
        try:
            head = self.http(repo_id).request(repo_id, url, _ACCEPT, method="HEAD", meter=meter)
            with head as response:
                digest = response.headers.get("Docker-Content-Digest", "").removeprefix("sha256:")
        except NotPublishedError:
            return None  # an image, or deleted meanwhile
        if not SHA256.fullmatch(digest):
            digest = sha256(self.manifest(repo_id, tag, meter) or b"")
        return digest

    def _list(self, repo_id: str, url: str, key: str) -> list[str]:
        """A list that comes in pages."""
        found: list[str] = []
        for page in self.http(repo_id).pages(repo_id or "a catalog", f"{url}?n=1000"):
            with reading(url):
                names = untrusted.parse_json(page)[key] or ()  # null where all tags are deleted
                found += [name for name in names if isinstance(name, str)]
        return found


class _Session(Http):
    """Requests about one repository, with what its registry's challenges demand."""

    def __init__(self, registry: OciTransport, repository: str) -> None:
        super().__init__(
            registry.address,
            absent=registry.absent,
            denied=registry.denied,
            authorization=lambda: self.header,
            challenged=self.answer,
            user_agent=registry.user_agent,
        )
        self.header, self._registry, self._repository = "", registry, repository
        self._scopes = {f"repository:{repository}:{registry.actions}"} if repository else set()

    def answer(self, headers: Any) -> bool:
        """Log in as a refused request demands it; returns whether that may help."""
        before = self.header
        challenges = [each.partition(" ") for each in headers.get_all("WWW-Authenticate", ())]
        kinds = {kind.lower(): parameters for kind, _, parameters in challenges}
        login = find_login(self._registry.logins, self._registry.host)
        if "bearer" in kinds:
            given = {name: a or b for name, a, b in _PARAMETER.findall(kinds["bearer"])}
            self._scopes |= set(given.get("scope", "").split())
            realm = following(self.address, given.get("realm", ""))
            self.header = f"Bearer {self._token(realm, given.get('service', ''), login)}"
        elif "basic" in kinds and login:
            self.header = basic(*login)
        return self.header != before

    def _token(self, realm: str, service: str, login: Login | None) -> str:
        """A token for all scopes, with the user's login or without one."""
        form: dict[str, Any] = {"service": service, "scope": sorted(self._scopes)}
        url = f"{realm}{'&' if '?' in realm else '?'}{urlencode(form, doseq=True)}"
        body, authorization = None, ""
        if login and login[0] == "<token>":
            form |= {"client_id": "kernforge", "scope": " ".join(form["scope"])}
            form |= {"grant_type": "refresh_token", "refresh_token": login[1]}
            url, body = realm, urlencode(form).encode()
        elif login:
            authorization = basic(*login)
        what, method = f"a token for {self._repository or 'a catalog'}", "POST" if body else "GET"
        server = Http(
            realm,
            absent=self._registry.absent,
            denied=self._registry.denied,
            authorization=lambda: authorization,
        )
        with server.request(what, url, method=method, body=body) as response:
            data = body_of(response)
        with reading(realm, "a token server"):
            document = untrusted.parse_json(data)
            token = str(document.get("token") or document["access_token"])
            if not re.fullmatch(r"[!-~]+", token):
                raise ValueError("the token has a character that cannot be sent")
        return token
