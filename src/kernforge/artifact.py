# SPDX-License-Identifier: Apache-2.0
"""Lay a variant's directory out as the hub has it: package, extension, _ops.py, metadata.json."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kernforge import __version__, files
from kernforge.integrity import digest_tree
from kernforge.metadata import KernelDepend, Metadata, Provenance

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kernforge.manifest import Manifest
    from kernforge.plan import Artifact
    from kernforge.project import Project

_HEADER = '"""Made by kernforge: the operators of this build and the names that they go by."""\n'
_COMPILED = """
import torch

from . import {name}

ops = torch.ops.{name}
"""
_NOARCH = """
import torch

ops = torch.ops.{name}
"""
_PREFIX = '''

def add_op_namespace_prefix(op_name: str) -> str:
    """Name of an operator of this build in torch's registry."""
    return f"{name}::{{op_name}}"
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltWith:
    """What a variant was built with, for its provenance: JSON values by name."""

    facts: Mapping[str, Any]


def lay_out(
    artifact: Artifact, project: Project, extension: Path | None, built_with: BuiltWith, into: Path
) -> None:
    """Write one variant into an empty directory.

    Args:
        artifact: what the plan says of it.
        project: where the package's files come from.
        extension: the linked module; None without machine code.
        built_with: recorded as provenance.
        into: the directory.
    """
    for path, source in artifact.package.items():
        if path != "_ops.py":
            files.copy_file(project.files[source], into / path)
    files.write_new(into / "_ops.py", ops_module(artifact.ops_name, compiled=bool(extension)))
    if extension:
        files.copy_file(extension, into / f"{artifact.ops_name}.abi3.so")
    metadata = _metadata(artifact, project, built_with)
    # The digest comes last: it covers every other file.
    metadata = replace(metadata, digest=digest_tree(into))
    files.write_new(into / "metadata.json", metadata.to_json())


def ops_module(name: str, *, compiled: bool) -> str:
    """Text of ``_ops.py`` for an op namespace."""
    body = _COMPILED if compiled else _NOARCH
    return _HEADER + body.format(name=name) + _PREFIX.format(name=name)


def _metadata(artifact: Artifact, project: Project, built_with: BuiltWith) -> Metadata:
    manifest: Manifest = project.manifest
    general, backend = manifest.general, artifact.target.backend
    return Metadata(
        name=general.name,
        id=artifact.ops_name,
        version=general.version,
        license=general.license,
        backend=backend,
        archs=artifact.archs,
        python_depends=general.python_depends_for(backend),
        kernel_depends=tuple(
            KernelDepend(repo_id=d.repo_id, version=d.version, revision=d.revision)
            for d in general.kernel_depends_for(backend)
        ),
        upstream=general.upstream,
        source=general.source,
        provenance=Provenance(
            builder_version=f"kernforge-{__version__}",
            kernel=project.git,
            kernforge=built_with.facts,
        ),
    )
