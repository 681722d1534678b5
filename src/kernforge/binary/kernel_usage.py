# SPDX-License-Identifier: Apache-2.0
"""Registers, spills, shared memory and occupancy of the kernels in an object or a shared object.

They are read from the machine code itself: a build's flags, and with them its keys and bytes, stay as
they are (``-Xptxas -v`` would change both, for a cubin holds the command line that made it), and
what somebody else built can be looked at as well.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kernforge.binary import cubin_usage, fatbin, occupancy, symbols

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernforge.binary.cubin_usage import Use
    from kernforge.binary.occupancy import Occupancy

_BLOCKS = (128, 256, 512, 1024)
HEAD = (
    "kernel",
    "arch",
    "registers",
    "spills",
    "stack",
    "shared",
    "occupancy by threads of a block",
)
_ANONYMOUS = re.compile(r"\(anonymous namespace\)::")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One function for one architecture.

    Attributes:
        name: as a person wrote it, with its namespaces, template arguments and parameters.
        arch: compute capability, as ``9.0``.
        use: what it takes.
        fills: what of an SM it can fill without dynamic shared memory: at the block size that it
            says (``__block_size__`` or ``__launch_bounds__``), else at some usual ones; empty for
            a function that is no kernel, and where the capability's limits are not known.
    """

    name: str
    arch: str
    use: Use
    fills: tuple[Occupancy, ...]

    @property
    def short(self) -> str:
        """The name without what it returns and takes, and without anonymous namespaces."""
        text = _ANONYMOUS.sub("", self.name).removeprefix("void ")
        depth = 0
        for place, letter in enumerate(text):
            depth += (letter == "<") - (letter == ">")
            if letter == "(" and not depth:
                return text[:place]
        return text


def read(data: bytes, *, arch: str = "") -> tuple[Kernel, ...]:
    """The kernels of an object or a shared object, by name, then architecture.

    Functions that kernels call are there if they have a stack of their own.

    Args:
        data: the file.
        arch: only this compute capability, as ``9.0``.

    Raises:
        CheckError: the file or its machine code cannot be read.
    """
    found: dict[tuple[str, str], Kernel] = {}
    for name, code in fatbin.cubins(data):
        if arch and name.rstrip("af") != arch.rstrip("af"):
            continue
        for use in cubin_usage.uses(code, int(name.partition(".")[0])):
            if use.kernel or use.stack:
                found.setdefault((use.symbol, name), _kernel(use, name))
    return tuple(sorted(found.values(), key=lambda one: (one.name, _number(one.arch))))


def _kernel(use: Use, arch: str) -> Kernel:
    limits = occupancy.limits(arch)
    said = use.required or use.threads
    fills = (
        ()
        if limits is None or not use.kernel
        else tuple(
            occupancy.occupancy(
                limits,
                threads=threads,
                registers=use.registers,
                shared=use.shared,
                barriers=use.barriers,
            )
            for threads in ((said,) if said else _BLOCKS)
        )
    )
    return Kernel(name=symbols.demangled(use.symbol), arch=arch, use=use, fills=fills)


def _number(arch: str) -> tuple[int, str]:
    major, _, minor = arch.partition(".")
    return int(major) * 10 + int(minor.rstrip("af")), arch


def document(kernel: Kernel) -> dict[str, Any]:
    """A kernel for programs."""
    return {
        "name": kernel.name,
        "arch": kernel.arch,
        **asdict(kernel.use),
        "occupancy": [asdict(one) for one in kernel.fills],
    }


def rows(kernels: Iterable[Kernel]) -> list[tuple[str, ...]]:
    """Kernels for people; a row of the table ``HEAD``."""
    return [
        (
            kernel.short,
            kernel.arch,
            str(kernel.use.registers),
            _spills(kernel.use),
            _bytes(kernel.use.stack),
            _bytes(kernel.use.shared),
            ", ".join(map(_filled, kernel.fills)),
        )
        for kernel in kernels
    ]


def _spills(use: Use) -> str:
    if use.spill_stores is None or use.spill_loads is None:
        return "not known"
    if not use.spill_stores + use.spill_loads:
        return "0"
    return f"{use.spill_stores} B out, {use.spill_loads} B in"


def _bytes(count: int) -> str:
    return f"{count} B" if count else "0"


def _filled(one: Occupancy) -> str:
    if not one.blocks:
        return f"{one.threads}: none fits ({', '.join(one.limits)})"
    why = "" if one.share == 1 else f" ({', '.join(one.limits)})"
    return f"{one.threads}: {one.share:.0%}{why}"
