# SPDX-License-Identifier: Apache-2.0
"""Read a project's files as a plan sees them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path

from kernforge.manifest.document import Manifest
from kernforge.manifest.model import Torch, TorchNoarch
from kernforge.project import units
from kernforge.project.api import Project
from kernforge.project.units import Sources
from kernforge.source import includes
from kernforge.system import digest, files

# Headers that kernforge brings, each at its path in a project.
_INCLUDE = Path(str(resources.files("kernforge"))) / "include"
BUNDLED_DIRECTORIES = tuple(str(_INCLUDE / name) for name in ("torch-ext", "csrc"))
"""Where a compiler that no plan starts finds them."""
_NAMED = "kernforge/"
_TEXT_SUFFIXES = (*units.CXX_SUFFIXES, *units.CUDA_SUFFIXES, *units.HEADER_SUFFIXES)


def read(project: Project) -> Sources:
    """Read what a compiler could read of a project, and hash what goes into a build."""
    package = units.package_dir(project.manifest)
    texts = {
        path: real.read_text(errors="replace")
        for path, real in project.files.items()
        if path.endswith(_TEXT_SUFFIXES)
    }
    _read_included(texts, project.files)
    # What a build in place put into the package is no source of it.
    made = f"{package}_{project.manifest.general.python_name}_"
    paths = {*texts, *(path for path in project.files if path.startswith(package))}
    paths -= {f"{package}_ops.py"}
    paths = {path for path in paths if not (path.startswith(made) and path.endswith(".so"))}
    return Sources(
        digests={path: files.sha256_file(project.files[path]) for path in sorted(paths)},
        texts=texts,
        bundled=_bundled(project.manifest, texts.values()),
    )


def identity(manifest: Manifest, sources: Sources) -> str:
    """Digest of the sources that go into any variant: an edited kernel gets another namespace."""
    backends = manifest.general.backends
    found = (unit for backend in backends for unit in units.units(manifest, backend))
    used = {path for unit in found for path in units.closure(unit, sources).files}
    package = units.package_dir(manifest)
    used |= {path for path in sources.digests if path.startswith(package)}
    own = sources.digests.keys() - sources.brought.keys()
    known = {path: sources.digests[path] for path in used & own}
    bundled = units.bundled_headers(manifest, sources)
    known |= {path: digest.sha256(text) for path, text in bundled.items()}
    return digest.key("sources", manifest=manifest.content, files=known)


def bundled_path(path: str) -> Path:
    """Where a header that kernforge brings lies; ``path`` is its place in a project."""
    return _INCLUDE / path


def _bundled(manifest: Manifest, texts: Iterable[str]) -> dict[str, str]:
    """Headers for a project; those of ``kernforge/`` only where a source names that directory.

    An include that names a macro may read any file, and such a unit's key must not change with
    headers that the project knows nothing of.
    """
    framework = manifest.framework
    if isinstance(framework, TorchNoarch):
        return {}
    paths = [units.REGISTRATION] if isinstance(framework, Torch) else []
    if any(_NAMED in text for text in texts):
        paths += [path.relative_to(_INCLUDE).as_posix() for path in _INCLUDE.glob(f"*/{_NAMED}*")]
    return {path: bundled_path(path).read_text() for path in sorted(paths)}


def _read_included(texts: dict[str, str], there: Mapping[str, Path]) -> None:
    """Add the files that some text includes though their extension says nothing."""
    todo = list(texts.values())
    while todo:
        named = set().union(*map(includes.base_names, todo))
        todo = []
        for path, real in there.items():
            if path not in texts and posixpath.basename(path) in named:
                texts[path] = real.read_text(errors="replace")
                todo.append(texts[path])
