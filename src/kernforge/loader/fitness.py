# SPDX-License-Identifier: Apache-2.0
"""Check that a kernel fits this process, before any of it is imported."""

from __future__ import annotations

import re

from kernforge.artifact.integrity import verify_tree
from kernforge.artifact.metadata import CLIENT_VERSION, FILE
from kernforge.artifact.python_depends import python_depends
from kernforge.errors import IntegrityError, KernelError, MachineError, MissingPackageError
from kernforge.loader.host import has_module, probe, with_device
from kernforge.loader.resolve import check_archs, check_driver
from kernforge.loader.search import Node
from kernforge.system.environment import Environment
from kernforge.system.files import refuse_writable


def check_needs(node: Node, environment: Environment) -> None:
    """Refuse a kernel with needs that this process lacks; warn of one whose sources are unknown.

    Raises:
        MissingPackageError: it needs a Python package that is not installed.
        KernelError: it needs one that kernels may not use.
        MachineError: it needs newer formats.
    """
    metadata = node.metadata
    known = python_depends(metadata.backend)
    for name in metadata.python_depends:
        depend = known.get(name)
        if depend is None:
            raise KernelError(
                f"Kernel module `{metadata.python_name}` uses the Python package {name!r}, which "
                f"is not among those that a kernel for {metadata.backend} may use",
                hint=f"it may use {', '.join(known)}; a newer kernforge may allow more",
            )
        if depend.module is not None and not has_module(depend.module):
            raise MissingPackageError(
                f"Kernel module `{metadata.python_name}` requires Python dependency "
                f"`{depend.package}`",
                hint=f"pip install {depend.package}",
            )
    wanted, claimed = metadata.kernels_minver, environment.kernforge_kernels_version
    claimed = claimed or CLIENT_VERSION
    if wanted is not None and _release(wanted) > _release(claimed):
        raise MachineError(
            f"Kernel {metadata.name!r} variant {node.path.name!r} requires kernels>={wanted}, "
            f"and this kernforge stands for version {claimed}",
            hint="pip install --upgrade kernforge, or take an older version of the kernel; "
            f"KERNFORGE_KERNELS_VERSION={wanted} tries it nevertheless",
        )
    if metadata.provenance is not None and metadata.provenance.dirty:
        import logging  # noqa: PLC0415 - slow, and rarely needed

        logging.getLogger("kernforge.fitness").warning(
            "%s was built from files that its recorded commit does not hold", node.path
        )


def _release(version: str) -> tuple[int, ...]:
    """Major, minor and patch of a version, whose import by ``packaging`` is slow."""
    return tuple(int(part) for part in (*re.findall(r"\d+", version), 0, 0, 0)[:3])


def check_device(node: Node) -> None:
    """Refuse a build whose device code cannot run on the current GPU and its driver.

    Raises:
        MachineError: the device code or the driver does not fit.
    """
    metadata = node.metadata
    if metadata.backend not in {"cuda", "rocm"}:
        return
    host = with_device(probe())
    named = f"kernel {metadata.name!r} ({node.path.name})"
    if reason := check_driver(node.path.name, host):
        raise MachineError(
            f"{named} cannot run here: {reason}",
            hint="update the driver, or install a torch for the CUDA version that it supports",
        )
    if reason := check_archs(metadata.backend, metadata.archs, host):
        raise MachineError(
            f"{named} does not support the current device: {reason}",
            hint="build it for that architecture; or pass check_arch=False to get_kernel if it "
            "can run there in another way, such as with Triton",
        )


def verify(node: Node) -> None:
    """Hash every file of a kernel and compare with the digest of its build.

    Raises:
        IntegrityError: a file differs; or there is no digest, and the kernel is not a local
            directory without signers.
        StorageError: every user of this machine may write to it, and could change it after this.
    """
    digest = node.metadata.digest
    if digest is None and (node.repo_info is not None or node.admission.signers):
        raise IntegrityError(
            f"{node.path / FILE} has no digest, so nothing can be verified",
            hint="it is an old build: build and publish it again, or load it unverified with "
            "get_local_kernel(path)",
        )
    places = [node.path, *node.path.parents]
    top = places.index(node.link_root) if node.link_root in places else 0
    for place in places[: top + 2]:  # up to the registry
        refuse_writable(place)
    if digest is not None:
        verify_tree(node.path, digest, within=node.link_root)
        for name in digest.files:
            refuse_writable(node.path / name)
