# SPDX-License-Identifier: Apache-2.0
"""Open a registry by its path or URL, and find the commit of a request."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from kernforge.errors import AbsentError, NetworkError, NotPublishedError, RegistryError
from kernforge.registry.directory import Chain, DirectoryRegistry, Registries, Registry
from kernforge.registry.names import COMMIT, Request, majors, request, versions
from kernforge.system import untrusted
from kernforge.system.environment import Environment, user_file

if TYPE_CHECKING:
    from kernforge.registry.remote import Transport

REDIRECT = "kernel-status.toml"
"""File of a commit with the new name of a kernel that moved, in the hub's format."""
_PREFIX = re.compile(r"[0-9a-f]{7,}")
_HUBS, _WEB, _BUCKETS = {"hf", "hf+http", "hf+https"}, {"http", "https"}, {"s3", "gs", "az"}
_OCI = {"oci", "oci+http"}
# How the variables begin that name a server, the logins for it or its cache.
_VARIABLES = (
    *("AWS_", "AZURE_", "DOCKER_CONFIG", "GOOGLE_", "HF_", "HOME", "KERNELS_CACHE"),
    *("KERNFORGE_HOME", "NETRC", "REGISTRY_AUTH_FILE", "TRANSFORMERS_OFFLINE", "XDG_"),
)


def open_registry(
    location: str, environment: Environment | None = None, user_agent: str = ""
) -> Registry:
    """The registry at a path or a URL.

    - a path, or ``file:///path``: a directory;
    - ``hf://``: the Hugging Face hub, or the one that ``HF_ENDPOINT`` names;
    - ``hf+https://host``, ``hf+http://host:port``: a hub at that address;
    - ``https://host/path``, ``http://host/path``: a directory that a web server shows, read only;
    - ``s3://bucket/prefix``, ``gs://bucket/prefix``, ``az://container/prefix``: a bucket;
    - ``oci://host/prefix``, ``oci+http://host:port/prefix``: a registry of the OCI protocol.

    Args:
        environment: names servers, logins and caches; None reads this process's variables.
        user_agent: added to the header ``User-Agent`` of requests.

    Raises:
        RegistryError: the URL is not of a registry.
    """
    scheme, separator, rest = location.partition("://")
    if not separator:
        return _directory(os.path.abspath(os.path.expanduser(location)))  # noqa: PTH100, PTH111
    if scheme == "file" and rest.startswith("/"):
        return _directory(os.fsdecode(unquote_to_bytes(os.fsencode(rest))))
    is_server = scheme in _WEB | _BUCKETS | _OCI and rest
    if is_server or (scheme in _HUBS and (scheme == "hf") == (not rest)):
        variables = (environment or Environment.live()).variables.items()
        named = tuple(pair for pair in variables if pair[0].startswith(_VARIABLES))
        return _server(location.rstrip("/") if rest else location, named, user_agent)
    raise RegistryError(
        f"{location!r} is not a registry that kernforge can open",
        hint="name a directory, file:///path, hf:// for the Hugging Face hub, hf+https://host for "
        "another one, https://host/path for a directory on a web server, s3://, gs:// or az:// "
        "with a bucket, or oci://host/prefix",
    )


def open_default(environment: Environment, user_agent: str = "") -> Registries:
    """The default registries: ``KERNFORGE_REGISTRY`` alone if it is set.

    Otherwise the user's own directory, and the hub for kernels that the directory lacks.
    """
    if chosen := environment.kernforge_registry:
        return open_registry(chosen, environment, user_agent)
    own = _directory(str(environment.own_registry))
    return Chain((own, open_registry("hf://", environment, user_agent)))


@functools.lru_cache(maxsize=64)
def _directory(path: str) -> DirectoryRegistry:
    return DirectoryRegistry(Path(path))


@functools.lru_cache(maxsize=64)
def _server(location: str, variables: tuple[tuple[str, str], ...], user_agent: str) -> Registry:
    """The registry of a server; an import of each kind takes milliseconds."""
    environment, scheme = Environment(dict(variables)), location.partition("://")[0]
    if scheme in _HUBS:
        from kernforge.registry import hub  # noqa: PLC0415

        endpoint = hub.endpoint(location, environment, user_agent)
        registry = hub.HubRegistry(endpoint)
        return registry.offline() if endpoint.offline else registry
    from kernforge.registry.remote import RemoteRegistry  # noqa: PLC0415

    transport: Transport
    cache = location
    if scheme in _WEB:
        from kernforge.registry.static import StaticTransport  # noqa: PLC0415

        netrc = user_file(environment.variables.get("NETRC") or "~/.netrc")
        transport = StaticTransport(location, netrc, user_agent)
    elif scheme in _BUCKETS:
        from kernforge.registry.objects import ObjectTransport  # noqa: PLC0415

        transport = ObjectTransport(location, environment.variables, user_agent)
        cache = f"{location} {environment.variables.get('AWS_ENDPOINT_URL', '')}"
    else:
        from kernforge.registry.oci import OciTransport  # noqa: PLC0415
        from kernforge.system.logins import login_files  # noqa: PLC0415

        transport = OciTransport(location, login_files(environment), user_agent)
    return RemoteRegistry(transport, location, cache_of(cache, environment.home))


def cache_of(location: str, home: Path) -> Path:
    """The cache of a registry: one does not record where its ``v1`` is from."""
    from kernforge.system.digest import sha256  # noqa: PLC0415 - see _server

    label = re.sub(r"[^A-Za-z0-9.-]+", "-", location.replace("://", "-"))
    return home / "registries" / f"{label}-{sha256(location)[:8]}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The commit that a registry gives to a request.

    Attributes:
        registry: the one registry that has the commit.
        major: the major version that the commit must have; None for any.
    """

    registry: Registry
    request: Request
    commit: str
    major: int | None

    @property
    def repo_id(self) -> str:
        """The kernel."""
        return self.request.repo_id

    @property
    def variants(self) -> tuple[str, ...]:
        """The names of the commit's variants, sorted."""
        return self.registry.variants(self.repo_id, self.commit)

    def small_file(self, path: str) -> bytes | None:
        """The bytes of a small file of the commit; None if the commit has no such file."""
        return self.registry.small_file(self.repo_id, self.commit, path)

    def __str__(self) -> str:
        return f"{self.repo_id} at {self.commit}"


def locked(registries: Registries, request: Request, commit: str) -> Answer:
    """The answer of a lock to a request."""
    return Answer(registries.member(request.repo_id), request, commit, request.major)


def request_or_newest(
    registries: Registries, repo_id: str, version: int | str | None, revision: str | None
) -> Request:
    """The request in optional arguments; the newest version by default."""
    if version is not None or revision is not None:
        return request(repo_id, version, revision)
    refs = registries.member(repo_id).refs(repo_id)
    branches = [f"v{major}" for major in majors(refs)]
    newest = [*versions(refs).values()] or branches or ["main"]
    return request(repo_id, revision=newest[-1])


def find(registries: Registries, request: Request) -> Answer:
    """The commit of a version or revision.

    Raises:
        NotPublishedError: the registry has no such kernel, version or revision; an AbsentError
            if no server was asked.
        RegistryError: an ambiguous commit prefix.
    """
    repo_id, version = request.repo_id, request.version
    registry = registries.member(repo_id)
    try:
        if version is None:
            commit, major = _find_revision(registry, repo_id, request.revision or ""), request.major
        elif request.is_branch_of_major:
            commit, major = registry.ref(repo_id, f"v{version}"), int(version)
        else:
            tag = _newest(version, tuple(refs := registry.refs(repo_id)))
            commit, major = refs.get(tag), int(tag[1:].partition(".")[0] or -1)
    except NetworkError as error:
        if not (before := [each.url for each in registries.members if each is not registry]):
            raise
        raise NetworkError(
            f"{repo_id} is not in {', '.join(before)}, and {error.message}",
            hint=f"name its registry: --registry, registry=... or KERNFORGE_REGISTRY; {error.hint}",
        ) from error
    if commit is None:
        raise _absent(registries, registry, request)
    return Answer(registry, request, commit, major)


def _absent(registries: Registries, registry: Registry, request: Request) -> NotPublishedError:
    """The error for a kernel, version or revision that is not in its registry."""
    repo_id, last = request.repo_id, registries.members[-1]
    here, offline = isinstance(last, DirectoryRegistry), download_first(registry)
    kind = AbsentError if here else NotPublishedError
    refs = registry.refs(repo_id)
    if not refs and not registry.commits(repo_id):
        return kind(
            f"registry {registries.url} has no kernel {repo_id!r}"
            + (" (there is no local snapshot of it)" if here else "")
            + (": that directory does not exist" if here and not registry.root.is_dir() else ""),
            hint=offline
            or "publish it there, or name its registry: --registry, registry=... or "
            "KERNFORGE_REGISTRY",
        )
    branches = ", ".join(map(str, majors(refs))) or "none"
    tags = ", ".join(reversed(versions(refs).values())) or "none"
    hint = f"major versions there: {branches}; tags: {tags}"
    if registry is not last:
        name = "hf://" if last.url.startswith("hf+") else last.url
        hint += f"; it hides {last.url} for this kernel: --registry {name} takes it from there"
    return kind(
        f"{repo_id} has no {request} in registry {registry.url}: {request} not found, "
        f"available versions: {branches}",
        hint=offline or hint,
    )


@functools.lru_cache(maxsize=64)
def _newest(specifier: str, ref_names: tuple[str, ...]) -> str:
    """The tag of the newest version that a specifier allows; empty if there is none."""
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415 - slow

    allowed, tags = SpecifierSet(specifier), versions(ref_names)
    return next((tag for _, tag in sorted(tags.items(), reverse=True) if tag[1:] in allowed), "")


def _find_revision(registry: Registry, repo_id: str, revision: str) -> str | None:
    """The commit of a branch, a tag, a commit or a commit prefix of 7 digits or more; else None.

    A prefix is completed to a commit that the registry lists: of a hub, one with a branch or tag.
    """
    if COMMIT.fullmatch(revision) and registry.has_commit(repo_id, revision):
        return revision
    if commit := registry.ref(repo_id, revision):
        return commit
    if not _PREFIX.fullmatch(revision):
        return None
    commits = [commit for commit in registry.commits(repo_id) if commit.startswith(revision)]
    if len(commits) > 1:
        raise RegistryError(
            f"Ambiguous commit prefix {revision!r} of {repo_id}: {', '.join(commits)}",
            hint="write more digits",
        )
    return commits[0] if commits else None


def download_first(registry: Registry) -> str:
    """The hint to download a kernel that an offline hub's cache lacks; empty elsewhere."""
    server = registry.offline_server
    return (
        server and f"{server} is offline: download it first (kernforge get), without HF_HUB_OFFLINE"
    )


def find_redirect(answer: Answer) -> Request | None:
    """The redirect in a commit; None if the kernel did not move.

    Raises:
        RegistryError: the redirect is malformed.
    """
    document = answer.small_file(REDIRECT)
    return None if document is None else read_redirect(document, f"{answer.repo_id}/{REDIRECT}")


def refuse_moved(answer: Answer) -> None:
    """Refuse a commit with a redirect.

    Raises:
        RegistryError: the kernel moved, or the redirect is malformed.
    """
    moved = find_redirect(answer)
    if moved is not None:
        raise RegistryError(
            f"kernel {answer.repo_id} moved to {moved.repo_id} ({moved})",
            hint=f"if you trust the new name, use {moved.repo_id} itself",
        )


def read_redirect(data: bytes, source: str = REDIRECT) -> Request:
    """The new name of a kernel: ``kind = "redirect"``, ``destination`` and maybe ``revision``.

    Raises:
        RegistryError: it is malformed.
    """
    try:
        table = untrusted.parse_toml(data)
        if table["kind"] != "redirect":
            raise ValueError(f"it is of kind {table['kind']!r}, not 'redirect'")  # noqa: TRY301
        return request(table["destination"], revision=table.get("revision", "main"))
    except (ValueError, KeyError, TypeError) as error:
        raise RegistryError(
            f"{source} does not name the kernel's new repository: {error}",
            hint="ask the kernel's publisher to fix it, or name another version or revision",
        ) from None
