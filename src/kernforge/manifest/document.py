# SPDX-License-Identifier: Apache-2.0
"""Parse build.toml, or list all its mistakes.

The same files are valid as for ``kernels`` 0.17.2, with two exceptions. Its parser also accepts a
list of a table's values in the order of the program's declarations (``hub = ["owner/name",
"main"]``), which is not documented; and it refuses integers of more than 64 bits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from kernforge.errors import ManifestError
from kernforge.manifest import editions as legacy
from kernforge.manifest.editions import Edition
from kernforge.manifest.mistakes import Mistake, from_pydantic, report
from kernforge.manifest.model import (
    FRAMEWORKS,
    AnyKernel,
    Backend,
    Document,
    General,
    Torch,
    TorchNoarch,
    TvmFfi,
)
from kernforge.system import untrusted

_BOM = "\ufeff"
_MIGRATE = "run `kernforge adopt .`"
_NO_FRAMEWORK = (
    f"there is no framework table; expected one of {', '.join(f'[{name}]' for name in FRAMEWORKS)}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of a valid build.toml.

    Attributes:
        general: the table ``[general]``; its backends are as written, with repetitions.
        framework: the framework table; a manifest has exactly one.
        kernels: the ``[kernel.<name>]`` sections by name, in the order of the file.
        other_languages: the language of each section that kernforge cannot compile, by the name of
            the section, as ``{"scan": "rust-cpu"}``; such sections are not in ``kernels``.
    """

    general: General
    framework: Torch | TorchNoarch | TvmFfi
    kernels: Mapping[str, AnyKernel]
    other_languages: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def content(self) -> str:
        """The content for digests: the written keys, independent of the keys of this release."""
        tables = (self.general, self.framework, *self.kernels.values())
        # A version is a tuple, and pydantic warns of the list that it writes for it.
        plain = [
            (type(t).__name__, t.model_dump(mode="json", exclude_defaults=True, warnings=False))
            for t in tables
        ]
        return json.dumps([plain, [*self.kernels]], sort_keys=True)

    def sections(self, backend: Backend) -> Mapping[str, AnyKernel]:
        """The kernel sections of one backend, in the order of the file.

        kernel-builder builds a backend without a section as Python alone, for every framework.
        """
        return {name: kernel for name, kernel in self.kernels.items() if kernel.backend == backend}

    @property
    def source_tables(self) -> tuple[Torch | TvmFfi | AnyKernel, ...]:
        """The tables with sources: the framework's unless it is Python alone, and all sections."""
        framework = () if isinstance(self.framework, TorchNoarch) else (self.framework,)
        return (*framework, *self.kernels.values())


def parse(text: str, *, source: str = "build.toml") -> Manifest:
    """Parse a manifest of edition 5 or 6, or of an older one, which is upgraded in memory.

    Args:
        source: name of the file for messages.

    Raises:
        ManifestError: the file is wrong; the message has one line for each mistake,
            ``file:line: [table] key = value: expected ...``.
    """
    data = read_data(text, source=source)
    edition, document = _validate(data, text, source)
    framework = document.torch or document.torch_noarch or document.tvm_ffi
    if framework is None:
        raise ManifestError(f"{source}: {_NO_FRAMEWORK}")
    return Manifest(
        general=document.general,
        framework=framework,
        kernels=document.kernel,
        other_languages=legacy.other_languages(data),
        notes=(_note(data, edition, document, source),) if edition < Edition.V5 else (),
    )


def _note(data: legacy.Data, edition: Edition, document: Document, source: str) -> str:
    """One line about an old edition and the values that were assumed."""
    general = document.general
    values: dict[str, object] = {"backends": [*general.backends], "version": general.version}
    values["license"] = general.license
    assumed = [
        f"{key} = {json.dumps(v)}" for key, v in values.items() if key not in data["general"]
    ]
    read = f", read as edition 5 with {', '.join(assumed)}" if assumed else ""
    option = "" if "license" in data["general"] else " --license NAME"
    return (
        f"{source} is of edition {int(edition)}{read}; run `kernforge adopt .{option}` to convert "
        "it to edition 5"
    )


def edition_of(text: str, *, source: str = "build.toml") -> Edition:
    """The edition in which a file is valid; a file before edition 4 may lack the license."""
    return _validate(read_data(text, source=source), text, source)[0]


def read_data(text: str, *, source: str) -> legacy.Data:
    """The plain data of a file."""
    try:
        return untrusted.parse_toml(text.removeprefix(_BOM))
    except untrusted.DocumentError as error:
        raise ManifestError(f"{source}: {error}", hint="make the file smaller or flatter") from None
    except ValueError as error:
        problem, _, position = str(error).partition(" (at ")
        line = re.match(r"line (\d+), (column \d+)\)", position)
        place = f"{source}:{line[1]}: {line[2]}" if line else f"{source}: at the end"
        raise ManifestError(
            f"{place}: the file is not valid TOML: {problem[:1].lower()}{problem[1:]}",
            hint="correct the line; the grammar is at https://toml.io/en/v1.0.0",
        ) from error


def _validate(data: legacy.Data, text: str, source: str) -> tuple[Edition, Document]:
    """Find the edition and validate the data by its rules."""
    general = data.get("general")
    edition_key = general.get("edition") if isinstance(general, dict) else None
    document: Document | None = None
    edition = Edition.V5
    if isinstance(edition_key, int) and edition_key in {Edition.V5, Edition.V6}:
        edition = Edition(edition_key)
        document, mistakes = _check(legacy.with_backends(data))
        mistakes += _newer(data, edition)
        mistakes += [Mistake(path=p, problem=text) for p, text in legacy.wrong_languages(data)]
    elif edition_key is not None:
        mistakes = [_wrong_edition(edition_key)]
    elif legacy.is_before_3(data):
        edition = Edition.V2
        document, mistakes = _check(legacy.upgraded(data, edition))
    else:
        older = legacy.is_before_4(data) and not legacy.newer_keys(data, Edition.V3)
        edition = Edition.V3 if older else Edition.V4
        document, mistakes = _check(legacy.upgraded(data, edition))
        # Edition 3 requires less: what a wrong file lacks counts if it is not of that edition.
        if older and mistakes and legacy.is_meant_as_4(data):
            edition = Edition.V4
            document, mistakes = _check(legacy.upgraded(data, edition))
        mistakes += _newer(data, edition)
    if document is None or mistakes:
        raise ManifestError(report(mistakes, data, text=text.removeprefix(_BOM), source=source))
    return edition, document


def _wrong_edition(value: object) -> Mistake:
    if isinstance(value, bool) or not isinstance(value, int):
        problem = "expected 5 or 6"
    elif value > max(Edition):
        problem = (
            f"edition {value} is newer than this kernforge reads ({max(Edition)}): update kernforge"
        )
    else:
        problem = f"expected 5 or 6; older editions do not have this key: remove it and {_MIGRATE}"
    return Mistake(path=("general", "edition"), problem=problem)


def _newer(data: legacy.Data, edition: Edition) -> list[Mistake]:
    problem = "new in edition {0}, but the file is of edition {1}; write edition = {0} in [general]"
    return [
        Mistake(path=path, problem=problem.format(int(since), int(edition)))
        for path, since in legacy.newer_keys(data, edition).items()
    ]


def _check(data: legacy.Data) -> tuple[Document | None, list[Mistake]]:
    """Validate data of edition 5."""
    mistakes = [*_framework_mistakes(data)]
    try:
        return Document.model_validate(data), mistakes
    except ValidationError as invalid:
        errors = invalid.errors(include_url=False, include_input=False)
        return None, [*mistakes, *(from_pydantic(error, data) for error in errors)]


def _framework_mistakes(data: legacy.Data) -> Iterator[Mistake]:
    present = [name for name in FRAMEWORKS if name in data]
    if not present:
        yield Mistake(path=(), problem=_NO_FRAMEWORK)
    for name in present[1:]:
        problem = f"a second framework table, after [{present[0]}]; expected one"
        yield Mistake(path=(name,), problem=problem)
