# SPDX-License-Identifier: Apache-2.0
"""Where kernels are published: one protocol, and a directory that needs no server.

A directory registry is laid out as the cache of ``huggingface_hub``, so that the hub's client
loads from it with ``KERNELS_CACHE`` pointed at it, and this loader from a cache that the hub's
client filled::

    kernels--<owner>--<name>/
        blobs/<sha256>                     every file once
        snapshots/<commit>/build/<variant>/<file> -> ../../../../blobs/<sha256>
        refs/v1, refs/v1.2.3, refs/main    the name of a commit each

A commit never changes; a reference changes by one atomic write; nothing is ever removed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from kernforge import files
from kernforge.digest import key
from kernforge.errors import RegistryError, UsageError
from kernforge.integrity import is_bytecode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Version3: TypeAlias = tuple[int, int, int]
"""Major, minor and patch of a published version."""

_REPO_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*")
_TAG = re.compile(r"v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")
_BRANCH = re.compile(r"v(0|[1-9][0-9]*)")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_REF = re.compile(r"(?!.*(?:^|/)\.)[A-Za-z0-9._/+-]+")
_PREFIX = re.compile(r"[0-9a-f]{7,}")


class Registry(Protocol):
    """What a loader asks a registry.

    Every method may raise ``RegistryError`` or ``NetworkError``. Asking for what is not there is
    no error where the answer can say so: None or nothing.
    """

    @property
    def url(self) -> str:
        """Where it is, for people to read."""
        ...

    def ref(self, repo_id: str, name: str) -> str | None:
        """The commit that a branch or tag names."""
        ...

    def ref_names(self, repo_id: str) -> tuple[str, ...]:
        """All branches and tags, sorted."""
        ...

    def commits(self, repo_id: str) -> tuple[str, ...]:
        """All commits, sorted."""
        ...

    def variants(self, repo_id: str, commit: str) -> tuple[str, ...]:
        """The names of a commit's variants, sorted."""
        ...

    def metadata(self, repo_id: str, commit: str, variant: str) -> bytes:
        """The bytes of a variant's ``metadata.json``, without fetching the rest."""
        ...

    def companion(self, repo_id: str, commit: str, variant: str, name: str) -> bytes | None:
        """The bytes of a small file beside ``metadata.json``, such as its signature; None without.

        What cannot be read for another reason than that it is not there is an error: a signature
        that a broken network hides is not a signature that is missing.
        """
        ...

    def trusted_publisher(self, owner: str) -> bool | None:
        """Whether the registry itself vouches for an owner; None where it vouches for nobody.

        Raises:
            NetworkError: it could not be asked.
        """
        ...

    def fetch(self, repo_id: str, commit: str, variant: str) -> Path:
        """A local directory with the variant's files, not yet verified."""
        ...

    def fence(self, repo_id: str) -> Path:
        """The directory that no file of ``fetch`` may lie outside of."""
        ...


def open_registry(location: str) -> DirectoryRegistry:
    """The registry at a path or a ``file://`` URL.

    Raises:
        RegistryError: the URL is of a kind that there is no registry for.
    """
    scheme, separator, rest = location.partition("://")
    if not separator:
        return _directory(os.path.abspath(os.path.expanduser(location)))  # noqa: PTH100, PTH111
    if scheme == "file" and rest.startswith("/"):
        return _directory(_unquote(rest))
    raise RegistryError(
        f"{location!r} is no registry that kernforge can open",
        hint="name a directory, or a URL of the form file:///path",
    )


@functools.lru_cache(maxsize=64)
def _directory(path: str) -> DirectoryRegistry:
    return DirectoryRegistry(Path(path))


def _unquote(text: str) -> str:
    """Undo the percent signs of a URL's path."""
    raw = re.sub(rb"%([0-9A-Fa-f]{2})", lambda m: bytes.fromhex(m[1].decode()), text.encode())
    return raw.decode()


def check_repo_id(repo_id: str) -> str:
    """The repo id, if it is ``owner/name``.

    Raises:
        UsageError: it is not, or it could name something outside of the registry.
    """
    if not _REPO_ID.fullmatch(repo_id) or "--" in repo_id or ".." in repo_id:
        raise UsageError(f"{repo_id!r} is no repo id", hint="write it like owner/name")
    return repo_id


def versions(ref_names: Iterable[str]) -> dict[Version3, str]:
    """The published versions among references and the tag of each, oldest first."""
    matches = ((_TAG.fullmatch(name), name) for name in ref_names)
    found = {(int(m[1]), int(m[2]), int(m[3])): name for m, name in matches if m}
    return dict(sorted(found.items()))


def majors(ref_names: Iterable[str]) -> tuple[int, ...]:
    """The major versions that have a branch, ascending."""
    return tuple(sorted(int(m[1]) for name in ref_names if (m := _BRANCH.fullmatch(name))))


def find_version(registry: Registry, repo_id: str, version: int | str) -> str | None:
    """The commit of a version.

    Args:
        registry: where to look.
        repo_id: ``owner/name``.
        version: a major version (a branch), as a number or its digits; ``"1.2.3"``, exactly; or
            a PEP 440 specifier such as ``"~=1.2"`` or ``">=1.1,<2"``, of which the newest wins.

    Raises:
        UsageError: the specifier cannot be read.
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
        raise UsageError(
            f"{specifier!r} is no version",
            hint='write a major version like 1, or a range like "~=1.2" or ">=1.1,<2"',
        ) from None
    tags = versions(ref_names)
    return next((tag for _, tag in sorted(tags.items(), reverse=True) if tag[1:] in allowed), None)


def find_revision(registry: Registry, repo_id: str, revision: str) -> str | None:
    """The commit of a branch, a tag, a commit or the first digits (7 or more) of one.

    Raises:
        RegistryError: several commits begin so.
    """
    if commit := registry.ref(repo_id, revision):
        return commit
    if not _PREFIX.fullmatch(revision):
        return None
    found = [commit for commit in registry.commits(repo_id) if commit.startswith(revision)]
    if len(found) > 1:
        raise RegistryError(
            f"{revision!r} begins several commits of {repo_id}: {', '.join(found)}",
            hint="write more digits",
        )
    return found[0] if found else None


class DirectoryRegistry:
    """A registry in a directory; see the module for its layout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = root.as_uri()
        # Plain strings: on the way to a kernel that is loaded, a Path is most of the time.
        self._root = os.fspath(root)

    def repo(self, repo_id: str) -> Path:
        """The directory of one kernel."""
        return Path(self._repo(repo_id))

    def _repo(self, repo_id: str) -> str:
        return f"{self._root}/kernels--{check_repo_id(repo_id).replace('/', '--')}"

    def fence(self, repo_id: str) -> Path:
        """The kernel's directory: links lead to its blobs."""
        return self.repo(repo_id)

    def ref(self, repo_id: str, name: str) -> str | None:
        """The commit that a branch or tag names; None when there is none."""
        if not _REF.fullmatch(name):
            return None
        path = f"{self._repo(repo_id)}/refs/{name}"
        try:
            with open(path, "rb", buffering=0) as stream:  # noqa: PTH123 - see __init__
                commit = stream.read().decode(errors="replace").strip()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None
        if not _COMMIT.fullmatch(commit):
            raise RegistryError(
                f"{path} holds {commit!r}, which is no commit", hint="publish the kernel again"
            )
        return commit

    def ref_names(self, repo_id: str) -> tuple[str, ...]:
        """All branches and tags, sorted."""
        return _names(self.repo(repo_id) / "refs", is_dir=False)

    def commits(self, repo_id: str) -> tuple[str, ...]:
        """All commits, sorted."""
        names = _names(self.repo(repo_id) / "snapshots", is_dir=True)
        return tuple(name for name in names if _COMMIT.fullmatch(name))

    def variants(self, repo_id: str, commit: str) -> tuple[str, ...]:
        """The names of a commit's variants, sorted."""
        return _names(self.snapshot(repo_id, commit) / "build", is_dir=True)

    def snapshot(self, repo_id: str, commit: str) -> Path:
        """The directory of a commit."""
        return self.repo(repo_id) / "snapshots" / commit

    def fetch(self, repo_id: str, commit: str, variant: str) -> Path:
        """The directory of a variant."""
        return self.snapshot(repo_id, commit) / "build" / variant

    def metadata(self, repo_id: str, commit: str, variant: str) -> bytes:
        """The bytes of a variant's ``metadata.json``."""
        path = self.fetch(repo_id, commit, variant) / "metadata.json"
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise RegistryError(f"{path} is missing", hint="publish the kernel again") from None

    def companion(self, repo_id: str, commit: str, variant: str, name: str) -> bytes | None:
        """The bytes of a small file beside ``metadata.json``; None without."""
        try:
            return (self.fetch(repo_id, commit, variant) / name).read_bytes()
        except FileNotFoundError:
            return None

    def trusted_publisher(self, owner: str) -> bool | None:  # noqa: ARG002 - the protocol's
        """None: who may write to a directory is the file system's affair."""
        return None

    @contextlib.contextmanager
    def writing(self, repo_id: str) -> Iterator[None]:
        """Be the only one who writes to this kernel; what a killed writer left is removed."""
        repo = self.repo(repo_id)
        with files.locked(self.root / ".locks" / f"{repo.name}.lock"):
            for leftover in repo.glob("*/tmp-*"):
                files.remove_tree(leftover)
            yield

    def tree(self, repo_id: str, commit: str) -> dict[str, str]:
        """A commit's files: path relative to the snapshot, to hex SHA-256 of its content.

        Bytecode is left out: Python writes it there when another client imports the kernel.
        """
        root = self.snapshot(repo_id, commit)
        found = {}
        for path in root.rglob("*"):
            name = path.relative_to(root).as_posix()
            if not is_bytecode(name) and (path.is_symlink() or path.is_file()):
                found[name] = _content_name(path)
        return dict(sorted(found.items()))

    def add_blob(self, repo_id: str, sha256: str, content: Path | bytes) -> None:
        """Store a file's content, if it is not there or damaged.

        Raises:
            RegistryError: the content has another SHA-256.
        """
        blob = self.repo(repo_id) / "blobs" / sha256
        if blob.is_file() and files.sha256_file(blob) == sha256:
            return
        with files.staging(blob.parent) as staged:
            copy = staged / sha256
            if isinstance(content, bytes):
                files.write_new(copy, content)
            else:
                files.copy_file(content, copy)
            if files.sha256_file(copy) != sha256:
                raise RegistryError(
                    f"{content if isinstance(content, Path) else 'a file'} changed while it was "
                    "published",
                    hint="publish again when nothing writes to it",
                )
            files.publish_tree(copy, blob)

    def add_snapshot(self, repo_id: str, tree: Mapping[str, str]) -> tuple[str, bool]:
        """Make a commit of stored blobs.

        Args:
            repo_id: ``owner/name``.
            tree: as ``tree`` returns it.

        Returns:
            The commit, which follows from the tree alone, and whether it was not there before.
        """
        commit = key("registry-commit", tree=tree)[:40]
        final = self.snapshot(repo_id, commit)
        if final.is_dir() and self.tree(repo_id, commit) == dict(tree):
            return commit, False
        with files.staging(final.parent) as staged:
            for path, sha256 in tree.items():
                up = "../" * (path.count("/") + 2)
                files.symlink(f"{up}blobs/{sha256}", staged / path)
            files.replace_tree(staged, final)
        return commit, True

    def set_ref(self, repo_id: str, name: str, commit: str) -> bool:
        """Let a branch or tag name a commit; says whether it did not before."""
        if self.ref(repo_id, name) == commit:
            return False
        # No last newline: the hub's client reads the whole file as the commit.
        files.write_atomic(self.repo(repo_id) / "refs" / name, commit)
        return True


def _content_name(path: Path) -> str:
    """Hex SHA-256 of a file: a link to a blob of ours says it."""
    name = os.path.basename(os.readlink(path)) if path.is_symlink() else ""  # noqa: PTH115, PTH119
    return name if _SHA256.fullmatch(name) else files.sha256_file(path)


def _names(directory: Path, *, is_dir: bool) -> tuple[str, ...]:
    """The finished entries of one kind in a directory, sorted; nothing where there is none."""
    try:
        with os.scandir(directory) as entries:
            found = [entry.name for entry in entries if entry.is_dir() == is_dir]
    except (FileNotFoundError, NotADirectoryError):
        return ()
    return tuple(sorted(name for name in found if not name.startswith("tmp-")))
