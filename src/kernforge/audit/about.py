# SPDX-License-Identifier: Apache-2.0
"""Describe a kernel: its versions, its variants, and which variant would load on this machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kernforge.artifact import directories as artifact_directories
from kernforge.artifact.integrity import tree_files
from kernforge.artifact.metadata import FILE, SIGNATURE, Metadata
from kernforge.artifact.version import in_order
from kernforge.errors import IntegrityError, RegistryError, UsageError
from kernforge.loader.host import probe_to_load
from kernforge.loader.resolve import resolve
from kernforge.registry import api as registries
from kernforge.registry.api import Answer, member_for
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.kinds import Registry
from kernforge.registry.names import check_repo_id, majors, request, versions
from kernforge.registry.redirect import find_redirect
from kernforge.system.tables import size as size_text
from kernforge.trust import signature
from kernforge.trust.policy import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLocation:
    """A variant on this machine's disk.

    Attributes:
        link_root: directory that symbolic links must not leave.
        subject: the variant as a trust policy names it.
    """

    path: Path
    link_root: Path
    subject: Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutSource:
    """A kernel: a commit in a registry, or a directory (``registry`` is None).

    Attributes:
        where: repo id or path, as the user wrote it.
        names: names of the variants, sorted.
        answer: what the registry has for the version that was asked for; None for a directory.
        directories: directory of each variant by its name, for a directory.
    """

    where: str
    names: tuple[str, ...]
    registry: Registry | None = None
    answer: Answer | None = None
    directories: Mapping[str, Path] = field(default_factory=dict)

    @property
    def commit(self) -> str:
        """The commit of a repo id; empty for a directory."""
        return self.answer.commit if self.answer else ""

    @property
    def revision(self) -> str:
        """The branch, tag or commit that was asked for; empty for a directory."""
        if self.answer is None:
            return ""
        asked = self.answer.request
        named = f"v{asked.version}" if asked.is_branch_of_major else self.answer.commit
        return asked.revision or named

    def location(self, name: str) -> KernelLocation:
        """The location of a variant, which is fetched if it is not on this machine."""
        registry = self.registry
        if registry is None or self.answer is None:
            path = self.directories[name]
            return KernelLocation(path=path, link_root=_link_root(path), subject=_local(path))
        return KernelLocation(
            path=registry.fetch(self.where, self.commit, name),
            link_root=registry.link_root(self.where),
            subject=Subject(repo_id=self.where, registry=registry.url, major=self.answer.major),
        )

    def read(self, name: str) -> tuple[bytes, bytes | None]:
        """A variant's metadata and signature, without its other files."""
        if self.registry is None:
            path = self.directories[name]
            signature_file = path / SIGNATURE
            bundle = signature_file.read_bytes() if signature_file.exists() else None
            return (path / FILE).read_bytes(), bundle
        ask = (self.where, self.commit, name)
        return self.registry.metadata(*ask), self.registry.companion(*ask, SIGNATURE)


def find(
    where: str, registry: Registry, *, version: int | str | None = None, revision: str | None = None
) -> AboutSource:
    """Find the kernel of a path or repo id.

    Args:
        version: version of a repo id: a major version, ``X.Y.Z`` or a range.
        revision: branch, tag or commit of a repo id. Without a version and a revision, the newest
            version.

    Raises:
        UsageError: the path does not exist, or a version was given for a directory.
        RegistryError: the registry has no such kernel, or the directory has no variants.
    """
    directory = artifact_directories.directory_of(where)
    if directory is not None:
        if version is not None or revision is not None:
            raise UsageError(
                f"{directory} is a directory, which has no versions",
                hint="remove the version or revision",
            )
        paths = {path.name: path for path in artifact_directories.variants(directory.absolute())}
        return AboutSource(where=where, names=tuple(paths), directories=paths)
    registry = member_for(registry, check_repo_id(where))
    if version is None and revision is None:
        revision = _newest(registry, where)
    answer = registries.find(registry, request(where, version, revision))
    moved = find_redirect(registry, where, answer.commit)
    if moved is not None:
        raise RegistryError(
            f"kernel {where} moved to {moved.repo_id} (revision {moved.revision})",
            hint=f"see that this is right, and name {moved.repo_id} itself",
        )
    names = registry.variants(where, answer.commit)
    if not names:
        raise RegistryError(
            f"{where} at {answer.commit} has no variants", hint="name another version"
        )
    return AboutSource(where=where, names=names, registry=registry, answer=answer)


def _newest(registry: Registry, repo_id: str) -> str:
    names = registry.ref_names(repo_id)
    if tags := list(versions(names).values()):
        return tags[-1]
    branches = majors(names)
    return f"v{branches[-1]}" if branches else "main"


def _local(path: Path) -> Subject:
    return Subject(repo_id=None, registry=path.resolve().as_uri())


def _link_root(path: Path) -> Path:
    """The directory that links must not leave: in a cache or registry, links lead to its blobs."""
    caches = (p for p in path.parents if p.name.startswith(("kernels--", "models--")))
    return next(caches, path)


def published_versions(registry: Registry, repo_id: str) -> list[dict[str, Any]]:
    """Every version of a kernel, oldest first: its name, its commit, its number of variants.

    A tag ``vX.Y.Z`` is a version; a branch ``v<major>`` is a version if no tag has that major.

    Raises:
        RegistryError: the registry has no such kernel.
    """
    names = registry.ref_names(check_repo_id(repo_id))
    tags = versions(names)
    majors_of_tags = {version[0] for version in tags}
    branches = {
        (major, -1, -1): f"v{major}" for major in majors(names) if major not in majors_of_tags
    }
    listed = []
    for _, name in sorted({**branches, **tags}.items()):
        commit = registry.ref(repo_id, name)
        if commit is not None:
            variants = len(registry.variants(repo_id, commit))
            listed.append({"version": name[1:], "commit": commit, "variants": variants})
    if not listed:
        registries.find(registry, request(repo_id, revision="main"))  # raises an error with a hint
    return listed


def describe(source: AboutSource, backend: str | None = None) -> dict[str, Any]:
    """Describe a kernel for ``kernforge info``.

    Args:
        backend: the backend to load for, such as ``cuda``; None for that of the installed torch.

    Returns:
        JSON values. ``variants`` has those that would load on this machine first, the best one at
        the top.

    Raises:
        IntegrityError: a ``metadata.json`` cannot be read.
    """
    decisions = resolve(source.names, probe_to_load(backend)).decisions
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
                "bytes": _bytes(source, name),
                "archs": None if metadata.archs is None else list(metadata.archs),
                "signature": _kind(signed),
                "digest": metadata.digest is not None,
                "fits": decision is not None and decision.accepted,
                "reason": reason,
            }
        )
    first = documents[0]
    registry = source.registry
    return {
        **({"path": source.where} if registry is None else {"repo_id": source.where}),
        "registry": None if registry is None else registry.url,
        "commit": source.commit or None,
        "revision": source.revision or None,
        "versions": [] if registry is None else published_versions(registry, source.where),
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


def _bytes(source: AboutSource, name: str) -> int | None:
    """Size of a variant's files in bytes; None if they would have to be fetched first."""
    if source.registry is not None and not isinstance(source.registry, DirectoryRegistry):
        return None
    location = source.location(name)
    files = tree_files(location.path, within=location.link_root)
    return sum(path.stat().st_size for path in files.values())


def _kind(bundle: bytes | None) -> str | None:
    """The kind of a signature, which only ``verify`` proves."""
    if bundle is None:
        return None
    try:
        return "key" if signature.is_key_bundle(bundle) else "identity"
    except IntegrityError:
        return "unreadable"


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
    kinds = Counter(row["signature"] or "none" for row in info["variants"])
    lines.append("  signatures: " + ", ".join(f"{kind} ({n})" for kind, n in kinds.items()))
    lines.append(f"  would load here: {info['would_load'] or 'none'}")
    for row in info["variants"]:
        size = "" if row["bytes"] is None else f", {size_text(row['bytes'])}"
        archs = f", {' '.join(in_order(row['archs']))}" if row["archs"] else ""
        verdict = "fits" if row["fits"] else row["reason"]
        lines.append(f"    {row['name']}{size}{archs}: {verdict}")
    return "\n".join(lines)
