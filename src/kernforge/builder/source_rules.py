# SPDX-License-Identifier: Apache-2.0
"""Mistakes of a project's sources that a compiler reports badly or not at all.

Some are refused before anything is compiled; a function with ``extern "C"`` on one side only is
found in the linked modules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kernforge.artifact.version import Version2
from kernforge.binary import elf, symbols
from kernforge.check.finding import Finding, finding
from kernforge.errors import SourceError
from kernforge.manifest.fields import Backend
from kernforge.manifest.model import Torch
from kernforge.project.api import Project
from kernforge.project.targets import Target
from kernforge.project.units import Sources
from kernforge.source import binding_mistakes

# Rules that find a symbol that nothing defines.
_MISSING = ("unresolved", "import")


def refuse_mistakes(project: Project, targets: Sequence[Target]) -> None:
    """Refuse sources that cannot make a kernel.

    Raises:
        SourceError: there are such sources; the message has a line for each mistake.
    """
    if not isinstance(project.manifest.framework, Torch):
        return
    compiled = {(t.backend, t.cuda) for t in targets if not t.variant.is_noarch}
    texts: dict[str, str] = {}
    for backend, cuda in compiled:
        texts |= _texts(project.sources, backend, cuda)
    mistakes = sorted(
        (*binding_mistakes.pybind_modules(texts), *binding_mistakes.unreadable_schemas(texts)),
        key=lambda mistake: (mistake.path, mistake.line),
    )
    if mistakes:
        fixes = dict.fromkeys(mistake.fix for mistake in mistakes)
        raise SourceError("\n".join(map(str, mistakes)), hint="\n".join(fixes))


def with_linkage(
    findings: Sequence[Finding],
    sources: Sources,
    variants: Mapping[str, Path],
    targets: Sequence[Target],
) -> tuple[Finding, ...]:
    """The findings of a build, with those of functions that have ``extern "C"`` on one side only.

    Such a finding takes the place of those on the import and on undefined symbols of its variant,
    which have the same cause.
    """
    result = list(findings)
    for target in targets:
        path = variants.get(target.name)
        if path is None or not any(_is_of(f, path) and f.rule in _MISSING for f in result):
            continue
        texts = _texts(sources, target.backend, target.cuda)
        own = [
            finding("linkage", f"{path.name}/{file.name}", message, hint)
            for file in sorted(path.glob("*.so"))
            for message, hint in symbols.one_sided(elf.parse(file.read_bytes()), texts)
        ]
        if own:
            result = [f for f in result if not _is_of(f, path) or f.rule not in _MISSING]
            result += own
    return tuple(result)


def _is_of(finding: Finding, variant: Path) -> bool:
    return finding.where.partition("/")[0] == variant.name


def _texts(sources: Sources, backend: Backend, cuda: Version2 | None) -> dict[str, str]:
    """Text of the project's own files that the units of a backend may read, in order."""
    paths = {path for unit in sources.units(backend, cuda) for path in unit.closure.files}
    return {path: sources.texts[path] for path in sorted(paths & sources.texts.keys())}
