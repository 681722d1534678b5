# SPDX-License-Identifier: Apache-2.0
"""Rules for the documents of kernels, in the client's form: objects with ``validate_metadata``."""

from __future__ import annotations

import importlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kernforge.compat.metadata import Metadata
from kernforge.compat.values import Version
from kernforge.errors import MachineError
from kernforge.loader.fitness import check_python_depends, check_python_packages

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("kernels.validate")


class MetadataValidator(Protocol):
    """A rule."""

    def validate_metadata(self, *, metadata: Metadata, variant: str) -> None:
        """Refuse a document that breaks it."""
        ...


def validate_dependencies(kernel_module_name: str, dependencies: list[str], backend: Any) -> None:
    """Refuse a kernel that needs a Python package which is not installed, or may not be used.

    Args:
        kernel_module_name: what messages call the kernel.
        dependencies: the packages, as ``python-depends`` names them.
        backend: a backend with a ``name``.

    Raises:
        MissingPackageError: one is not installed; also an ImportError.
        KernelError: one is not among those that kernels may use; also a ValueError.
    """
    check_python_packages(kernel_module_name, dependencies, backend.name)


def validate_variant_dependencies(variant_path: Path) -> None:
    """``validate_dependencies`` for a variant in a directory."""
    check_python_depends(Metadata.read_from_file(variant_path / "metadata.json").ours)


class DependencyValidator:
    """The Python packages that a kernel needs are installed."""

    def validate_metadata(self, *, metadata: Metadata, variant: str) -> None:  # noqa: ARG002
        """Refuse a kernel that needs another one."""
        check_python_depends(metadata.ours)


class ArchValidator:
    """A kernel's device code runs on the GPU of this process."""

    def validate_metadata(self, *, metadata: Metadata, variant: str) -> None:
        """Refuse a kernel whose code does not."""
        _client("validate")._check_arch_incompatibility(metadata, variant)  # noqa: SLF001 - may be exchanged there


class DirtyValidator:
    """A kernel's sources are those of the recorded commits."""

    def validate_metadata(self, *, metadata: Metadata, variant: str) -> None:
        """Warn of a kernel whose are not."""
        provenance = metadata.provenance
        if provenance is None or not provenance.dirty:
            return
        git = provenance.kernel_builder.git
        dirty = ["kernel source"] if provenance.kernel and provenance.kernel.dirty else []
        dirty += ["kernel-builder"] if git and git.dirty else []
        log.warning(
            "Kernel '%s' variant '%s' was built from a dirty git tree (%s had uncommitted changes).",
            metadata.name,
            variant,
            ", ".join(dirty),
        )


def installed_version() -> Version | None:
    """The release that ``kernels.__version__`` claims; None where it is not a version."""
    from packaging.version import InvalidVersion, parse  # noqa: PLC0415 - takes milliseconds

    try:
        release = parse(_client().__version__).release
    except InvalidVersion:
        return None
    return Version.from_str(".".join(map(str, release)))


class MinverValidator:
    """A kernel does not need a newer client."""

    def validate_metadata(self, *, metadata: Metadata, variant: str) -> None:
        """Refuse a kernel that does."""
        minver, installed = metadata.kernels_minver, installed_version()
        if minver is not None and installed is not None and installed < minver:
            raise MachineError(
                f"Kernel '{metadata.name}' variant '{variant}' requires kernels>={minver}, but "
                f"version {_client().__version__} is installed.",
                hint="upgrade kernforge, or set KERNFORGE_KERNELS_VERSION",
            )


@dataclass
class AllValidator:
    """Several rules."""

    validators: list[MetadataValidator]

    def validate_metadata(self, *, metadata: Metadata, variant: str) -> None:
        """Hold a document against each."""
        for validator in self.validators:
            validator.validate_metadata(metadata=metadata, variant=variant)


def default_metadata_validators() -> list[MetadataValidator]:
    """The rules for every kernel."""
    return [DependencyValidator(), MinverValidator(), DirtyValidator()]


def _client(module: str = "") -> Any:
    """A module of the client, as this process has it."""
    return importlib.import_module(f"kernels.{module}" if module else "kernels")
