# SPDX-License-Identifier: Apache-2.0
"""Put built variants into a registry as a version that never changes what it holds.

Everything that a reference will name is written first, the references last and each by one atomic
write: a reader sees the old version or the new one, and a publisher that dies leaves the old.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge import offers
from kernforge.digest import sha256
from kernforge.errors import IntegrityError, RegistryError, UsageError
from kernforge.integrity import UNHASHED, tree_files, verify_tree
from kernforge.metadata import FILE, Metadata
from kernforge.promise import Choice, choose, dotted
from kernforge.registry import DirectoryRegistry, Registry, Version3, versions
from kernforge.variant import Variant

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kernforge.apidiff import Offer
    from kernforge.promise import Contents

_VERSION = re.compile(r"v?(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")
_CARD = "README.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishResult:
    """What a publication came to.

    Attributes:
        commit: what the version names now.
        version: as in ``1.0.2``.
        changed: whether the registry differs from before.
        variants: all that the version holds, sorted.
        url: of the commit.
        choice: why it is this version, and what changed since the last.
    """

    commit: str
    version: str
    changed: bool
    variants: tuple[str, ...]
    url: str
    choice: Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class _Built:
    """A variant on its way: its document, and its files with their hashes."""

    name: str
    directory: Path
    metadata: Metadata
    files: Mapping[str, Path]
    hashes: Mapping[str, str]


def publish(
    build_dir: Path,
    registry: Registry,
    repo_id: str,
    version: str | None = None,
    *,
    card: str | None = None,
    part: bool = False,
) -> PublishResult:
    """Publish the variants of a build.

    Without a version: nothing changes if the newest version of this major has just these bytes;
    variants that it lacks are added to it, so that machines of a farm can each publish what they
    built; any variant with other bytes makes the next version, patch or minor by what changed,
    which holds the variants of this call alone.

    A version is held against the one before it of the same major version, see ``apidiff``: it is
    refused when its number promises more than it keeps.

    Args:
        build_dir: the directory that holds variants, or one variant.
        registry: one that can be written to.
        repo_id: ``owner/name``.
        version: ``X.Y.Z``; X must be the major version of the build.
        card: Markdown that describes the kernel; None keeps the version's.
        part: whether other machines publish the rest of the version, so that a variant which is
            missing is no broken promise.

    Raises:
        UsageError: the repo id or the version is impossible.
        RegistryError: the variants do not belong together, the version holds other bytes, or it
            breaks the promise of its number.
        CheckError: the public names of a variant cannot be read.
        IntegrityError: a variant is not what was built, or does not say what it was.
    """
    wanted = None if version is None else _parse_version(version)
    built = _read_all(build_dir, wanted)
    registry = _writable(registry)
    with registry.writing(repo_id):
        published = _published(registry, repo_id)
        choice = _choose(registry, repo_id, published, built, wanted, part=part)
        chosen, contents = choice.version, choice.contents
        tree = {
            f"build/{name}/{path}": digest
            for name, paths in contents.items()
            for path, digest in paths.items()
        }
        tree |= _card(registry, repo_id, chosen, card)
        for variant in built:
            for path, file in variant.files.items():
                registry.add_blob(repo_id, variant.hashes[path], file)
        commit, created = registry.add_snapshot(repo_id, tree)
        moved = _set_refs(registry, repo_id, {*published, chosen}, chosen, commit)
    return PublishResult(
        commit=commit,
        version=dotted(chosen),
        changed=created or moved,
        variants=tuple(sorted(contents)),
        url=registry.snapshot(repo_id, commit).as_uri(),
        choice=choice,
    )


def preview(
    build_dir: Path,
    registry: Registry,
    repo_id: str,
    version: str | None = None,
    *,
    part: bool = False,
) -> Choice:
    """What ``publish`` would publish, and as which version; nothing is written.

    The arguments and errors are those of ``publish``.
    """
    wanted = None if version is None else _parse_version(version)
    built = _read_all(build_dir, wanted)
    published = _published(_writable(registry), repo_id)
    return _choose(registry, repo_id, published, built, wanted, part=part)


def _writable(registry: Registry) -> DirectoryRegistry:
    if not isinstance(registry, DirectoryRegistry):
        raise RegistryError(
            f"{registry.url} cannot be written to", hint="publish to a directory, then copy it"
        )
    return registry


def _choose(
    registry: Registry,
    repo_id: str,
    published: Mapping[Version3, Contents],
    built: list[_Built],
    wanted: Version3 | None,
    *,
    part: bool,
) -> Choice:
    def offered(version: Version3) -> tuple[Offer, ...]:
        commit = registry.ref(repo_id, _tag(version))
        return () if commit is None else offers.published(registry, repo_id, commit)

    return choose(
        published,
        {variant.name: variant.hashes for variant in built},
        [offers.offer(variant.directory, variant.metadata) for variant in built],
        offered,
        major=built[0].metadata.version,
        wanted=wanted,
        part=part,
    )


def _parse_version(text: str) -> Version3:
    match = _VERSION.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is no version to publish", hint="write it like 1.2.3")
    return int(match[1]), int(match[2]), int(match[3])


def _read_all(build_dir: Path, wanted: Version3 | None) -> list[_Built]:
    built = [_read(directory) for directory in _variant_dirs(build_dir)]
    _check_together(built, wanted)
    return built


def _variant_dirs(build_dir: Path) -> list[Path]:
    if (build_dir / FILE).is_file():
        return [build_dir]
    found = [path.parent for path in sorted(build_dir.glob(f"*/{FILE}"))]
    if not found:
        raise RegistryError(f"{build_dir} holds no built variant", hint="run kernforge build")
    return found


def _read(directory: Path) -> _Built:
    """One variant, verified."""
    name = str(Variant.parse(directory.name))
    if name != directory.name:
        raise RegistryError(f"{directory} should be called {name}", hint="build the kernel again")
    document = (directory / FILE).read_bytes()
    metadata = Metadata.from_json(document, source=str(directory / FILE))
    digest = metadata.digest
    if digest is None or digest.algorithm != "sha256":
        raise IntegrityError(
            f"{directory / FILE} has no SHA-256 digest", hint="build the kernel with kernforge"
        )
    verify_tree(directory, digest)
    hashes = {path: base64.b64decode(text).hex() for path, text in digest.files.items()}
    found = tree_files(directory)
    hashes |= {path: sha256(found[path].read_bytes()) for path in UNHASHED & set(found)}
    return _Built(name=name, directory=directory, metadata=metadata, files=found, hashes=hashes)


def _check_together(built: list[_Built], wanted: Version3 | None) -> None:
    """Refuse variants that are not of one kernel and major version."""
    said = {(variant.metadata.name, variant.metadata.version) for variant in built}
    if len(said) > 1:
        listing = "; ".join(
            f"{v.name} is {v.metadata.name} version {v.metadata.version}" for v in built
        )
        raise RegistryError(
            f"the variants are not of one kernel and version: {listing}",
            hint="remove the old ones from the build directory, or build all again",
        )
    major = built[0].metadata.version
    if wanted is not None and wanted[0] != major:
        raise UsageError(
            f"version {dotted(wanted)} does not begin with {major}, the major version of the build",
            hint=f"publish as {major}.Y.Z, or raise version in build.toml and build again",
        )


def _published(registry: DirectoryRegistry, repo_id: str) -> dict[Version3, Contents]:
    """What every published version holds."""
    found: dict[Version3, Contents] = {}
    for version, tag in versions(registry.ref_names(repo_id)).items():
        contents: dict[str, dict[str, str]] = {}
        commit = registry.ref(repo_id, tag)
        tree = {} if commit is None else registry.tree(repo_id, commit)
        for path, digest in tree.items():
            if path.startswith("build/") and path.count("/") > 1:
                _, name, inner = path.split("/", 2)
                contents.setdefault(name, {})[inner] = digest
        found[version] = contents
    return found


def _card(
    registry: DirectoryRegistry, repo_id: str, version: Version3, card: str | None
) -> dict[str, str]:
    """The card's part of the tree: the one given, or the one that the version has."""
    if card is not None:
        digest = sha256(card)
        registry.add_blob(repo_id, digest, card.encode())
        return {_CARD: digest}
    commit = registry.ref(repo_id, _tag(version))
    tree = {} if commit is None else registry.tree(repo_id, commit)
    return {_CARD: tree[_CARD]} if _CARD in tree else {}


def _set_refs(
    registry: DirectoryRegistry,
    repo_id: str,
    published: set[Version3],
    chosen: Version3,
    commit: str,
) -> bool:
    """Move the tag, then the branch of its major version, then main, each to its newest version.

    A publisher killed between two of them is mended by the next: all three follow from the tags.
    """
    moved = registry.set_ref(repo_id, _tag(chosen), commit)
    newest_of_major = max(version for version in published if version[0] == chosen[0])
    for name, version in ((f"v{chosen[0]}", newest_of_major), ("main", max(published))):
        target = registry.ref(repo_id, _tag(version)) or commit
        moved = registry.set_ref(repo_id, name, target) or moved
    return moved


def _tag(version: Version3) -> str:
    return "v" + ".".join(map(str, version))
