# SPDX-License-Identifier: Apache-2.0
"""Read from a variant's shared libraries what the tags of its wheel must say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kernforge.binary import elf
from kernforge.errors import CheckError
from kernforge.wheel import plan
from kernforge.wheel.plan import Library

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from kernforge.binary.elf import Elf

_SUFFIX = re.compile(r"\.(?:so(?:\.[0-9]+)*|dylib|dll|pyd)$")


def is_library(name: str) -> bool:
    """Whether a file's name is that of a shared library, of any system."""
    return _SUFFIX.search(name) is not None


def libraries(found: Mapping[str, Path]) -> Iterator[Library]:
    """What tags have to know of each shared library of a variant.

    Args:
        found: the variant's files by their path in it.

    Raises:
        CheckError: a library is damaged, or for a CPU that no tag names.
    """
    for name, path in found.items():
        if not is_library(name):
            continue
        data = path.read_bytes()
        if data[:4] == b"\x7fELF":
            yield _examined(name, elf.parse(data))
        else:
            module = ".abi3." in name or name.endswith(".pyd")
            yield Library(path=name, python=plan.LEAST_PYTHON if module else None)


def _examined(name: str, parsed: Elf) -> Library:
    from abi3info import DATAS, FUNCTIONS  # noqa: PLC0415 - large tables
    from abi3info.models import Symbol  # noqa: PLC0415

    known = {
        symbol.name: FUNCTIONS.get(Symbol(symbol.name)) or DATAS.get(Symbol(symbol.name))
        for symbol in parsed.undefined
        if symbol.name.startswith(("Py", "_Py"))
    }
    added = [(one.added.major, one.added.minor) for one in known.values() if one is not None]
    # An extension that only defines its own PyInit is Python's all the same.
    module = any(symbol.name.startswith("PyInit_") for symbol in parsed.exported)
    return Library(
        path=name,
        python=max(added, default=plan.LEAST_PYTHON if module else None),
        outside=tuple(sorted(symbol for symbol, one in known.items() if one is None)),
        platform=_platform(name, parsed),
    )


def _platform(name: str, parsed: Elf) -> str:
    """What auditwheel finds for the symbol versions of a library.

    Libraries of torch that it depends on are not weighed: the process that imports it has them.
    """
    from auditwheel.architecture import Architecture  # noqa: PLC0415 - the import takes a while
    from auditwheel.libc import Libc  # noqa: PLC0415
    from auditwheel.policy import WheelPolicies  # noqa: PLC0415

    try:
        cpu = Architecture(parsed.machine)
    except ValueError:
        raise CheckError(
            f"{name} is for {parsed.machine}, which has no manylinux platform",
            hint="wheels are made for the CPUs that auditwheel knows",
        ) from None
    wanted: dict[str, set[str]] = {}
    for symbol in parsed.undefined:
        if symbol.version:
            wanted.setdefault(symbol.library, set()).add(symbol.version)
    policies = WheelPolicies(libc=Libc.GLIBC, arch=cpu)
    return str(policies.versioned_symbols_policy(wanted).name)
