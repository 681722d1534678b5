# SPDX-License-Identifier: Apache-2.0
"""Open a registry by its path or URL, and find there what was asked for."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote_to_bytes

from kernforge import untrusted
from kernforge.errors import AbsentError, NotPublishedError, RegistryError
from kernforge.registry.base import Registries, Registry
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.names import COMMIT, Request, majors, request, versions
from kernforge.system.environment import Environment

REDIRECT = "kernel-status.toml"
"""File of a commit with the new name of a kernel that moved, in the hub's format."""
_PREFIX = re.compile(r"[0-9a-f]{7,}")


def open_registry(
    location: str, environment: Environment | None = None, user_agent: str = ""
) -> Registry:
    """The registry at a path or a URL.

    - a path, or ``file:///path``: a directory;
    - ``hf://``: the Hugging Face hub, or the one that ``HF_ENDPOINT`` names;
    - ``hf+https://host``, ``hf+http://host:port``: a hub at that address.

    Args:
        location: the path or URL.
        environment: says which hub and which cache; None reads this process's variables.
        user_agent: added to the header ``User-Agent`` of requests to a hub.

    Raises:
        RegistryError: no registry has URLs of this kind.
    """
    scheme, separator, rest = location.partition("://")
    if not separator:
        return _directory(os.path.abspath(os.path.expanduser(location)))  # noqa: PTH100, PTH111
    if scheme == "file" and rest.startswith("/"):
        return _directory(os.fsdecode(unquote_to_bytes(os.fsencode(rest))))
    if scheme in {"hf", "hf+http", "hf+https"} and (scheme == "hf") == (not rest):
        from kernforge.registry import hub  # noqa: PLC0415 - a directory needs none of it

        variables = (environment or Environment.live()).variables
        return _hub(location, tuple(variables.get(name) for name in hub.VARIABLES), user_agent)
    raise RegistryError(
        f"{location!r} is not a registry that kernforge can open",
        hint="name a directory, file:///path, hf:// for the Hugging Face hub, or hf+https://host "
        "for another one",
    )


def open_default(environment: Environment, user_agent: str = "") -> Registries:
    """The registries for a caller who names none.

    It is ``KERNFORGE_REGISTRY`` and nothing else where that is set. Otherwise the user's own
    directory, and the hub for kernels that the directory does not hold.
    """
    if chosen := environment.kernforge_registry:
        return open_registry(chosen, environment, user_agent)
    own = _directory(str(environment.own_registry))
    return Chain((own, open_registry("hf://", environment, user_agent)))


@functools.lru_cache(maxsize=64)
def _directory(path: str) -> DirectoryRegistry:
    return DirectoryRegistry(Path(path))


@functools.lru_cache(maxsize=64)
def _hub(location: str, values: tuple[str | None, ...], user_agent: str) -> Registry:
    from kernforge.registry import hub  # noqa: PLC0415 - a directory needs none of it

    named = zip(hub.VARIABLES, values, strict=True)
    environment = Environment({name: value for name, value in named if value is not None})
    endpoint = hub.endpoint(location, environment, user_agent)
    registry = hub.HubRegistry(endpoint)
    return registry.offline() if endpoint.offline else registry


class Chain(Registries):
    """Several registries: the first that has a kernel is used for it alone.

    The last one is used for kernels that none has, so that its errors say what is missing.
    """

    def __init__(self, registries: tuple[Registry, ...]) -> None:
        self._registries = registries
        self.url = ", then ".join(registry.url for registry in registries)

    @property
    def members(self) -> tuple[Registry, ...]:
        """The registries, in order."""
        return self._registries

    def member(self, repo_id: str) -> Registry:
        """The one registry that is used for a kernel."""
        *others, last = self._registries
        holders = (each for each in others if each.commits(repo_id))
        return next(holders, last)

    def offline(self) -> Registries:
        """The same, each restricted to what is on this machine."""
        return Chain(tuple(registry.offline() for registry in self._registries))


@dataclass(frozen=True, slots=True)
class Answer:
    """A commit of a kernel, with the request that led to it.

    Attributes:
        registry: the one registry that has it.
        request: what was asked for.
        commit: the commit there.
        major: the major version that the commit must be of; None for any.
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
        """The names of its variants, sorted."""
        return self.registry.variants(self.repo_id, self.commit)

    def small_file(self, path: str) -> bytes | None:
        """The bytes of a small file, by its path in the commit; None without."""
        return self.registry.small_file(self.repo_id, self.commit, path)

    def __str__(self) -> str:
        return f"{self.repo_id} at {self.commit}"


def locked(registries: Registries, request: Request, commit: str) -> Answer:
    """The answer that a lock gives to a request."""
    return Answer(registries.member(request.repo_id), request, commit, request.major)


def request_or_newest(
    registries: Registries, repo_id: str, version: int | str | None, revision: str | None
) -> Request:
    """The request in optional arguments: without a version and a revision, the newest version."""
    if version is not None or revision is not None:
        return request(repo_id, version, revision)
    refs = registries.member(repo_id).refs(repo_id)
    branches = [f"v{major}" for major in majors(refs)]
    newest = [*versions(refs).values()] or branches or ["main"]
    return request(repo_id, revision=newest[-1])


def find(registries: Registries, request: Request) -> Answer:
    """The commit of the version or revision that was asked for.

    Raises:
        NotPublishedError: the registry has no such kernel, version or revision; an AbsentError
            where no hub was asked.
        RegistryError: several commits begin with the digits of the revision.
    """
    repo_id, version = request.repo_id, request.version
    registry = registries.member(repo_id)
    if version is None:
        commit, major = _find_revision(registry, repo_id, request.revision or ""), request.major
    elif request.is_branch_of_major:
        commit, major = registry.ref(repo_id, f"v{version}"), int(version)
    else:
        tag = _newest(version, tuple(refs := registry.refs(repo_id)))
        commit, major = refs.get(tag), int(tag[1:].partition(".")[0] or -1)
    if commit is None:
        raise _absent(registries, registry, request)
    return Answer(registry, request, commit, major)


def _absent(registries: Registries, registry: Registry, request: Request) -> NotPublishedError:
    """The error for a kernel, version or revision that is not in its registry."""
    repo_id = request.repo_id
    here = isinstance(registries.members[-1], DirectoryRegistry)
    kind = AbsentError if here else NotPublishedError
    refs = registry.refs(repo_id)
    if not refs and not registry.commits(repo_id):
        root = registry.root if isinstance(registry, DirectoryRegistry) else None
        return kind(
            f"registry {registries.url} has no kernel {repo_id!r}"
            + (" (there is no local snapshot of it)" if here else "")
            + (": that directory does not exist" if root and not root.is_dir() else ""),
            hint=download_first(registry)
            or "publish it there, or name its registry: --registry, registry=... or "
            "KERNFORGE_REGISTRY",
        )
    tags = ", ".join(reversed(versions(refs).values())) or "none"
    branches = ", ".join(map(str, majors(refs))) or "none"
    hint = f"major versions there: {branches}; tags: {tags}"
    if registry is not registries.members[-1]:
        hidden = registries.members[-1].url
        name = "hf://" if hidden.startswith("hf+") else hidden
        hint += f"; it hides {hidden} for this kernel: --registry {name} takes it from there"
    return kind(
        f"{repo_id} has no {request} in registry {registry.url}: {request} not found, "
        f"available versions: {branches}",
        hint=download_first(registry) or hint,
    )


@functools.lru_cache(maxsize=64)
def _newest(specifier: str, ref_names: tuple[str, ...]) -> str:
    """The tag of the newest version that a specifier allows; empty if there is none."""
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415 - slow

    allowed, tags = SpecifierSet(specifier), versions(ref_names)
    return next((tag for _, tag in sorted(tags.items(), reverse=True) if tag[1:] in allowed), "")


def _find_revision(registry: Registry, repo_id: str, revision: str) -> str | None:
    """The commit of a branch, a tag, a commit or the first digits (7 or more) of one; else None.

    Digits are completed to the commits that the registry lists; a hub lists those that a branch
    or tag names.
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
    """Advice where only what was downloaded from a hub is seen; empty elsewhere."""
    return registry.unasked and (
        f"{registry.unasked} was not asked: download it first (kernforge get), without "
        "HF_HUB_OFFLINE"
    )


def find_redirect(answer: Answer) -> Request | None:
    """What a commit says that the kernel moved to; None where it did not move.

    Raises:
        RegistryError: it cannot be read, or is not a redirect.
    """
    document = answer.small_file(REDIRECT)
    return None if document is None else read_redirect(document, f"{answer.repo_id}/{REDIRECT}")


def refuse_moved(answer: Answer) -> None:
    """Refuse a commit that says that the kernel moved.

    Raises:
        RegistryError: it does, or what it says cannot be read.
    """
    moved = find_redirect(answer)
    if moved is not None:
        raise RegistryError(
            f"kernel {answer.repo_id} moved to {moved.repo_id} ({moved})",
            hint=f"see that this is right, and name {moved.repo_id} itself",
        )


def read_redirect(data: bytes, source: str = REDIRECT) -> Request:
    """The new name of a kernel: ``kind = "redirect"``, ``destination`` and maybe ``revision``.

    Raises:
        RegistryError: it cannot be read, or is not a redirect.
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
