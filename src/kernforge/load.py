# SPDX-License-Identifier: Apache-2.0
"""Find the variant of a kernel that fits this process, verify it, and import it.

The order is fixed: find the kernel and all kernels that it depends on; hold their documents
against this machine; verify every file of all of them; only then import, dependencies first.

A kernel from a registry must carry a digest. A local directory need not, since the user names it,
but if it carries one it must agree. ``LOCAL_KERNELS``, as ``owner/name=path[:owner/name=path]``,
puts a local directory in the place of a registry's kernel.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from kernforge import importer
from kernforge.errors import IntegrityError, NoVariantError, RegistryError, UsageError
from kernforge.home import default_registry
from kernforge.host import has_module, probe, with_device
from kernforge.integrity import verify_tree
from kernforge.locate import (
    Node,
    NotPublishedError,
    Search,
    find,
    find_commit,
    find_local,
    local_override,
)
from kernforge.metadata import FILE
from kernforge.pydepends import python_depends
from kernforge.registry import Registry, open_registry
from kernforge.resolve import Decision, check_archs, resolve

if TYPE_CHECKING:
    from types import ModuleType

AnyRegistry: TypeAlias = str | os.PathLike[str] | Registry | None
"""A registry, its directory or URL; None is the default one."""

# What get_kernel was asked and found: registry, repo id, commit, backend, check_arch.
_found: dict[tuple[str, str, str, str | None, bool], ModuleType] = {}


def get_kernel(
    repo_id: str,
    *,
    version: int | str | None = None,
    revision: str | None = None,
    registry: AnyRegistry = None,
    backend: str | None = None,
    trust_remote_code: bool | list[str] = False,
    check_arch: bool = True,
    user_agent: str | dict[str, str] | None = None,  # noqa: ARG001 - see the docstring
) -> ModuleType:
    """Load a kernel from a registry; a kernel that is loaded already costs microseconds.

    Args:
        repo_id: ``owner/name``.
        version: a major version such as ``1``, or a range such as ``"~=1.2"``; the newest that it
            allows is taken.
        revision: a branch, tag or commit instead of a version.
        registry: a directory, its ``file://`` URL, or a ``Registry``; the default is
            ``KERNFORGE_REGISTRY`` or the user's own.
        backend: ``cpu``, or the one that torch is built for, which is the default.
        trust_remote_code: the caller's word that a kernel may be loaded where the trust policy
            asks for it: True, or a list of repo ids. See the page on trust.
        check_arch: whether to refuse a build without device code for the current GPU.
        user_agent: for callers of the hub's client; a directory registry tells nobody.

    Returns:
        The kernel's package.

    Raises:
        UsageError: neither or both of version and revision, or another impossible request.
        RegistryError: there is no such kernel or version.
        NoVariantError: no variant fits; the message says why for each.
        TrustError: the trust policy refuses it, or a kernel that it depends on.
        IntegrityError: a file is not what was built. Nothing of the kernel was run.
    """
    _check_request(version, revision)
    store = _opened(registry)
    if local_override(repo_id) is not None:
        return _load(
            find(Search(store, backend, trust_remote_code), repo_id, version, revision),
            check_arch=check_arch,
        )
    question = (
        store.url,
        repo_id,
        find_commit(store, repo_id, version, revision),
        backend,
        check_arch,
    )
    module = _found.get(question)
    if module is None:
        root = find(Search(store, backend, trust_remote_code), repo_id, None, question[2])
        module = _found[question] = _load(root, check_arch=check_arch)
    return module


def get_local_kernel(
    repo_path: str | os.PathLike[str],
    *,
    backend: str | None = None,
    registry: AnyRegistry = None,
    trust_remote_code: bool | list[str] = False,
    check_arch: bool = True,
    user_agent: str | dict[str, str] | None = None,  # noqa: ARG001 - see get_kernel
) -> ModuleType:
    """Load a kernel from a directory.

    Args:
        repo_path: a directory of variants, one with ``build/`` in it, or a variant.
        backend: as for ``get_kernel``.
        registry: where the kernels are that it depends on.
        trust_remote_code: as for ``get_kernel``.
        check_arch: as for ``get_kernel``.
        user_agent: as for ``get_kernel``.

    Returns:
        The kernel's package. A directory is imported once; later changes are not seen.

    Raises:
        NoVariantError: no variant there fits; the message says why for each.
        TrustError: the trust policy refuses it.
        IntegrityError: its metadata has a digest and a file differs.
    """
    search = Search(_opened(registry), backend, trust_remote_code)
    return _load(find_local(search, Path(repo_path)), check_arch=check_arch)


def has_kernel(
    repo_id: str,
    *,
    version: int | str | None = None,
    revision: str | None = None,
    registry: AnyRegistry = None,
    backend: str | None = None,
    trust_remote_code: bool | list[str] = False,
    check_arch: bool = True,
) -> bool:
    """Whether ``get_kernel`` would find a build for this process; none of its files are verified.

    It is false, too, when the kernel, the version, or a kernel that it depends on is not
    published. The arguments and the other errors are those of ``get_kernel``.
    """
    _check_request(version, revision)
    try:
        root = find(
            Search(_opened(registry), backend, trust_remote_code), repo_id, version, revision
        )
        if check_arch:
            for node in root.walk():
                _check_device(node)
    except (NoVariantError, NotPublishedError):
        return False
    return True


def get_kernel_variants(
    repo_id: str,
    *,
    version: int | str | None = None,
    revision: str | None = None,
    registry: AnyRegistry = None,
    backend: str | None = None,
) -> list[Decision]:
    """Every variant of a kernel with what speaks for or against it here, the best first.

    The arguments and the errors are those of ``get_kernel``.
    """
    _check_request(version, revision)
    store = _opened(registry)
    commit = find_commit(store, repo_id, version, revision)
    return list(resolve(store.variants(repo_id, commit), probe(backend)).decisions)


def _check_request(version: int | str | None, revision: str | None) -> None:
    if (version is None) == (revision is None):
        said = "neither a version nor a revision" if version is None else "version and revision"
        raise UsageError(
            f"{said} of the kernel was given",
            hint="pass version=<major> for a stable interface, or revision=<branch, tag or commit>",
        )


def _opened(registry: AnyRegistry) -> Registry:
    if registry is None:
        return open_registry(default_registry())
    if isinstance(registry, str | os.PathLike):
        return open_registry(os.fspath(registry))
    return registry


def _load(root: Node, *, check_arch: bool) -> ModuleType:
    """Check, verify and import a tree of kernels; none is imported before all are verified."""
    with importer.lock:
        fresh = [node for node in root.walk() if importer.loaded(node.path) is None]
        for node in fresh:
            _check_python_depends(node)
            _warn_of_dirt(node)
            if check_arch:
                _check_device(node)
        for node in fresh:
            _verify(node)
        return _import(root)


def _import(node: Node) -> ModuleType:
    modules = {repo_id: _import(depend) for repo_id, depend in node.depends.items()}
    return importer.import_kernel(
        node.path, node.metadata, dependencies=modules, repo_info=node.repo_info
    )


def _check_python_depends(node: Node) -> None:
    known = python_depends(node.metadata.backend)
    for name in node.metadata.python_depends:
        depend = known.get(name)
        if depend is None:
            raise RegistryError(
                f"kernel {node.metadata.name!r} depends on Python package {name!r}, which is not "
                f"among those that a kernel for {node.metadata.backend} may use",
                hint=f"those are {', '.join(known)}; a newer kernforge may know more",
            )
        if depend.module is not None and not has_module(depend.module):
            raise UsageError(
                f"kernel {node.metadata.name!r} needs the Python package {depend.package}",
                hint=f"pip install {depend.package}",
            )


def _warn_of_dirt(node: Node) -> None:
    provenance = node.metadata.provenance
    if provenance is not None and provenance.dirty:
        import logging  # noqa: PLC0415 - slow, and rarely needed

        logging.getLogger("kernforge").warning(
            "%s was built from files that its recorded commit does not hold", node.path
        )


def _check_device(node: Node) -> None:
    """Refuse a build whose device code cannot run on the current GPU."""
    metadata = node.metadata
    if metadata.archs and metadata.backend in {"cuda", "rocm"}:
        reason = check_archs(metadata.backend, metadata.archs, with_device(node.host))
        if reason:
            raise NoVariantError(
                f"kernel {metadata.name!r} ({node.path.name}) does not fit this GPU: {reason}",
                hint="build it for that architecture; or pass check_arch=False if it has another "
                "way to run there, such as Triton",
            )


def _verify(node: Node) -> None:
    digest = node.metadata.digest
    if digest is not None:
        verify_tree(node.path, digest, within=node.fence)
    elif node.repo_info is not None or node.admission.signers:
        raise IntegrityError(
            f"{node.path / FILE} has no digest, so nothing can be verified",
            hint="it is an old build: build and publish it again, or load it unverified with "
            "get_local_kernel(path)",
        )
