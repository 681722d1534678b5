# SPDX-License-Identifier: Apache-2.0
"""Read the requirements of a variant's shared libraries, for the tags of its wheel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from kernforge.artifact.version import Version2
from kernforge.binary import elf
from kernforge.check.abi_rules import manylinux_policy
from kernforge.errors import CheckError
from kernforge.wheel.plan import LEAST_PYTHON, Library

_SUFFIX = re.compile(r"\.so(?:\.[0-9]+)*$")


def is_library(name: str) -> bool:
    """Whether a file name is the name of a shared library."""
    return _SUFFIX.search(name) is not None


def libraries(files: Mapping[str, Path]) -> Iterator[Library]:
    """Examine each shared library of a variant."""
    from abi3info import DATAS, FUNCTIONS  # noqa: PLC0415 - large tables
    from abi3info.models import Symbol  # noqa: PLC0415

    for name, path in files.items():
        if not is_library(name):
            continue
        parsed = elf.parse(path.read_bytes())
        # The function or datum of Python's limited API; None outside of that.
        entries = {
            symbol.name: FUNCTIONS.get(Symbol(symbol.name)) or DATAS.get(Symbol(symbol.name))
            for symbol in parsed.undefined
            if symbol.name.startswith(("Py", "_Py"))
        }
        added = [Version2(each.added.major, each.added.minor) for each in entries.values() if each]
        # An extension that only defines PyInit still needs Python.
        is_module = any(symbol.name.startswith("PyInit_") for symbol in parsed.exported)
        try:
            platform = manylinux_policy(parsed)[1].name
        except ValueError:
            raise CheckError(
                f"{name} is for {parsed.machine}, which has no manylinux platform",
                hint="build for a CPU that auditwheel supports",
            ) from None
        yield Library(
            path=name,
            python=max(added, default=LEAST_PYTHON if is_module else None),
            outside=tuple(sorted(symbol for symbol, entry in entries.items() if entry is None)),
            platform=platform,
        )
