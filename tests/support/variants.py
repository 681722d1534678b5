# SPDX-License-Identifier: Apache-2.0
"""Kernels by hand: variants laid out as a build does, without one."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support import trees

from kernforge.artifact.integrity import digest_tree
from kernforge.artifact.metadata import KernelDepend, Metadata, Provenance

PACKAGE = {
    "__init__.py": "from ._ops import name\n\nANSWER = 42\n",
    "_ops.py": "name = __name__\n",
}


def write_variant(
    build: Path,
    *,
    variant: str = "torch-cpu",
    name: str = "toy",
    unique: str = "aaaaaaa",
    version: int = 1,
    files: Mapping[str, str] = PACKAGE,
    digest: bool = True,
    backend: str = "cpu",
    depends: Mapping[str, int] | None = None,
    **fields: Any,
) -> Path:
    """Lay out a variant of a pure Python kernel, digest and all; returns its directory."""
    directory = build / variant
    trees.write(directory, files)
    metadata = Metadata(
        name=name,
        id=f"_{name.replace('-', '_')}_{backend}_{unique}",
        version=version,
        license="Apache-2.0",
        backend=backend,
        kernel_depends=tuple(
            KernelDepend(repo_id=repo_id, version=major)
            for repo_id, major in (depends or {}).items()
        ),
        provenance=fields.pop("provenance", Provenance(builder_version="test")),
        digest=digest_tree(directory) if digest else None,
        **fields,
    )
    (directory / "metadata.json").write_bytes(metadata.to_json())
    return directory


def contents(path: Path) -> dict[str, bytes]:
    """What a repository has of a directory of variants, or of one variant: path to bytes."""
    top = path.parent if (path / "metadata.json").is_file() else path
    files = (file for file in path.rglob("*") if file.is_file())
    return {f"build/{file.relative_to(top).as_posix()}": file.read_bytes() for file in files}


def replace_linked(path: Path, data: bytes) -> None:
    """Put other bytes in the place of a registry's file, as a blob of the right name."""
    target = path.readlink().parent / hashlib.sha256(data).hexdigest()
    (path.parent / target).write_bytes(data)
    path.unlink()
    path.symlink_to(target)
