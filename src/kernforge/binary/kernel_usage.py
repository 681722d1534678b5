# SPDX-License-Identifier: Apache-2.0
"""Registers, spills, shared memory and occupancy of the kernels in an object or a shared object.

They are read from the machine code. ``-Xptxas -v`` would change the keys and bytes of a build,
because a cubin contains the command line of its compilation; and it cannot examine other builds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from kernforge.binary import cubin, fatbin, occupancy, symbols
from kernforge.binary.cubin import FunctionUsage
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One function for one architecture.

    Attributes:
        name: demangled name, with namespaces, template arguments and parameters.
        arch: compute capability, such as ``9.0``.
        fills: occupancy without dynamic shared memory, at the declared block size
            (``__block_size__`` or ``__launch_bounds__``) or at some usual block sizes; empty for a
            function that is not a kernel, and if the limits of the capability are unknown.
    """

    name: str
    arch: str
    use: FunctionUsage
    fills: tuple[Occupancy, ...]

    @property
    def short(self) -> str:
        """The name without return type, parameters and anonymous namespaces."""
        text = self.name.replace("(anonymous namespace)::", "").removeprefix("void ")
        depth = 0
        for position, letter in enumerate(text):
            depth += (letter == "<") - (letter == ">")
            if letter == "(" and not depth:
                return text[:position]
        return text


def read(data: bytes) -> tuple[Kernel, ...]:
    """The kernels of an object or a shared object, sorted by name, then architecture.

    A function that kernels call is included if it has a stack.

    Raises:
        CheckError: the file or its machine code cannot be read.
    """
    kernels: dict[tuple[str, str], Kernel] = {}
    for name, code in fatbin.cubins(data):
        for use in cubin.uses(code, int(name.partition(".")[0])):
            if use.kernel or use.stack:
                kernels.setdefault((use.symbol, name), _kernel(use, name))
    return tuple(sorted(kernels.values(), key=lambda kernel: (kernel.name, _number(kernel.arch))))


def _kernel(use: FunctionUsage, arch: str) -> Kernel:
    limits = occupancy.limits(arch) if use.kernel else None
    declared = use.required or use.threads
    fills = tuple(
        occupancy.occupancy(
            limits,
            threads=threads,
            registers=use.registers,
            shared=use.shared,
            barriers=use.barriers,
        )
        for threads in ((declared,) if declared else _BLOCKS)
        if limits is not None
    )
    return Kernel(name=symbols.demangled(use.symbol), arch=arch, use=use, fills=fills)


def _number(arch: str) -> tuple[int, str]:
    major, _, minor = arch.partition(".")
    return int(major) * 10 + int(minor.rstrip("af")), arch


def document(kernel: Kernel) -> dict[str, Any]:
    """A kernel as JSON values."""
    return {
        "name": kernel.name,
        "arch": kernel.arch,
        **asdict(kernel.use),
        "occupancy": [asdict(occupancy) for occupancy in kernel.fills],
    }


def rows(kernels: Iterable[Kernel]) -> list[tuple[str, ...]]:
    """Rows of the table of kernels, whose head is ``HEAD``."""
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


def _spills(use: FunctionUsage) -> str:
    if use.spill_stores is None or use.spill_loads is None:
        return "not known"
    if not use.spill_stores + use.spill_loads:
        return "0"
    return f"{use.spill_stores} B out, {use.spill_loads} B in"


def _bytes(count: int) -> str:
    return f"{count} B" if count else "0"


def _filled(occupancy: Occupancy) -> str:
    if not occupancy.blocks:
        return f"{occupancy.threads}: none fits ({', '.join(occupancy.limits)})"
    reason = "" if occupancy.share == 1 else f" ({', '.join(occupancy.limits)})"
    return f"{occupancy.threads}: {occupancy.share:.0%}{reason}"
