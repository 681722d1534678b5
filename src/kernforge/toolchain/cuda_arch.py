# SPDX-License-Identifier: Apache-2.0
"""Choose the CUDA architectures of a build.

The default lists and the rule of choice are kernel-builder's, so that a project gets the same
architectures from both tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from kernforge.artifact.gpu import CAPABILITIES, GENERATIONS, Arch
from kernforge.artifact.version import Version2
from kernforge.errors import ManifestError, UsageError

# Newest toolkit that a list holds for, from the newest to the oldest.
_DEFAULTS = (
    ((13, 0), "7.5 8.0 8.6 8.7 8.9 9.0 10.0 10.3 11.0 12.0 12.1+PTX"),
    ((12, 8), "7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0 10.0 10.1 12.0+PTX"),
    ((0, 0), "7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0+PTX"),
)

# Since this one, a list begins with the oldest that its toolkit compiles for.
_LISTS_ITS_OLDEST = Version2(13, 0)


def listed(text: str) -> tuple[Arch, ...]:
    """Architectures that ``TORCH_CUDA_ARCH_LIST`` names by number or generation, ascending."""
    names = [name for name in re.split(r"[; ]", text) if name]
    parts = [part for name in names for part in GENERATIONS.get(name, name).split()] or [""]
    try:
        return merged(map(Arch.parse, parts))
    except ManifestError as error:
        raise UsageError(
            f"TORCH_CUDA_ARCH_LIST is {text!r}, which is not a list of compute capabilities",
            hint=f"write it like '8.0;9.0+PTX', or name generations: {', '.join(GENERATIONS)}",
        ) from error


def merged(archs: Iterable[Arch]) -> tuple[Arch, ...]:
    """Each architecture once, in ascending order, with PTX if it is named with it anywhere."""
    unique = set(archs)
    return tuple(
        sorted(arch for arch in unique if arch.ptx or replace(arch, ptx=True) not in unique)
    )


def defaults(toolkit: Version2) -> tuple[Arch, ...]:
    """Architectures that a toolkit builds for when the manifest names none."""
    listed = next(text for oldest, text in _DEFAULTS if toolkit >= oldest)
    return tuple(Arch.parse(part) for part in listed.split())


# The first CUDA whose nvcc compiles for a GPU (release notes of CUDA); all others are older.
_SINCE = {
    Version2.parse(gpu): Version2.parse(cuda)
    for gpu, cuda in (
        *(("8.7", "11.4"), ("8.9", "11.8"), ("9.0", "11.8"), ("10.0", "12.8"), ("10.1", "12.8")),
        *(("12.0", "12.8"), ("10.3", "12.9"), ("12.1", "12.9"), ("11.0", "13.0")),
    )
}
# The CUDA that took GPUs before a number out; 10.1 has another number (11.0) since 13.0.
_UNTIL = {Version2(5, 0): Version2(12, 0), Version2(7, 5): Version2(13, 0)}
_RENAMED = Version2(10, 1)


def compiles(toolkit: Version2, capability: Version2) -> bool:
    """Whether a toolkit compiles for a GPU, or may do so: one that is newer than is known here."""
    if capability not in CAPABILITIES:
        return capability > CAPABILITIES[-1]
    gone = any(capability < end and toolkit >= since for end, since in _UNTIL.items())
    renamed = capability == _RENAMED and toolkit >= _LISTS_ITS_OLDEST
    return not gone and not renamed and toolkit >= _SINCE.get(capability, toolkit)


def compiled_as(arch: Arch, toolkit: Version2) -> Arch | None:
    """The architecture that a toolkit compiles for in the place of one; None for none.

    Code for a GPU that is too old, and that later GPUs would run too, is made for the oldest.
    """
    if compiles(toolkit, arch.capability):
        return arch
    oldest = next(each for each in CAPABILITIES if compiles(toolkit, each))
    serves = arch.capability < oldest and (arch.ptx or arch.major == oldest[0])
    return replace(arch, major=oldest[0], minor=oldest[1]) if serves else None


def choose(wanted: Iterable[str] | None, toolkit: Version2) -> tuple[Arch, ...]:
    """Architectures of one kernel section under a toolkit.

    A capability with a suffix is taken as it is if the toolkit knows its number, and takes that
    number out of the toolkit's list. For each number that is left, the newest wanted capability
    that is not newer and has the same major serves; one with ``+PTX`` may serve later majors too.
    One with ``+PTX`` whose number a suffix took is kept, where kernel-builder may drop its PTX. One
    that is older than what the toolkit compiles is made for the oldest that it does, where
    kernel-builder's nvcc fails.

    Args:
        wanted: the section's ``cuda-capabilities``; None takes the toolkit's list.
    """
    if wanted is None:
        return defaults(toolkit)
    sources = merged(map(Arch.parse, wanted))
    numbers = [arch.capability for arch in defaults(toolkit)]
    special = [arch for arch in sources if arch.suffix and arch.capability in numbers]
    plain = [arch for arch in sources if not arch.suffix]
    chosen = {*special, *(arch for arch in plain if arch.ptx and arch.capability in numbers)}
    taken, oldest = {arch.capability for arch in special}, min(numbers)
    for number in numbers:
        fitting = [a for a in plain if a.capability <= number and (a.major == number[0] or a.ptx)]
        if fitting and number not in taken:
            best = fitting[-1]
            gone = best.capability < oldest and toolkit >= _LISTS_ITS_OLDEST
            chosen.add(replace(best, major=oldest[0], minor=oldest[1]) if gone else best)
    if not chosen:
        raise ManifestError(
            f"cuda-capabilities {', '.join(map(str, sources))}: an empty set of capabilities is "
            f"left for CUDA {toolkit}",
            hint=f"it can build for {', '.join(f'{a}.{b}' for a, b in numbers)}",
        )
    return merged(chosen)


def narrow(chosen: tuple[Arch, ...], only: tuple[Arch, ...]) -> tuple[Arch, ...]:
    """Of the chosen architectures those that serve the GPUs that a build is narrowed to.

    Args:
        only: capabilities of the GPUs; empty keeps everything. One with ``+PTX`` adds PTX to what
            serves it, but for code of one GPU or one family alone.

    Returns:
        For each GPU its own architecture if it was chosen, else the newest of the same major that
        is not newer, else the newest older one with PTX. Everything if none serves one of the GPUs.
    """
    serving = [_serving(chosen, gpu) for gpu in only]
    return (
        merged(arch for archs in serving for arch in archs) if serving and all(serving) else chosen
    )


def require(chosen: tuple[Arch, ...], only: tuple[Arch, ...]) -> None:
    """Refuse GPUs, and PTX for newer ones, that no chosen architecture can give."""
    named = ", ".join(map(str, chosen))
    for gpu in only:
        serving = _serving(chosen, gpu)
        if not serving:
            raise ManifestError(
                f"no architecture of {named} serves a GPU of capability {gpu}",
                hint="name another --arch, or add it to cuda-capabilities",
            )
        if gpu.ptx and not any(arch.ptx for arch in serving):
            raise ManifestError(
                f"--arch {gpu}: no architecture of {named} has PTX that a newer GPU can compile; "
                f"{', '.join(map(str, serving))} is for its own GPUs alone",
                hint=f"name --arch {replace(gpu, ptx=False)}, or add "
                f"{replace(gpu, suffix='')} to cuda-capabilities",
            )


def _serving(chosen: tuple[Arch, ...], gpu: Arch) -> list[Arch]:
    able = [arch for arch in chosen if arch.serves(gpu.capability)]
    exact = [arch for arch in able if arch.capability == gpu.capability]
    serving = exact or [arch for arch in able if arch.major == gpu.major][-1:] or able[-1:]
    return [
        replace(arch, ptx=True) if gpu.ptx and arch.suffix in {"", gpu.suffix} else arch
        for arch in serving
    ]
