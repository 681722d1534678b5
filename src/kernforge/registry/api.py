# SPDX-License-Identifier: Apache-2.0
"""The protocol of registries, and the functions that open one by its path or URL."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

from kernforge.errors import MissingPackageError, RegistryError, RequestError
from kernforge.registry import hub_endpoint
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.names import COMMIT, versions
from kernforge.system.environment import Environment

_PREFIX = re.compile(r"[0-9a-f]{7,}")


class Registry(Protocol):
    """What a loader needs of a registry.

    Every method may raise ``RegistryError`` or ``NetworkError``. Asking for what does not exist is
    not an error where the result can say so: None, or an empty tuple.
    """

    @property
    def url(self) -> str:
        """Its URL, for people to read."""
        ...

    def ref(self, repo_id: str, name: str) -> str | None:
        """The commit that a branch or tag names."""
        ...

    def ref_names(self, repo_id: str) -> tuple[str, ...]:
        """All branches and tags, sorted."""
        ...

    def commits(self, repo_id: str) -> tuple[str, ...]:
        """The commits that can be listed, sorted: all, or those that a reference names."""
        ...

    def has_commit(self, repo_id: str, commit: str) -> bool:
        """Whether there is a commit of this whole name."""
        ...

    def variants(self, repo_id: str, commit: str) -> tuple[str, ...]:
        """The names of a commit's variants, sorted."""
        ...

    def metadata(self, repo_id: str, commit: str, variant: str) -> bytes:
        """The bytes of a variant's ``metadata.json``, without fetching the rest."""
        ...

    def companion(self, repo_id: str, commit: str, variant: str, name: str) -> bytes | None:
        """The bytes of a small file beside ``metadata.json``, such as its signature; None without.

        A file that exists and cannot be read is an error: a signature that a broken network hides
        is not a missing signature.
        """
        ...

    def trusted_publisher(self, owner: str) -> bool | None:
        """Whether the registry itself vouches for an owner; None where it never does.

        Raises:
            NetworkError: the registry cannot be reached.
        """
        ...

    def small_file(self, repo_id: str, commit: str, path: str) -> bytes | None:
        """The bytes of a small file of a commit, by its path; None without."""
        ...

    def source(self, repo_id: str, commit: str) -> Path | None:
        """A local directory with the project that the variants were built from; None without."""
        ...

    def folder(self, repo_id: str, commit: str, name: str) -> Path | None:
        """A local directory with a folder at the top of a commit, whole; None without."""
        ...

    def offline(self) -> Registry:
        """The same registry, restricted to what is on this machine."""
        ...

    def fetch(self, repo_id: str, commit: str, variant: str) -> Path:
        """A local directory with the variant's files, not yet verified."""
        ...

    def link_root(self, repo_id: str) -> Path:
        """The directory that no file of ``fetch`` may lie outside of."""
        ...


def open_registry(location: str, environment: Environment | None = None) -> Registry:
    """The registry at a path or a URL.

    - a path, or ``file:///path``: a directory;
    - ``hf://``: the Hugging Face hub, or the one that ``HF_ENDPOINT`` names;
    - ``hf+https://host``, ``hf+http://host:port``: a hub at that address.

    Args:
        location: the path or URL.
        environment: says which hub and which cache; None reads this process's variables.

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
        return _hub(location, tuple(variables.get(name) for name in hub_endpoint.VARIABLES))
    raise RegistryError(
        f"{location!r} is not a registry that kernforge can open",
        hint="name a directory, file:///path, hf:// for the Hugging Face hub, or hf+https://host "
        "for another one",
    )


def open_default(environment: Environment) -> Registry:
    """The registry for a caller who names none.

    It is ``KERNFORGE_REGISTRY`` and nothing else where that is set. Otherwise the user's own
    directory (and the one where it lay once, if there is one), and the hub for kernels that the
    directory does not hold.
    """
    if chosen := environment.kernforge_registry:
        return open_registry(chosen, environment)
    former = environment.former_registry
    own = [environment.own_registry, *([former] if former and former.is_dir() else [])]
    chain = Chain((*(_directory(str(path)) for path in own), open_registry("hf://", environment)))
    return cast("Registry", chain)  # by Chain.__getattr__


@functools.lru_cache(maxsize=64)
def _directory(path: str) -> DirectoryRegistry:
    return DirectoryRegistry(Path(path))


@functools.lru_cache(maxsize=64)
def _hub(location: str, values: tuple[str | None, ...]) -> Registry:
    from kernforge.registry.hub import HubRegistry  # noqa: PLC0415 - a directory needs none of it

    named = zip(hub_endpoint.VARIABLES, values, strict=True)
    environment = Environment({name: value for name, value in named if value is not None})
    return HubRegistry(hub_endpoint.find(location, environment))


def _unquote(text: str) -> str:
    """Undo the percent signs of a URL's path."""
    raw = re.sub(rb"%([0-9A-Fa-f]{2})", lambda m: bytes.fromhex(m[1].decode()), os.fsencode(text))
    return os.fsdecode(raw)


def find_version(registry: Registry, repo_id: str, version: int | str) -> str | None:
    """The commit of a version; None when there is no such version.

    Args:
        version: a major version (a branch), as a number or its digits; ``"1.2.3"``, exactly; or
            a PEP 440 specifier such as ``"~=1.2"`` or ``">=1.1,<2"``, of which the newest wins.

    Raises:
        RequestError: the specifier cannot be read.
    """
    if isinstance(version, int) or version.isdecimal():
        return registry.ref(repo_id, f"v{int(version)}")
    tag = _newest(version, registry.ref_names(repo_id))
    return None if tag is None else registry.ref(repo_id, tag)


@functools.lru_cache(maxsize=64)
def _newest(specifier: str, ref_names: tuple[str, ...]) -> str | None:
    """The tag of the newest version that a specifier allows."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415 - slow

    exact = re.fullmatch(r"v?([0-9]+(?:\.[0-9]+)*)", specifier)
    try:
        allowed = SpecifierSet(f"=={exact[1]}" if exact else specifier)
    except InvalidSpecifier:
        raise RequestError(
            f"{specifier!r} is not a version",
            hint='write a major version like 1, or a range like "~=1.2" or ">=1.1,<2"',
        ) from None
    tags = versions(ref_names)
    return next((tag for _, tag in sorted(tags.items(), reverse=True) if tag[1:] in allowed), None)


def find_revision(registry: Registry, repo_id: str, revision: str) -> str | None:
    """The commit of a branch, a tag, a commit or the first digits (7 or more) of one; else None.

    Digits are completed to the commits that the registry lists; a hub lists those that a branch
    or tag names.

    Raises:
        RegistryError: several commits begin so.
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
            f"{revision!r} begins several commits of {repo_id}: {', '.join(commits)}",
            hint="write more digits",
        )
    return commits[0] if commits else None


class Chain:
    """Several registries as one: the first that has a kernel is used for it alone.

    The last one is used for kernels that none has, so that its errors say what is missing.
    """

    def __init__(self, registries: tuple[Registry, ...]) -> None:
        self.registries = registries
        self.url = ", then ".join(registry.url for registry in registries)

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
        if name not in vars(Registry):
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
    endpoint = getattr(last, "endpoint", None)
    return str(endpoint.url) if endpoint is not None and endpoint.offline else ""


def member_for(registry: Registry, repo_id: str) -> Registry:
    """The one registry that is used for a kernel: the registry itself, or a member of it."""
    return registry.member(repo_id) if isinstance(registry, Chain) else registry
