# SPDX-License-Identifier: Apache-2.0
"""Values of build.toml that its format allows and that no compiler can do anything with."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernforge.artifact.version import Version2
from kernforge.errors import ManifestError
from kernforge.manifest.document import Manifest
from kernforge.manifest.fields import Path
from kernforge.manifest.mistakes import Mistake
from kernforge.manifest.model import CudaKernel, Torch
from kernforge.toolchain.cuda_arch import CAPABILITIES, Arch

# torch/csrc/stable is in torch's wheels since then.
_FIRST_STABLE = Version2(2, 9)
_ARCH = re.compile(r"\d+\.\d[af]?(?:\+PTX)?")


def wrong_values(manifest: Manifest) -> Iterator[Mistake]:
    """Stable ABIs that never were, and compute capabilities of no GPU.

    One of no GPU among others is not compiled for, and is a note only: see ``notes``.
    """
    yield from _stable_abi(manifest)
    for path, text, alone in _capabilities(manifest):
        problem = _capability(text)
        if problem and (alone or text.endswith("+PTX") or not _ARCH.fullmatch(text)):
            yield Mistake(path=path, problem=problem)


def notes(manifest: Manifest) -> Iterator[str]:
    """A line for each compute capability of no GPU that is left out beside those of GPUs."""
    for path, text, _ in _capabilities(manifest):
        if problem := _capability(text):
            yield f"[kernel.{path[1]}] cuda-capabilities {text} is left out: {problem}"


def _capabilities(manifest: Manifest) -> Iterator[tuple[Path, str, bool]]:
    """Each capability with its place, and whether no other of its section is of a GPU."""
    for name, section in manifest.kernels.items():
        if isinstance(section, CudaKernel):
            named = section.cuda_capabilities or ()
            alone = not any(_capability(text) == "" for text in named)
            for number, text in enumerate(named):
                yield ("kernel", name, "cuda-capabilities", number), text, alone


def _stable_abi(manifest: Manifest) -> Iterator[Mistake]:
    framework = manifest.framework
    if not isinstance(framework, Torch) or framework.stable_abi is None:
        return
    path: Path = ("torch", "stable-abi")
    stated = framework.stable_abi
    versions = (
        {path: stated}
        if isinstance(stated, Version2)
        else {(*path, backend): version for backend, version in stated.items()}
    )
    for where, version in versions.items():
        if version < _FIRST_STABLE:
            yield Mistake(
                path=where,
                problem=f"torch {version} has no stable ABI; it begins with {_FIRST_STABLE}. "
                "Remove the key to build one variant for each torch",
            )


def _capability(text: str) -> str:
    try:
        arch = Arch.parse(text)
    except ManifestError as error:
        return f"not a compute capability; {error.hint}"
    if arch.capability in CAPABILITIES:
        return ""
    return f"no GPU has the compute capability {arch.capability}"
