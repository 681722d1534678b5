# SPDX-License-Identifier: Apache-2.0
"""Read from a variant's shared libraries what the tags of its wheel need."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from kernforge.artifact.version import Version2
from kernforge.binary import elf
from kernforge.binary.elf import Elf
from kernforge.errors import CheckError
from kernforge.wheel import plan
from kernforge.wheel.plan import Library

_SUFFIX = re.compile(r"\.so(?:\.[0-9]+)*$")


def is_library(name: str) -> bool:
    """Whether a file name is the name of a shared library."""
    return _SUFFIX.search(name) is not None


def libraries(files: Mapping[str, Path]) -> Iterator[Library]:
    """Examine each shared library of a variant.

    Raises:
        CheckError: a library is damaged, or for a CPU without a platform tag.
    """
    for name, path in files.items():
        if is_library(name):
            yield _examined(name, elf.parse(path.read_bytes()))


def _examined(name: str, parsed: Elf) -> Library:
    from abi3info import DATAS, FUNCTIONS  # noqa: PLC0415 - large tables
    from abi3info.models import Symbol  # noqa: PLC0415

    entries = {
        symbol.name: FUNCTIONS.get(Symbol(symbol.name)) or DATAS.get(Symbol(symbol.name))
        for symbol in parsed.undefined
        if symbol.name.startswith(("Py", "_Py"))
    }
    added = [
        Version2(entry.added.major, entry.added.minor)
        for entry in entries.values()
        if entry is not None
    ]
    # An extension that only defines PyInit still needs Python.
    module = any(symbol.name.startswith("PyInit_") for symbol in parsed.exported)
    return Library(
        path=name,
        python=max(added, default=plan.LEAST_PYTHON if module else None),
        outside=tuple(sorted(symbol for symbol, entry in entries.items() if entry is None)),
        platform=_platform(name, parsed),
    )


def _platform(name: str, parsed: Elf) -> str:
    """The platform that auditwheel finds for the symbol versions of a library.

    The libraries of torch that it depends on do not count: the process that imports it has them.
    """
    from auditwheel.architecture import Architecture  # noqa: PLC0415 - the import takes a while
    from auditwheel.libc import Libc  # noqa: PLC0415
    from auditwheel.policy import WheelPolicies  # noqa: PLC0415

    try:
        cpu = Architecture(parsed.machine)
    except ValueError:
        raise CheckError(
            f"{name} is for {parsed.machine}, which has no manylinux platform",
            hint="build for a CPU that auditwheel supports",
        ) from None
    wanted: dict[str, set[str]] = {}
    for symbol in parsed.undefined:
        if symbol.version:
            wanted.setdefault(symbol.library, set()).add(symbol.version)
    policies = WheelPolicies(libc=Libc.GLIBC, arch=cpu)
    return str(policies.versioned_symbols_policy(wanted).name)
