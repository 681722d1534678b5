# SPDX-License-Identifier: Apache-2.0
"""Search for kernels, and describe one: its versions, its variants, and which would load here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kernforge.artifact import directories as artifact_directories
from kernforge.artifact.integrity import read_file
from kernforge.artifact.metadata import FILE, SIGNATURE, Metadata
from kernforge.artifact.version import in_order
from kernforge.errors import KernforgeError, RegistryError, StorageError, UsageError
from kernforge.loader.host import probe_to_load
from kernforge.loader.resolve import resolve
from kernforge.registry import api
from kernforge.registry.api import Answer
from kernforge.registry.directory import Registries, Registry
from kernforge.registry.hub import HubRegistry
from kernforge.registry.names import majors, versions
from kernforge.registry.remote import RemoteRegistry
from kernforge.system.digest import sha256
from kernforge.system.http import again
from kernforge.system.tables import counted
from kernforge.trust import signature
from kernforge.trust.policy import Subject

_SEARCH_LIMIT = 100


@dataclass(frozen=True, slots=True)
class VariantLocation:
    """A variant on disk.

    Attributes:
        link_root: directory that contains the targets of its symbolic links.
    """

    path: Path
    link_root: Path
    subject: Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundKernel:
    """A kernel in a registry or a directory.

    Attributes:
        where: repo id or path, as the user wrote it.
        answer: the commit; None for a directory.
        directories: directory of each variant by its name, for a directory.
    """

    where: str
    names: tuple[str, ...]
    answer: Answer | None = None
    directories: Mapping[str, Path] = field(default_factory=dict)

    def location(self, name: str) -> VariantLocation:
        """A variant on disk, after a download where it is needed."""
        if (answer := self.answer) is None:
            path = self.directories[name]
            return VariantLocation(path, artifact_directories.link_root(path), Subject.of(path))
        path = answer.registry.fetch(self.where, answer.commit, name)
        return VariantLocation(path, answer.registry.link_root(self.where), Subject.of(answer))

    def read(self, name: str) -> tuple[bytes, bytes | None]:
        """A variant's metadata and signature, without its other files."""
        if (answer := self.answer) is None:
            path = self.directories[name]
            root, signed = artifact_directories.link_root(path), (path / SIGNATURE).exists()
            bundle = read_file(path / SIGNATURE, within=root) if signed else None
            return read_file(path / FILE, within=root), bundle
        document = answer.registry.metadata(self.where, answer.commit, name)
        return document, answer.small_file(f"build/{name}/{SIGNATURE}")


def find(
    where: str,
    registry: Registries,
    *,
    version: int | str | None = None,
    revision: str | None = None,
) -> FoundKernel:
    """Find the kernel of a path or repo id.

    Args:
        revision: branch, tag or commit of a repo id. Without a version and a revision, the newest
            version.
    """
    directory = artifact_directories.directory_of(where)
    if directory is not None:
        if version is not None or revision is not None:
            raise UsageError(
                f"{directory} is a directory, which has no versions",
                hint="remove the version or revision",
            )
        paths = {path.name: path for path in artifact_directories.variants(directory.absolute())}
        return FoundKernel(where=where, names=tuple(paths), directories=paths)
    answer = api.find(registry, api.request_or_newest(registry, where, version, revision))
    api.refuse_moved(answer)
    names = answer.variants
    if not names:
        raise RegistryError(f"{answer} has no variants", hint="name another version")
    return FoundKernel(where=where, names=names, answer=answer)


def published_versions(registries: Registries, repo_id: str) -> list[dict[str, Any]]:
    """Every version of a kernel, oldest first: its name, its commit, its number of variants.

    Versions are tags ``vX.Y.Z``, and branches ``v<major>`` of majors that have no tag.
    """
    registry = registries.member(repo_id)
    refs = registry.refs(repo_id)
    tags = versions(refs)
    tagged = {version[0] for version in tags}
    branches = {(major, -1, -1): f"v{major}" for major in majors(refs) if major not in tagged}
    return [
        {
            "version": name[1:],
            "commit": refs[name],
            "variants": len(registry.variants(repo_id, refs[name])),
        }
        for _, name in sorted({**branches, **tags}.items())
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedKernel:
    """A kernel of a registry.

    Attributes:
        version: the newest version on this machine; empty if none has a name.
    """

    repo_id: str
    registry: str
    version: str = ""
    variants: int = 0


def search(
    registry: Registries, text: str, *, local: bool = False
) -> tuple[list[ListedKernel], dict[str, KernforgeError]]:
    """The kernels with a text in their repo id, in any case, and those that a hub finds for it.

    Args:
        local: only kernels on this machine, of a hub those in its cache, as with HF_HUB_OFFLINE.

    Returns:
        The kernels, and why a registry or a kernel could not be searched, by its URL or name.

    Raises:
        KernforgeError: nothing could be searched.
    """
    kernels: list[ListedKernel] = []
    errors: dict[str, KernforgeError] = {}
    members = (registry.offline() if local else registry).members
    for member in members:
        try:
            kernels += _search(member, text, errors)
        except KernforgeError as error:
            if len(members) == 1:
                raise
            errors[member.url] = error
    if errors and not kernels:  # nothing was found because nothing was searched
        raise next(iter(errors.values()))
    return kernels, errors


def _search(registry: Registry, text: str, errors: dict[str, KernforgeError]) -> list[ListedKernel]:
    if isinstance(registry, HubRegistry):
        matching = registry.search(text, _SEARCH_LIMIT)
        return [ListedKernel(repo_id=repo_id, registry=registry.url) for repo_id in matching]
    listed = (
        again(registry.transport.repo_ids)
        if isinstance(registry, RemoteRegistry)
        else registry.repo_ids()
    )
    if listed is None:
        errors[registry.url] = UsageError(
            f"{registry.url} does not list its kernels, only those in the cache are known",
            hint="name the kernel: kernforge info owner/name",
        )
        listed = registry.offline().repo_ids()
    kernels = []
    for repo_id in listed:
        if text.casefold() in repo_id.casefold():
            try:
                kernels.append(_listed(registry, repo_id))
            except StorageError as error:
                errors[repo_id] = error
    return [kernel for kernel in kernels if kernel.variants]  # a cache may hold a name alone


def _listed(registry: Registry, repo_id: str) -> ListedKernel:
    if published := published_versions(registry, repo_id):
        version, variants = published[-1]["version"], published[-1]["variants"]
    else:  # it was loaded by its commit
        commits = registry.commits(repo_id)[-1:]
        version, variants = "", sum(len(registry.variants(repo_id, each)) for each in commits)
    return ListedKernel(repo_id=repo_id, registry=registry.url, version=version, variants=variants)


def describe(source: FoundKernel) -> dict[str, Any]:
    """Describe a kernel for ``kernforge info``.

    Returns:
        JSON values. ``variants`` has those that would load on this machine first, the best one at
        the top.
    """
    decisions = resolve(source.names, probe_to_load()).decisions
    ranked = {decision.name: decision for decision in decisions}
    order = [*ranked, *(name for name in source.names if name not in ranked)]
    variants, documents = [], []
    for name in order:
        data, signed = source.read(name)
        metadata = Metadata.from_json(data, source=f"{source.where}/{name}/{FILE}")
        documents.append(metadata)
        decision = ranked.get(name)
        reason = decision.reason if decision else "its name is not the name of a variant"
        variants.append(
            {
                "name": name,
                "archs": None if metadata.archs is None else list(metadata.archs),
                "signed": signed is not None,
                "signer": signature.named_signer(signed) if signed else None,
                "document": sha256(data),
                "digest": metadata.digest is not None,
                "fits": decision is not None and decision.accepted,
                "reason": reason,
            }
        )
    first = documents[0]
    answer = source.answer
    return {
        **({"path": source.where} if answer is None else {"repo_id": source.where}),
        "registry": answer.registry.url if answer else None,
        "commit": answer.commit if answer else None,
        "versions": published_versions(answer.registry, source.where) if answer else [],
        "name": first.name,
        "version": first.version,
        "kernels_minver": first.kernels_minver,
        "license": first.license,
        "upstream": list(first.upstream),
        "source": first.source,
        "python_depends": sorted({name for row in documents for name in row.python_depends}),
        "kernel_depends": [asdict(depend) for depend in first.kernel_depends],
        "backends": sorted({row.backend for row in documents}),
        "would_load": next((str(row["name"]) for row in variants if row["fits"]), None),
        "variants": variants,
    }


_SHOWN = ("name", "version", "license", "upstream", "source", "kernels_minver")


def as_text(info: dict[str, Any]) -> str:
    """The description as text for people."""
    lines = [f"{info.get('repo_id') or info['path']}"]
    if info["commit"]:
        lines[0] += f" at {info['commit']} in {info['registry']}"
    shown = {**info, "upstream": ", ".join(info["upstream"])}
    lines += [f"  {key.replace('_', ' ')}: {shown[key] or '-'}" for key in _SHOWN]
    lines.append(f"  Python packages: {', '.join(info['python_depends']) or '-'}")
    needs = [f"{d['repo_id']} {d['version'] or d['revision']}" for d in info["kernel_depends"]]
    lines.append(f"  kernels: {', '.join(needs) or '-'}")
    if info["versions"]:
        lines.append(f"  versions: {', '.join(v['version'] for v in info['versions'])}")
    signers = [row["signer"] for row in info["variants"] if row["signed"]]
    lines.append(f"  signed: {len(signers)} of {counted(len(info['variants']), 'variant')}")
    lines += [f"    by {each}, not verified" for each in dict.fromkeys(signers)]
    lines.append(f"  would load here: {info['would_load'] or 'none'}")
    for row in info["variants"]:
        archs = f", {' '.join(in_order(row['archs']))}" if row["archs"] else ""
        verdict = "fits" if row["fits"] else row["reason"]
        lines.append(f"    {row['name']}{archs}: {verdict}")
    return "\n".join(lines)
