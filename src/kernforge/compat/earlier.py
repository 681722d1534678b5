# SPDX-License-Identifier: Apache-2.0
"""What versions of the client before 0.17 did otherwise, for programs that ask for one of them.

``names.EARLIER`` says which names are answered from here, and up to which version. What loads,
verifies and decides is the same for all versions.
"""

from __future__ import annotations

import hashlib
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.compat import hub, layers, loading
from kernforge.compat import variants as today
from kernforge.errors import NoVariantError, RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

    from kernforge.compat.variants import Decision, Variant

_NO_VERSION = (
    "Future versions of `kernels` (>=0.15) will require specifying a kernel version or revision; "
    "without one, this is the branch main."
)


@contextmanager
def _as_before() -> Iterator[None]:
    """Begin the message about a directory without a kernel with the words of 0.14 to 0.16."""
    try:
        yield
    except NoVariantError as error:
        if "there is no such directory" in error.message:
            words = error.message.replace(
                "Cannot find a build variant for this system in", "Could not find kernel in"
            )
            raise NoVariantError(words, hint=error.hint) from error
        raise


def get_kernel(  # noqa: PLR0917 - the client's signature
    repo_id: str,
    revision: str | None = None,
    version: int | None = None,
    backend: str | None = None,
    user_agent: str | dict[str, str] | None = None,
    trust_remote_code: bool | list[str] = False,  # noqa: FBT001, FBT002
    check_arch: bool = True,  # noqa: FBT001, FBT002
) -> ModuleType:
    """``loading.get_kernel`` with the signature of 0.15 and 0.16."""
    with _as_before():
        return loading.get_kernel(
            repo_id,
            revision=revision,
            version=version,
            backend=backend,
            user_agent=user_agent,
            trust_remote_code=trust_remote_code,
            check_arch=check_arch,
        )


def get_local_kernel(repo_path: Path, backend: str | None = None) -> ModuleType:
    """``loading.get_local_kernel`` with the signature of 0.14 to 0.16."""
    with _as_before():
        return loading.get_local_kernel(repo_path, backend=backend)


def has_kernel(
    repo_id: str,
    revision: str | None = None,
    version: int | None = None,
    backend: str | None = None,
    check_arch: bool = True,  # noqa: FBT001, FBT002 - the client's signature
) -> bool:
    """``loading.has_kernel`` with the signature of 0.15 and 0.16; publishers were not asked about."""
    return loading.has_kernel(
        repo_id,
        revision=revision,
        version=version,
        backend=backend,
        trust_remote_code=True,
        check_arch=check_arch,
    )


def get_kernel_variants(
    repo_id: str,
    revision: str | None = None,
    version: int | None = None,
    backend: str | None = None,
) -> list[Decision]:
    """``variants.get_kernel_variants`` with the signature of 0.15 and 0.16."""
    return today.get_kernel_variants(repo_id, revision=revision, version=version, backend=backend)


def get_locked_kernel(repo_id: str, local_files_only: bool = False) -> ModuleType:  # noqa: FBT001, FBT002 - as above
    """``loading.get_locked_kernel`` by the lock of the caller, or ``load_kernel``."""
    if local_files_only:
        return loading.load_kernel(repo_id, lockfile=None)
    return loading.get_locked_kernel(repo_id, lockfile=None)


def load_kernel(
    repo_id: str,
    *,
    lockfile: Path | None,
    backend: str | None = None,
    revision: str | None = None,
) -> ModuleType:
    """``loading.load_kernel``; with a revision, the kernel that was downloaded for it (0.15, 0.16)."""
    if revision is None:
        return loading.load_kernel(repo_id, lockfile=lockfile, backend=backend)
    path = loading.install_kernel(
        repo_id, revision=revision, backend=backend, local_files_only=True, trust_remote_code=True
    )
    return loading.get_local_kernel(path, backend=backend)


def install_kernel(
    repo_id: str,
    *,
    revision: str,
    local_files_only: bool = False,
    backend: str | None = None,
    variant_locks: dict[str, VariantLock] | None = None,
    user_agent: str | dict[str, str] | None = None,
    validate_dependencies: bool = False,
) -> Path:
    """``loading.install_kernel`` with the hashes that a lock of 0.16 and before has for a variant.

    Raises:
        RequestError: the lock has no hash for the variant, or another one.
    """
    path = loading.install_kernel(
        repo_id,
        revision=revision,
        backend=backend,
        local_files_only=local_files_only,
        user_agent=user_agent,
        trust_remote_code=True,
        validate_dependencies=validate_dependencies,
    )
    _check_hashes([path], variant_locks)
    return path


def install_kernel_all_variants(
    repo_id: str,
    *,
    revision: str,
    local_files_only: bool = False,
    variant_locks: dict[str, VariantLock] | None = None,
) -> Path:
    """``loading.install_kernel_all_variants`` with the hashes of a lock of 0.16 and before.

    Raises:
        RequestError: the lock has no hash for a variant, or another one.
    """
    root = loading.install_kernel_all_variants(
        repo_id, revision=revision, local_files_only=local_files_only
    )
    _check_hashes(sorted(root.iterdir()), variant_locks)
    return root


def _check_hashes(paths: Sequence[Path], locks: dict[str, VariantLock] | None) -> None:
    for path in paths if locks is not None else ():
        lock = (locks or {}).get(path.name)
        if lock is None:
            raise RequestError(f"No lock found for build variant: {path.name}")
        validate_kernel(repo_path=path.parents[1], variant=path.name, hash=lock.hash)


def validate_kernel(*, repo_path: Path, variant: str, hash: str) -> None:  # noqa: A002 - the client's name
    """Compare a downloaded variant with the hash that a lock of 0.16 and before has for it."""
    from kernforge.artifact.integrity import tree_files  # noqa: PLC0415 - few applications
    from kernforge.loader.legacy_lock import possible_hashes  # noqa: PLC0415

    path = repo_path / "build" / variant
    root = next((p for p in path.parents if p.name.startswith("kernels--")), path)
    found = possible_hashes(tree_files(path, within=root))
    if hash not in found:
        raise RequestError(
            f"Lock file specifies kernel with hash {hash}, but downloaded kernel has hash: "
            f"{' or '.join(sorted(found))}",
            hint="fetch the kernel again, or lock it again; nothing of it was run",
        )


def git_hash_object(data: bytes, object_type: str = "blob") -> bytes:
    """The hash by which git names an object, SHA-1 as raw bytes."""
    head = f"{object_type} {len(data)}\0".encode()
    return hashlib.sha1(head + data, usedforsecurity=False).digest()


@dataclass
class VariantLock:
    """The hash of a variant in a lock of 0.16 and before."""

    hash: str
    hash_type: str = "git_lfs_concat"


@dataclass
class KernelLock:
    """The commit of a kernel, and the hashes of its variants, in a lock of 0.16 and before."""

    repo_id: str
    sha: str
    variants: dict[str, VariantLock]

    @classmethod
    def from_json(cls, o: dict[str, Any]) -> KernelLock:
        """The lock in a parsed document."""
        locks = {name: VariantLock(**lock) for name, lock in o["variants"].items()}
        return cls(repo_id=o["repo_id"], sha=o["sha"], variants=locks)


# -- 0.14: a kernel without a version or revision is that of the branch main ---------------------


def _or_main(revision: str | None, version: int | None) -> str | None:
    if revision is None and version is None:
        warnings.warn(_NO_VERSION, FutureWarning, stacklevel=3)
        return "main"
    return revision


def get_kernel_or_main(  # noqa: PLR0917 - the client's signature
    repo_id: str,
    revision: str | None = None,
    version: int | None = None,
    backend: str | None = None,
    user_agent: str | dict[str, str] | None = None,
    trust_remote_code: bool | list[str] = False,  # noqa: FBT001, FBT002 - the client's signature
) -> ModuleType:
    """``get_kernel`` of 0.14."""
    revision = _or_main(revision, version)
    return get_kernel(repo_id, revision, version, backend, user_agent, trust_remote_code)


def has_kernel_or_main(
    repo_id: str,
    revision: str | None = None,
    version: int | None = None,
    backend: str | None = None,
) -> bool:
    """``has_kernel`` of 0.14."""
    return has_kernel(repo_id, _or_main(revision, version), version, backend)


def select_revision_or_main(repo_id: str, *, revision: str | None, version: int | None) -> str:
    """``select_revision_or_version`` of 0.14."""
    named = _or_main(revision, version)
    return hub.select_revision_or_version(repo_id, revision=named, version=version)


class _OrMain:
    """A repository that may be made without a version or revision."""

    def __init__(
        self, repo_id: str, *, revision: str | None = None, version: int | None = None, **named: Any
    ) -> None:
        unnamed = revision is None and version is None
        given = {"revision": "main" if unnamed else revision, "version": version, **named}
        super().__init__(repo_id, **given)  # type: ignore[call-arg]  # the class beside this one
        object.__setattr__(self, "_unnamed", unnamed)

    def _load(self) -> ModuleType:
        if getattr(self, "_unnamed", False):
            warnings.warn(_NO_VERSION, FutureWarning, stacklevel=2)
        return super()._load()  # type: ignore[misc,no-any-return]


class LayerRepository(_OrMain, layers.LayerRepository):
    """``LayerRepository`` of 0.14."""


class FuncRepository(_OrMain, layers.FuncRepository):
    """``FuncRepository`` of 0.14."""


def resolve_variants(variants: Sequence[Variant], backend: str | None = None) -> list[Variant]:
    """The variants that fit this process, the best first, without the reasons."""
    return today.resolve_variants(variants, backend)[0]


def resolve_variant(variants: Sequence[Variant], backend: str | None = None) -> Variant | None:
    """The variant to load, without the reasons."""
    return today.resolve_variant(variants, backend)[0]


def resolve_for(**machine: Any) -> list[Variant]:
    """The variants that fit a machine, the best first, without the reasons."""
    return today.resolve_for(**machine)[0]
