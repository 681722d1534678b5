# SPDX-License-Identifier: Apache-2.0
"""Values of build.toml that its format allows and no compiler accepts."""

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


def check_values(manifest: Manifest) -> tuple[list[Mistake], list[str]]:
    """Find stable ABIs that never were, and compute capabilities of no GPU.

    Returns:
        Mistakes, and a note for each capability of no GPU that is left out beside those of GPUs.
    """
    mistakes, notes = list(_stable_abi(manifest)), []
    for name, section in manifest.kernels.items():
        named = (section.cuda_capabilities or ()) if isinstance(section, CudaKernel) else ()
        problems = [_problem(text) for text in named]
        for number, (text, problem) in enumerate(zip(named, problems, strict=True)):
            if not problem:
                continue
            if "" not in problems or text.endswith("+PTX") or not _ARCH.fullmatch(text):
                path: Path = ("kernel", name, "cuda-capabilities", number)
                mistakes.append(Mistake(path=path, problem=problem))
            else:
                notes.append(f"[kernel.{name}] cuda-capabilities {text} is left out: {problem}")
    return mistakes, notes


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


def _problem(text: str) -> str:
    """Why a compute capability cannot be compiled for; empty if it can."""
    try:
        arch = Arch.parse(text)
    except ManifestError as error:
        return f"not a compute capability; {error.hint}"
    if arch.capability in CAPABILITIES:
        return ""
    return f"no GPU has the compute capability {arch.capability}"
