# SPDX-License-Identifier: Apache-2.0
"""A published or local kernel with the scripts that lie beside its builds."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.artifact.integrity import tree_files
from kernforge.errors import NotPublishedError, UsageError
from kernforge.loader import search as loader_search
from kernforge.loader.fitness import verify
from kernforge.loader.search import Search
from kernforge.registry.api import member_for, open_default
from kernforge.registry.names import BENCHMARKS
from kernforge.trust import admission
from kernforge.trust.policy import Subject

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kernforge.registry.api import Registry
    from kernforge.system.environment import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Repo:
    """A repository on this machine.

    Attributes:
        kernel: what loads the kernel: a directory, or ``owner/name@commit``.
        id: the id of the build for this machine.
    """

    root: Path
    kernel: str
    id: str


def asked(
    text: str, version: str | None, revision: str | None
) -> tuple[str, str | None, str | None]:
    """Repo id, version and revision of ``owner/name[@v1|@revision]``.

    Raises:
        UsageError: none or two are named.
    """
    repo_id, at, named = text.partition("@")
    number = named.removeprefix("v")
    if at and named.isdigit():
        raise UsageError(f"{text!r} names no branch", hint=f"write {repo_id}@v{named}")
    if (bool(at) + (version is not None) + (revision is not None)) != 1:
        raise UsageError(
            f"{repo_id} needs one version; it is not a directory here",
            hint=f"write {repo_id}@v1, or give one of --version and --revision",
        )
    if at and number.isdigit():
        return repo_id, number, None
    return repo_id, version, named or revision


def published(
    registry: Registry,
    environment: Environment,
    repo_id: str,
    version: str | None,
    revision: str | None,
    *,
    backend: str | None,
    trusted: bool,
) -> Repo:
    """A published kernel, fetched and verified, and its scripts, fetched.

    No signature covers the scripts: where the trust policy demands one, they are refused.

    Raises:
        TrustError: the policy refuses the kernel or its scripts.
        NotPublishedError: there is no such kernel or version, or it has no scripts.
        NoVariantError: no variant fits.
        IntegrityError: a file is not what was built.
    """
    search = Search(registry, backend, environment, trusted)
    root = loader_search.find_kernel(search, repo_id, version, revision)
    info = root.repo_info
    if info is None:  # LOCAL_KERNELS puts a directory in its place
        return local(_repo_of(root.path), environment, backend=backend, trusted=trusted)
    member = member_for(registry, info.repo_id)
    admission.admit(
        Subject(repo_id=info.repo_id, registry=member.url),
        b"",
        signature=lambda: None,
        vouches=member.trusted_publisher,
        environment=environment,
        trust_remote_code=trusted,
    )
    for node in root.walk():
        verify(node)
    scripts = member.folder(info.repo_id, info.revision, BENCHMARKS)
    if scripts is None:
        raise NotPublishedError(
            f"{info.repo_id} at {info.revision} has no {BENCHMARKS}/",
            hint="its publisher brings none; a directory with build/ and benchmarks/ will do too",
        )
    tree_files(scripts, within=member.link_root(info.repo_id))
    return Repo(root=scripts.parent, kernel=f"{info.repo_id}@{info.revision}", id=root.metadata.id)


def local(directory: Path, environment: Environment, *, backend: str | None, trusted: bool) -> Repo:
    """A repository or a kernel project with ``benchmarks/`` and a build that may be loaded.

    Raises:
        NoVariantError: it holds no build that fits.
        TrustError: the trust policy refuses it.
    """
    directory = directory.absolute()
    # The registry is for what the kernel depends on.
    search = Search(open_default(environment), backend, environment, trusted)
    node = loader_search.find_local(search, directory)
    return Repo(root=directory, kernel=str(directory), id=node.metadata.id)


def _repo_of(variant: Path) -> Path:
    return variant.parents[1] if variant.parent.name == "build" else variant.parent


def sha_of(scripts: Iterable[Path]) -> str:
    """Hex SHA-256 of files, one after the other."""
    return hashlib.sha256(b"".join(script.read_bytes() for script in scripts)).hexdigest()
