# SPDX-License-Identifier: Apache-2.0
"""Mistakes of a project's sources that a compiler reports badly or not at all.

Some are refused before anything is compiled; a function with ``extern "C"`` on one side only is
found in the linked modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernforge.binary import elf
from kernforge.binary.symbols import demangled
from kernforge.check.finding import Finding
from kernforge.errors import SourceError
from kernforge.manifest.model import Torch
from kernforge.project import units
from kernforge.source import binding_mistakes, linkage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from kernforge.manifest.document import Manifest
    from kernforge.project.api import Project
    from kernforge.project.targets import Target
    from kernforge.project.units import Sources


def refuse_mistakes(project: Project, sources: Sources, targets: Sequence[Target]) -> None:
    """Refuse sources that cannot make a kernel.

    Raises:
        SourceError: there are such sources; the message has a line for each mistake.
    """
    manifest = project.manifest
    if not isinstance(manifest.framework, Torch):
        return
    directory = units.package_dir(manifest)
    package = {
        path: real.read_text(errors="replace")
        for path, real in project.files.items()
        if path.startswith(directory) and path.endswith(".py")
    }
    mistakes: list[binding_mistakes.SourceMistake] = []
    for target in targets:
        if target.variant.is_noarch:
            continue
        texts = _texts(manifest, sources, target)
        mistakes += binding_mistakes.pybind_modules(texts)
        if not mistakes:
            mistakes += binding_mistakes.unfilled_namespaces(texts, package)
    if mistakes:
        found = dict.fromkeys(mistakes)
        raise SourceError(
            "\n".join(map(str, found)), hint="\n".join(dict.fromkeys(each.fix for each in found))
        )


def with_linkage(
    findings: Sequence[Finding],
    manifest: Manifest,
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
        if target.name not in variants or target.variant.is_noarch:
            continue
        path = variants[target.name]
        if own := tuple(_linkage(path, _texts(manifest, sources, target))):
            consequences = {"unresolved", "import"}
            result = [f for f in result if not _is_of(f, path) or f.rule not in consequences]
            result += own
    return tuple(result)


def _is_of(finding: Finding, variant: Path) -> bool:
    return finding.where.partition("/")[0] == variant.name


def _linkage(variant: Path, texts: Mapping[str, str]) -> Iterator[Finding]:
    for file in sorted(variant.glob("*.so")):
        undefined = [s.name for s in elf.parse(file.read_bytes()).undefined if not s.version]
        for each in linkage.one_sided(map(demangled, undefined), texts):
            yield Finding(
                rule="linkage",
                severity="error",
                where=f"{variant.name}/{file.name}",
                message=each.message,
                hint=each.hint,
            )


def _texts(manifest: Manifest, sources: Sources, target: Target) -> dict[str, str]:
    """Text of the project's files that the units of a target may read."""
    chosen = units.units(manifest, target.backend, target.cuda)
    paths = {path for unit in chosen for path in units.closure(unit, sources).files}
    return {path: sources.texts[path] for path in sorted(paths) if path in sources.texts}
