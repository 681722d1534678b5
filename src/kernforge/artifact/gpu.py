# SPDX-License-Identifier: Apache-2.0
"""GPUs, and targets of their machine code: which GPU runs which build?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from kernforge.artifact.version import Version2
from kernforge.errors import ManifestError

_ARCH = re.compile(r"([0-9]+)\.([0-9])([af]?)(\+PTX)?")
_GPUS = (
    "3.0 3.2 3.5 3.7 5.0 5.2 5.3 6.0 6.1 6.2 7.0 7.2 7.5 8.0 8.6 8.7 8.8 8.9 9.0 10.0 10.1 10.3 "
    "10.7 11.0 12.0 12.1"
)
CAPABILITIES = tuple(Version2.parse(number) for number in _GPUS.split())
"""Compute capabilities of the GPUs that CUDA 9 to 13.5 compile for."""
GENERATIONS = {
    "Volta": "7.0+PTX",
    "Turing": "7.5+PTX",
    "Ampere": "8.0 8.6+PTX",
    "Ampere+Tegra": "8.7",
    "Ada": "8.9+PTX",
    "Hopper": "9.0+PTX",
    "Blackwell": "10.0 10.3 12.0 12.1+PTX",
    "Blackwell+Tegra": "11.0",
    "Rubin": "10.7+PTX",
}
"""Names that torch's loader takes too, of what a toolkit of CUDA 12 or 13 compiles for."""


@dataclass(frozen=True, order=True, slots=True)
class Arch:
    """One target of device code; ``str`` and ``parse`` are each other's inverse.

    Attributes:
        suffix: ``"a"``: this GPU only; ``"f"``: its family; empty: it and later minors.
        ptx: whether PTX goes along, which newer GPUs compile when they load it.
    """

    major: int
    minor: int
    suffix: str = ""
    ptx: bool = False

    @classmethod
    def find(cls, text: str) -> Self | None:
        """Read ``9.0``, ``9.0a``, ``10.0f`` or ``12.1+PTX``; None if it is something else."""
        match = _ARCH.fullmatch(text)
        return match and cls(int(match[1]), int(match[2]), match[3], ptx=bool(match[4]))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what ``find`` reads, and refuse anything else."""
        found = cls.find(text.strip())
        if found is None:
            raise ManifestError(
                f"{text!r} is not a CUDA compute capability",
                hint="write it like 8.0, 9.0a, 10.0f or 9.0+PTX",
            )
        return found

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}{self.suffix}{'+PTX' if self.ptx else ''}"

    @property
    def capability(self) -> Version2:
        """Major and minor."""
        return Version2(self.major, self.minor)

    def serves(self, capability: Version2) -> bool:
        """Whether a GPU runs code for this target; PTX with a suffix reaches no further."""
        if self.suffix == "a":
            return capability == self.capability
        if self.ptx and not self.suffix:
            return capability >= self.capability
        return self.major == capability[0] and self.minor <= capability[1]

    def gencode(self) -> tuple[str, ...]:
        """Arguments for nvcc: machine code, and PTX if it goes along."""
        digits = f"{self.major}{self.minor}{self.suffix}"
        codes = [f"arch=compute_{digits},code=sm_{digits}"]
        if self.ptx:
            codes.append(f"arch=compute_{digits},code=compute_{digits}")
        return tuple(part for code in codes for part in ("-gencode", code))


def runs(archs: Iterable[str], capability: Version2) -> bool:
    """Whether a GPU runs a build for these architectures; it may if none of them is known."""
    known = [arch for text in archs if (arch := Arch.find(text))]
    return not known or any(arch.serves(capability) for arch in known)
