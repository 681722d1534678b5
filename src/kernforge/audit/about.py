# SPDX-License-Identifier: Apache-2.0
"""What is known of a kernel: its versions, its variants, and which of them would load here."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kernforge.artifact import directories as artifact_directories
from kernforge.artifact.integrity import tree_files
from kernforge.artifact.metadata import SIGNATURE, Metadata
from kernforge.errors import IntegrityError, RegistryError, UsageError
from kernforge.loader.host import probe
from kernforge.loader.resolve import resolve
from kernforge.loader.search import find_commit
from kernforge.registry.api import Registry, answering
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.names import check_repo_id, majors, versions
from kernforge.trust import signature
from kernforge.trust.policy import Subject

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A variant on this disk.

    Attributes:
        path: its directory.
        fence: where its links may lead.
        subject: what a trust policy calls it.
        vouched: whether its registry vouches for its owner; None where it vouches for nobody.
    """

    path: Path
    fence: Path
    subject: Subject
    vouched: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A kernel that was named: a commit in a registry, or a directory (``registry`` is None).

    Attributes:
        where: as it was named.
        names: its variants, sorted.
        directories: of a directory: each variant's.
    """

    where: str
    names: tuple[str, ...]
    registry: Registry | None = None
    commit: str = ""
    directories: tuple[Path, ...] = ()

    def place(self, name: str) -> Place:
        """A variant, fetched if need be."""
        registry = self.registry
        if registry is None:
            path = self.directories[self.names.index(name)]
            return Place(path=path, fence=_fence(path), subject=_local(path))
        return Place(
            path=registry.fetch(self.where, self.commit, name),
            fence=registry.fence(self.where),
            subject=Subject(repo_id=self.where, registry=registry.url),
            vouched=registry.trusted_publisher(self.where.partition("/")[0]),
        )

    def read(self, name: str) -> tuple[bytes, bytes | None]:
        """A variant's document and signature, without the rest of it."""
        if self.registry is None:
            path = self.directories[self.names.index(name)]
            beside = path / SIGNATURE
            signed = beside.read_bytes() if beside.exists() else None
            return (path / "metadata.json").read_bytes(), signed
        ask = (self.where, self.commit, name)
        return self.registry.metadata(*ask), self.registry.companion(*ask, SIGNATURE)


def find(
    where: str,
    registry: Registry,
    *,
    version: int | str | None = None,
    revision: str | None = None,
) -> Source:
    """The kernel that was named.

    Args:
        where: a path or a repo id.
        registry: where repo ids are looked up.
        version: of a repo id, as for ``get_kernel``.
        revision: of a repo id, instead; neither means the newest version.

    Raises:
        UsageError: there is nothing of that name, or a directory was asked for a version.
        RegistryError: the registry has no such kernel, or the directory no variants.
    """
    directory = artifact_directories.directory_of(where)
    if directory is not None:
        if version is not None or revision is not None:
            raise UsageError(
                f"{directory} is a directory, and has no versions", hint="leave them out"
            )
        found = artifact_directories.variants(directory.absolute())
        names = tuple(path.name for path in found)
        return Source(where=where, names=names, directories=tuple(found))
    registry = answering(registry, check_repo_id(where))
    if version is None and revision is None:
        revision = _newest(registry, where)
    commit = find_commit(registry, where, version, revision)
    names = registry.variants(where, commit)
    if not names:
        raise RegistryError(f"{where} at {commit} holds no variants", hint="name another version")
    return Source(where=where, names=names, registry=registry, commit=commit)


def _newest(registry: Registry, repo_id: str) -> str:
    names = registry.ref_names(repo_id)
    if tags := list(versions(names).values()):
        return tags[-1]
    branches = majors(names)
    return f"v{branches[-1]}" if branches else "main"


def _local(path: Path) -> Subject:
    return Subject(repo_id=None, registry=path.resolve().as_uri())


def _fence(path: Path) -> Path:
    """In a cache or registry that the user points into, links lead to its blobs."""
    caches = (p for p in path.parents if p.name.startswith(("kernels--", "models--")))
    return next(caches, path)


# -- what is told -----------------------------------------------------------------------------


def published_versions(registry: Registry, repo_id: str) -> list[dict[str, Any]]:
    """Every version of a kernel, oldest first: its name, its commit, how many variants it has.

    A tag ``vX.Y.Z`` is a version; a branch ``v<major>`` is one where no tag has that major.

    Raises:
        RegistryError: the registry has no such kernel.
    """
    names = registry.ref_names(check_repo_id(repo_id))
    tags = versions(names)
    majors_of_tags = {version[0] for version in tags}
    found = {(major, -1, -1): f"v{major}" for major in majors(names) if major not in majors_of_tags}
    listed = []
    for _, name in sorted({**found, **tags}.items()):
        commit = registry.ref(repo_id, name)
        if commit is not None:
            variants = len(registry.variants(repo_id, commit))
            listed.append({"version": name[1:], "commit": commit, "variants": variants})
    if not listed:
        find_commit(registry, repo_id, None, "main")  # raises, with advice, when there is nothing
    return listed


def describe(source: Source, backend: str | None = None) -> dict[str, Any]:
    """All that is known of a kernel, for ``kernforge info``.

    Args:
        source: the kernel.
        backend: as for ``get_kernel``; what would load here depends on it.

    Returns:
        JSON values. ``variants`` has those that would load here first, the best at the top.

    Raises:
        IntegrityError: a document cannot be read.
    """
    decisions = resolve(source.names, probe(backend)).decisions
    ranked = {decision.name: decision for decision in decisions}
    order = [*ranked, *(name for name in source.names if name not in ranked)]
    variants, documents = [], []
    for name in order:
        data, signed = source.read(name)
        metadata = Metadata.from_json(data, source=f"{source.where}/{name}/metadata.json")
        documents.append(metadata)
        decision = ranked.get(name)
        fits = decision is not None and decision.accepted
        reason = decision.reason if decision else "its name is no variant's"
        variants.append(
            {
                "name": name,
                "bytes": _bytes(source, name),
                "archs": None if metadata.archs is None else list(metadata.archs),
                "signature": _kind(signed),
                "digest": metadata.digest is not None,
                "fits": fits,
                "reason": reason,
            }
        )
    first = documents[0]
    registry = source.registry
    return {
        **({"path": source.where} if registry is None else {"repo_id": source.where}),
        "registry": None if registry is None else registry.url,
        "commit": source.commit or None,
        "versions": [] if registry is None else published_versions(registry, source.where),
        "name": first.name,
        "version": first.version,
        "kernels_minver": first.kernels_minver,
        "license": first.license,
        "upstream": first.upstream,
        "source": first.source,
        "python_depends": sorted({name for one in documents for name in one.python_depends}),
        "kernel_depends": [asdict(depend) for depend in first.kernel_depends],
        "backends": sorted({one.backend for one in documents}),
        "would_load": next((str(one["name"]) for one in variants if one["fits"]), None),
        "variants": variants,
    }


def _bytes(source: Source, name: str) -> int | None:
    """Size of a variant's files; None where they would have to be fetched to know."""
    if source.registry is not None and not isinstance(source.registry, DirectoryRegistry):
        return None
    place = source.place(name)
    found = tree_files(place.path, within=place.fence)
    return sum(path.stat().st_size for path in found.values())


def _kind(bundle: bytes | None) -> str | None:
    """With what a variant says it is signed; ``verify`` proves it."""
    if bundle is None:
        return None
    try:
        return "key" if signature.is_key_bundle(bundle) else "identity"
    except IntegrityError:
        return "unreadable"


_MB = 1_000_000
_TOLD = ("name", "version", "license", "upstream", "source", "kernels_minver")


def as_text(info: dict[str, Any]) -> str:
    """The description for people."""
    lines = [f"{info.get('repo_id') or info['path']}"]
    if info["commit"]:
        lines[0] += f" at {info['commit']} in {info['registry']}"
    lines += [f"  {key.replace('_', ' ')}: {info[key] or '-'}" for key in _TOLD]
    lines.append(f"  Python packages: {', '.join(info['python_depends']) or '-'}")
    needs = [f"{d['repo_id']} {d['version'] or d['revision']}" for d in info["kernel_depends"]]
    lines.append(f"  kernels: {', '.join(needs) or '-'}")
    if info["versions"]:
        lines.append(f"  versions: {', '.join(v['version'] for v in info['versions'])}")
    kinds = Counter(one["signature"] or "none" for one in info["variants"])
    lines.append("  signatures: " + ", ".join(f"{kind} ({n})" for kind, n in kinds.items()))
    lines.append(f"  would load here: {info['would_load'] or 'none'}")
    for one in info["variants"]:
        size = "" if one["bytes"] is None else f", {one['bytes'] / _MB:.2f} MB"
        archs = f", {' '.join(one['archs'])}" if one["archs"] else ""
        said = "fits" if one["fits"] else one["reason"]
        lines.append(f"    {one['name']}{size}{archs}: {said}")
    return "\n".join(lines)
