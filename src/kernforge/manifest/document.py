# SPDX-License-Identifier: Apache-2.0
"""Read build.toml: all that it says, or all that is wrong with it.

What is accepted and what is refused equals ``kernels`` 0.17.2, with one exception: there a table
may also be written as a list of its values in the order of the program's declarations
(``hub = ["owner/name", "main"]``), an accident of its parser; here that is refused.
"""

from __future__ import annotations

import json
import posixpath
import re
import tomllib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pydantic import ValidationError

from kernforge.errors import ManifestError
from kernforge.manifest import editions as legacy
from kernforge.manifest.editions import Edition
from kernforge.manifest.fields import Backend, Dependency, Version2
from kernforge.manifest.mistakes import Mistake, did_you_mean, from_pydantic, report
from kernforge.manifest.model import (
    FRAMEWORKS,
    AnyKernel,
    CpuKernel,
    CudaKernel,
    Document,
    General,
    KernelDependency,
    KernelSection,
    MetalKernel,
    RocmKernel,
    Torch,
    TorchNoarch,
    TvmFfi,
    XpuKernel,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from kernforge.manifest.toml_positions import Path

__all__ = [
    "AnyKernel",
    "Backend",
    "CpuKernel",
    "CudaKernel",
    "Dependency",
    "Edition",
    "General",
    "KernelDependency",
    "KernelSection",
    "Manifest",
    "MetalKernel",
    "RocmKernel",
    "Torch",
    "TorchNoarch",
    "TvmFfi",
    "Version2",
    "XpuKernel",
    "check_files",
    "edition_of",
    "parse",
]

_BOM = "\ufeff"
_MIGRATE = "run `kernforge migrate`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A valid build.toml.

    Attributes:
        general: the table ``[general]``; its backends are as written, doubles included.
        framework: the one framework table.
        kernels: the ``[kernel.<name>]`` sections by name, in the order of the file.
        notes: what a reader of the file should be told though nothing is wrong.
    """

    general: General
    framework: Torch | TorchNoarch | TvmFfi
    kernels: Mapping[str, AnyKernel]
    notes: tuple[str, ...] = ()

    @property
    def content(self) -> str:
        """What it says, for digests: without the notes, which name the file's place."""
        return repr(replace(self, notes=()))

    def sections(self, backend: Backend) -> Mapping[str, AnyKernel]:
        """The kernel sections of one backend, in the order of the file.

        Without any, kernel-builder builds the backend as Python alone, whatever the framework.
        """
        return {name: kernel for name, kernel in self.kernels.items() if kernel.backend == backend}


def parse(text: str, *, source: str = "build.toml") -> Manifest:
    """Read a manifest of edition 5, or of edition 4, which is upgraded in memory.

    Args:
        text: the content of build.toml.
        source: what to call the file in messages.

    Raises:
        ManifestError: one line for each mistake, ``file:line: [table] key = value: expected ...``.
    """
    data = _load(text, source)
    edition, document = _read(data, text, source)
    framework = document.torch or document.torch_noarch or document.tvm_ffi
    if edition == Edition.V3 or framework is None:
        lacks = ", ".join(legacy.lacking(data))
        raise ManifestError(
            f"{source}: this is edition 3, which is no longer built: there is no edition, {lacks}",
            hint=f"{_MIGRATE} to make it edition 5; if it is meant as edition 4, add what it lacks",
        )
    note = f"{source} is of edition 4; {_MIGRATE} to make it edition 5"
    return Manifest(
        general=document.general,
        framework=framework,
        kernels=document.kernel,
        notes=(note,) if edition == Edition.V4 else (),
    )


def edition_of(text: str, *, source: str = "build.toml") -> Edition:
    """The edition in which a file is valid; a missing license is forgiven to edition 3.

    Raises:
        ManifestError: the file is valid in none; the message lists the mistakes, as of ``parse``.
    """
    return _read(_load(text, source), text, source)[0]


def check_files(manifest: Manifest, paths: Collection[str]) -> list[str]:
    """A message for each source that the manifest names and the project lacks.

    Args:
        manifest: what names the sources.
        paths: the project's files, relative to it, with ``/`` between the parts.
    """
    tables: dict[str, tuple[str, ...]] = {}
    if not isinstance(manifest.framework, TorchNoarch):
        name = "torch" if isinstance(manifest.framework, Torch) else "tvm-ffi"
        tables[f"[{name}]"] = manifest.framework.src
    tables |= {f"[kernel.{name}]": kernel.src for name, kernel in manifest.kernels.items()}
    return [
        f"{table} src {json.dumps(src)}: no such file{did_you_mean(src, paths)}"
        for table, sources in tables.items()
        for src in sources
        if posixpath.normpath(src) not in paths
    ]


def _load(text: str, source: str) -> legacy.Data:
    try:
        return tomllib.loads(text.removeprefix(_BOM))
    except tomllib.TOMLDecodeError as error:
        what, _, where = str(error).partition(" (at ")
        line = re.match(r"line (\d+), (column \d+)\)", where)
        place = f"{source}:{line[1]}: {line[2]}" if line else f"{source}: at its end"
        raise ManifestError(
            f"{place}: this is not TOML: {what[:1].lower()}{what[1:]}",
            hint="correct the line; the grammar is at https://toml.io/en/v1.0.0",
        ) from error


def _read(data: legacy.Data, text: str, source: str) -> tuple[Edition, Document]:
    """Find the edition and check against it."""
    general = data.get("general")
    stated = general.get("edition") if isinstance(general, dict) else None
    document: Document | None = None
    edition = Edition.V5
    if isinstance(stated, int) and stated == Edition.V5:
        document, mistakes = _check(data)
    elif stated is not None:
        mistakes = [_wrong_edition(stated)]
    elif legacy.lacking(data) and (document := _as_edition_3(data)):
        edition, mistakes = Edition.V3, []
    else:
        edition = Edition.V4
        document, mistakes = _check(legacy.upgraded(data, edition))
        mistakes += _newer(data)
    if document is None or mistakes:
        raise ManifestError(report(mistakes, data, text=text.removeprefix(_BOM), source=source))
    return edition, document


def _as_edition_3(data: legacy.Data) -> Document | None:
    """The document that a file of edition 3 would be; None when that is not what the file is."""
    general = data.get("general")
    if not isinstance(general, dict) or legacy.newer_keys(data, Edition.V3):
        return None
    # Whether the rest is well formed is the question here; only a person can give the license.
    complete = {**data, "general": {"license": "", **general}}
    document, mistakes = _check(legacy.upgraded(complete, Edition.V3))
    return None if mistakes else document


def _wrong_edition(value: object) -> Mistake:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        problem = "expected 5"
    elif value > Edition.V5:
        problem = "expected 5, the newest that this version reads; upgrade kernforge for newer ones"
    else:
        problem = f"expected 5; files of edition 3 and 4 have no such key: drop it and {_MIGRATE}"
    return Mistake(path=("general", "edition"), problem=problem)


def _newer(data: legacy.Data) -> list[Mistake]:
    problem = "new in edition 5, and this file is of edition 4; write edition = 5 in [general]"
    return [Mistake(path=path, problem=problem) for path in legacy.newer_keys(data, Edition.V4)]


def _check(data: legacy.Data) -> tuple[Document | None, list[Mistake]]:
    """Check data as edition 5."""
    mistakes = [*_framework_mistakes(data), *_oversized((), data)]
    try:
        return Document.model_validate(data), mistakes
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        return None, [*mistakes, *(from_pydantic(one, data) for one in found)]


def _framework_mistakes(data: legacy.Data) -> Iterator[Mistake]:
    present = [name for name in FRAMEWORKS if name in data]
    if not present:
        expected = ", ".join(f"[{name}]" for name in FRAMEWORKS)
        yield Mistake(path=(), problem=f"there is no framework table; expected one of {expected}")
    for name in present[1:]:
        problem = f"a second framework table beside [{present[0]}]; expected one"
        yield Mistake(path=(name,), problem=problem)


def _oversized(path: Path, node: object) -> Iterator[Mistake]:
    """Whole numbers beyond the 64 bits of TOML, which Python would read."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _oversized((*path, key), value)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _oversized((*path, index), value)
    elif isinstance(node, int) and not -(2**63) <= node < 2**63:
        yield Mistake(path=path, problem="expected an integer of at most 64 bits")
