# SPDX-License-Identifier: Apache-2.0
"""What a build for another processor needs of the package index.

Nothing but what depends on the processor: torch's headers, and NVIDIA's static runtime library. The
compilers run on the building machine, and NVIDIA's headers are the same for every processor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet

from kernforge.artifact.version import Version2
from kernforge.errors import ToolchainError
from kernforge.toolchain import front_end, projects, wheel_pins
from kernforge.toolchain.index.wheels import Wheels
from kernforge.toolchain.lockfile import (
    Lock,
    LockedCompiler,
    LockedCross,
    LockedToolkit,
    LockedTorch,
    LockedWheel,
)

_OLDEST_OWN_RUNTIME = 13


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossNeeds:
    """What builds for one other processor need.

    Attributes:
        torch: header releases, as ``"2.10"``.
        cuda: toolkits whose static runtime is linked, as ``"13.0"``.
    """

    torch: frozenset[str] = frozenset()
    cuda: frozenset[str] = frozenset()

    def names(self, cpu: str) -> tuple[str, ...]:
        """What it asks for, for a person to read."""
        return (
            f"compiler for {cpu}",
            *(f"torch {version} for {cpu}" for version in sorted(self.torch)),
            *(f"CUDA {version} for {cpu}" for version in sorted(self.cuda)),
        )


def lacking(needs: Mapping[str, CrossNeeds], lock: Lock) -> dict[str, CrossNeeds]:
    """What a lock lacks of what builds need, by processor; nothing for one that it serves."""
    missing = {}
    for cpu, wanted in needs.items():
        known = lock.cross.get(cpu)
        if known is None:
            missing[cpu] = wanted
            continue
        left = CrossNeeds(
            torch=wanted.torch - known.torch.keys(), cuda=wanted.cuda - known.runtime.keys()
        )
        if left.torch or left.cuda:
            missing[cpu] = left
    return missing


def resolve(
    cpu: str,
    needs: CrossNeeds,
    wheels: Wheels,
    compiler: LockedCompiler,
    toolkits: Mapping[str, LockedToolkit],
) -> LockedCross:
    """Resolve needs to files and hashes.

    Args:
        toolkits: the building machine's, whose releases the runtime follows.

    Raises:
        ToolchainError: the index does not have something.
        NetworkError: no index can be reached.
    """
    torch = {v: wheel_pins.newest(wheels, projects.TORCH, v, cpu) for v in sorted(needs.torch)}
    return LockedCross(
        compiler=compiler,
        torch={
            v: LockedTorch(release=str(w.version), wheel=wheel_pins.by_record(w, wheels))
            for v, w in torch.items()
        },
        runtime={v: _runtime(v, wheels, cpu, toolkits.get(v)) for v in sorted(needs.cuda)},
    )


def _runtime(version: str, wheels: Wheels, cpu: str, toolkit: LockedToolkit | None) -> LockedWheel:
    """The wheel with the static runtime that belongs to a toolkit, in the same release."""
    old = Version2.parse(version).major < _OLDEST_OWN_RUNTIME
    project = projects.RUNTIME_12 if old else projects.RUNTIME
    start = f"{project.replace('-', '_')}-"
    used: tuple[LockedWheel, ...] = toolkit.wheels if toolkit else ()
    if toolkit and toolkit.front_end:
        used = (toolkit.front_end.runtime,)
    files = [wheel.file for wheel in used if wheel.file.startswith(start)]
    # Of CUDA 12 only the last series has the library in its wheels.
    series = front_end.RUNTIME_OF if old else version
    release = files[0].split("-")[1] if files else f"{series}.*"
    specifier = SpecifierSet(f"=={release}")
    try:
        found = wheel_pins.matching(wheels, project, specifier, cpu)
    except ToolchainError as error:
        raise ToolchainError(
            error.message,
            hint=f"without it no variant for CUDA {version} is linked for {cpu}: ask for another "
            "CUDA, or use an index that has the wheel",
        ) from error
    return wheel_pins.by_record(found, wheels)
