# SPDX-License-Identifier: Apache-2.0
"""The kernels on this machine, and the search for kernels in registries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernforge.audit.about import published_versions
from kernforge.errors import KernforgeError, NotPublishedError
from kernforge.registry.api import Chain
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.hub import HubRegistry
from kernforge.registry.kinds import Registry

_LIMIT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedKernel:
    """A kernel of a registry.

    Attributes:
        registry: URL of the registry.
        version: the newest version that is on this machine; empty where none has a name.
        variants: how many variants of it are on this machine.
    """

    repo_id: str
    registry: str
    version: str = ""
    variants: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The result of a search.

    Attributes:
        errors: why a registry could not be searched, by its URL.
    """

    kernels: tuple[ListedKernel, ...]
    errors: dict[str, KernforgeError]


def on_this_machine(registry: Registry, text: str = "") -> tuple[ListedKernel, ...]:
    """The kernels of a registry that are on this machine; no network is used.

    Args:
        registry: a directory, a hub (of which the cache is listed), or several of them.
        text: only those with this text in their repo id, in any case.
    """
    found = []
    for member in _members(registry):
        if isinstance(member, DirectoryRegistry | HubRegistry):
            fitting = (r for r in member.repo_ids() if text.casefold() in r.casefold())
            found += [_listed(member.offline(), repo_id) for repo_id in fitting]
    return tuple(kernel for kernel in found if kernel.variants)  # a cache may hold a name alone


def search(registry: Registry, text: str) -> Found:
    """The kernels whose repo id has a text, and for a hub those that it finds for it.

    Raises:
        KernforgeError: no registry could be searched.
    """
    kernels: list[ListedKernel] = []
    errors: dict[str, KernforgeError] = {}
    members = tuple(_members(registry))
    for member in members:
        if not isinstance(member, HubRegistry):
            kernels += on_this_machine(member, text)
            continue
        try:
            found = member.search(text, _LIMIT)
        except KernforgeError as error:
            if len(members) == 1:
                raise
            errors[member.url] = error
            continue
        kernels += [ListedKernel(repo_id=repo_id, registry=member.url) for repo_id in found]
    return Found(kernels=tuple(kernels), errors=errors)


def _members(registry: Registry) -> Iterator[Registry]:
    yield from registry.registries if isinstance(registry, Chain) else (registry,)


def _listed(registry: Registry, repo_id: str) -> ListedKernel:
    try:
        newest = published_versions(registry, repo_id)[-1:]
    except NotPublishedError:
        newest = []
    if not newest:  # it was loaded by its commit
        commits = registry.commits(repo_id)
        count = len(registry.variants(repo_id, commits[-1])) if commits else 0
        return ListedKernel(repo_id=repo_id, registry=registry.url, variants=count)
    (row,) = newest
    return ListedKernel(
        repo_id=repo_id, registry=registry.url, version=row["version"], variants=row["variants"]
    )
