# SPDX-License-Identifier: Apache-2.0
"""Open a registry by its path or URL, and find there what was asked for."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kernforge.errors import (
    AbsentError,
    MissingPackageError,
    NotPublishedError,
    RegistryError,
)
from kernforge.registry import hub_endpoint
from kernforge.registry.base import Registry
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.names import COMMIT, Request, majors, versions
from kernforge.system.environment import Environment

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
        return _directory(_unquote(rest))
    if scheme in {"hf", "hf+http", "hf+https"} and (scheme == "hf") == (not rest):
        variables = (environment or Environment.live()).variables
        return _hub(
            location, tuple(variables.get(name) for name in hub_endpoint.VARIABLES), user_agent
        )
    raise RegistryError(
        f"{location!r} is not a registry that kernforge can open",
        hint="name a directory, file:///path, hf:// for the Hugging Face hub, or hf+https://host "
        "for another one",
    )


def open_default(environment: Environment, user_agent: str = "") -> Registry:
    """The registry for a caller who names none.

    It is ``KERNFORGE_REGISTRY`` and nothing else where that is set. Otherwise the user's own
    directory, and the hub for kernels that the directory does not hold.
    """
    if chosen := environment.kernforge_registry:
        return open_registry(chosen, environment, user_agent)
    own = _directory(str(environment.own_registry))
    chain = Chain((own, open_registry("hf://", environment, user_agent)))
    return cast("Registry", chain)  # by Chain.__getattr__


@functools.lru_cache(maxsize=64)
def _directory(path: str) -> DirectoryRegistry:
    return DirectoryRegistry(Path(path))


@functools.lru_cache(maxsize=64)
def _hub(location: str, values: tuple[str | None, ...], user_agent: str) -> Registry:
    from kernforge.registry.hub import HubRegistry  # noqa: PLC0415 - a directory needs none of it

    named = zip(hub_endpoint.VARIABLES, values, strict=True)
    environment = Environment({name: value for name, value in named if value is not None})
    return HubRegistry(hub_endpoint.find(location, environment, user_agent))


def _unquote(text: str) -> str:
    """Undo the percent signs of a URL's path."""
    raw = re.sub(rb"%([0-9A-Fa-f]{2})", lambda m: bytes.fromhex(m[1].decode()), os.fsencode(text))
    return os.fsdecode(raw)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a registry gives for a request.

    Attributes:
        request: what was asked for.
        commit: the commit that it has.
        major: the major version that the commit must be of; None for any.
    """

    request: Request
    commit: str
    major: int | None

    @property
    def repo_id(self) -> str:
        """The kernel."""
        return self.request.repo_id


def locked(request: Request, commit: str) -> Answer:
    """The answer that a lock gives to a request."""
    return Answer(request, commit, request.major)


def find(registry: Registry, request: Request) -> Answer:
    """The commit of the version or revision that was asked for.

    Raises:
        NotPublishedError: the registry has no such kernel, version or revision; an AbsentError
            where no hub was asked.
        RegistryError: several commits begin with the digits of the revision.
    """
    answer = search(registry, request)
    if answer is not None:
        return answer
    repo_id = request.repo_id
    names = registry.ref_names(repo_id)
    here = asks_no_hub(registry)
    kind = AbsentError if here else NotPublishedError
    used = member_for(registry, repo_id)
    if not names and not registry.commits(repo_id):
        local = " (there is no local snapshot of it)" if here else ""
        raise kind(
            f"registry {registry.url} has no kernel {repo_id!r}{local}"
            + _missing_directory(registry),
            hint=of_the_hub(registry)
            or "publish it there, or name its registry: --registry, registry=... or "
            "KERNFORGE_REGISTRY",
        )
    tags = ", ".join(reversed(versions(names).values())) or "none"
    branches = ", ".join(map(str, majors(names))) or "none"
    where, hint = f"registry {used.url}", f"major versions there: {branches}; tags: {tags}"
    if used is not registry and isinstance(registry, Chain) and used is not registry.last:
        where = f"your registry {used.url}, which hides {registry.last.url} for this kernel"
        hint += f'; to take it from there: --registry {_short(registry.last)}, registry="..."'
    raise kind(
        f"{repo_id} has no {request} in {where}: {str(request)[0].upper()}{str(request)[1:]} not "
        f"found, available versions: {branches}",
        hint=of_the_hub(used) or hint,
    )


def newest(registry: Registry, repo_id: str) -> Request:
    """The request for a kernel's newest version, else for its newest major version or ``main``."""
    names = registry.ref_names(repo_id)
    tags, branches = list(versions(names).values()), [f"v{major}" for major in majors(names)]
    return Request(repo_id, revision=[*(tags or branches or ["main"])][-1])


def search(registry: Registry, request: Request) -> Answer | None:
    """``find``, with None where there is no such kernel, version or revision."""
    repo_id, version = request.repo_id, request.version
    if version is None:
        revision = request.revision or ""
        commit = _find_revision(registry, repo_id, revision)
        return None if commit is None else Answer(request, commit, request.major)
    if request.is_branch_of_major:
        name: str | None = f"v{version}"
    else:
        name = _newest(version, registry.ref_names(repo_id))
    commit = None if name is None else registry.ref(repo_id, name)
    if name is None or commit is None:
        return None
    return Answer(request, commit, int(name[1:].partition(".")[0]))


@functools.lru_cache(maxsize=64)
def _newest(specifier: str, ref_names: tuple[str, ...]) -> str | None:
    """The tag of the newest version that a specifier allows."""
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415 - slow

    allowed, tags = SpecifierSet(specifier), versions(ref_names)
    return next((tag for _, tag in sorted(tags.items(), reverse=True) if tag[1:] in allowed), None)


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


def of_the_hub(registry: Registry) -> str:
    """Advice where only what was downloaded from a hub is seen; empty elsewhere."""
    hub = unasked_hub(registry)
    return hub and (
        f"{hub} was not asked: download it first (kernforge get), without HF_HUB_OFFLINE"
    )


def _missing_directory(registry: Registry) -> str:
    """Text about a registry whose directory does not exist: most often its name is misspelt."""
    root = getattr(registry, "root", None)
    return ": that directory does not exist" if isinstance(root, Path) and not root.is_dir() else ""


def _short(registry: Registry) -> str:
    return "hf://" if registry.url.startswith("hf+") else registry.url


class Chain:
    """Several registries as one: the first that has a kernel is used for it alone.

    The last one is used for kernels that none has, so that its errors say what is missing.
    """

    def __init__(self, registries: tuple[Registry, ...]) -> None:
        self.registries = registries
        self.url = ", then ".join(registry.url for registry in registries)

    @property
    def last(self) -> Registry:
        """The one for kernels that no other has."""
        return self.registries[-1]

    def member(self, repo_id: str) -> Registry:
        """The registry that is used for a kernel.

        Raises:
            MissingPackageError: none has it but the last, which cannot be asked here.
        """
        *others, last = self.registries
        for registry in others:
            if registry.ref_names(repo_id) or registry.commits(repo_id):
                return registry
        if lacking := getattr(last, "lacks", lambda: None)():
            asked = ", ".join(registry.url for registry in others)
            raise MissingPackageError(
                f"{repo_id} is not in your registry {asked}, and {last.url} was not asked: "
                f"{lacking.message}",
                hint=f"{lacking.hint}; or name another registry: --registry, registry=... or "
                "KERNFORGE_REGISTRY",
            )
        return last

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A method of ``Registry`` about one kernel: that of the registry that is used for it."""
        if not hasattr(Registry, name):
            raise AttributeError(name)

        def ask(repo_id: str, *arguments: str) -> Any:
            return getattr(self.member(repo_id), name)(repo_id, *arguments)

        return ask

    def offline(self) -> Registry:
        """The same, each restricted to what is on this machine."""
        return cast("Registry", Chain(tuple(registry.offline() for registry in self.registries)))


def asks_no_hub(registry: Registry) -> bool:
    """Whether a registry only looks at what is on this machine."""
    last = registry.registries[-1] if isinstance(registry, Chain) else registry
    return isinstance(last, DirectoryRegistry) or bool(unasked_hub(last))


def unasked_hub(registry: Registry) -> str:
    """The address of the hub of which a registry sees only what was downloaded; empty if none."""
    last = registry.registries[-1] if isinstance(registry, Chain) else registry
    transport = getattr(last, "transport", None)
    return str(transport.address) if transport is not None and transport.is_offline else ""


def member_for(registry: Registry, repo_id: str) -> Registry:
    """The one registry that is used for a kernel: the registry itself, or a member of it."""
    return registry.member(repo_id) if isinstance(registry, Chain) else registry
