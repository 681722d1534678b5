# SPDX-License-Identifier: Apache-2.0
"""What a toolchain may be made of: a lock decides which programs run, so it may not name any wheel.

A lock comes with a project and is untrusted input. So each part of a toolkit must be a wheel of the
project that this part comes from; and a wheel whose hash is known here must have that hash.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from importlib import resources

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from kernforge.errors import ToolchainError
from kernforge.toolchain.lockfile import LockedTree, LockedWheel

TOOLKIT = (
    "nvidia-cuda-nvcc",
    "nvidia-cuda-crt",
    "nvidia-nvvm",
    "nvidia-cuda-cccl",
    "nvidia-cuda-runtime",
)
"""Wheels of a compiler: nvcc and its parts, the runtime, the C++ core libraries."""
LIBRARIES = (
    *("nvidia-cublas", "nvidia-cusolver", "nvidia-cusparse", "nvidia-curand", "nvidia-cufft"),
    *("nvidia-cuda-nvrtc", "nvidia-nvtx", "nvidia-cuda-profiler-api"),
)
"""What ATen's CUDA headers and kernels include; only their headers are read."""
RUNTIME, RUNTIME_12 = "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"
TOOLKIT_12 = ("nvidia-cuda-nvcc-cu12", RUNTIME_12, "nvidia-cuda-cccl-cu12")
"""What is taken of CUDA 12 where the front end is that of 13."""
LIBRARIES_12 = tuple(f"{name}-cu12" for name in LIBRARIES)
TORCH, TVM_FFI = "torch", "apache-tvm-ffi"
CUTLASS = ("nvidia-cutlass", "sgl-kernel", "flashinfer-python")
"""Whose wheels carry releases of CUTLASS; nothing else is read of them."""
# As LockedFrontEnd lists its wheels.
FRONT_END = ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", RUNTIME_12)
_OF_KIND = {
    "cuda": TOOLKIT,
    "cuda-libraries": (*LIBRARIES, *LIBRARIES_12),
    "cudart": (RUNTIME, RUNTIME_12),
    "torch": (TORCH,),
    "tvm-ffi": (TVM_FFI,),
}
ALL = frozenset(
    (
        *TOOLKIT,
        *LIBRARIES,
        *TOOLKIT_12,
        *LIBRARIES_12,
        TORCH,
        TVM_FFI,
        *CUTLASS,
    )
)

_HASH = re.compile("[0-9a-f]{64}")


@functools.cache
def known_hashes() -> Mapping[str, str]:
    """Hex SHA-256 of the wheels that are known, by file name."""
    text = resources.files("kernforge").joinpath("data/toolchain_wheels.json").read_text()
    hashes: dict[str, str] = json.loads(text)["sha256"]
    return hashes


def check(tree: LockedTree) -> None:
    """Refuse a lock that takes a part of a toolchain from elsewhere than its own projects."""
    part = f"CUDA {tree.release}" if tree.kind == "cuda" else str(tree)
    if front := tree.front_end:
        _check(tree.wheels, TOOLKIT_12, part)
        for wheel, project in zip(front.wheels, FRONT_END, strict=True):
            _check([wheel], [project], "the front end")
    else:
        _check(tree.wheels, _OF_KIND.get(tree.kind, CUTLASS), part)


def _check(wheels: Iterable[LockedWheel], allowed: Iterable[str], part: str) -> None:
    names = frozenset(allowed)
    for wheel in wheels:
        try:
            project = str(parse_wheel_filename(wheel.file)[0])
        except (InvalidWheelFilename, ValueError):
            project = ""
        if project not in names or "/" in wheel.file:
            raise ToolchainError(
                f"the lock takes {part} from {wheel.file!r}, which is not a wheel of "
                f"{' or '.join(sorted(names))}",
                hint="do not build this project: its lock would start another program as the "
                "compiler. `kernforge lock` writes a new lock",
            )
        hashes = [text for text in (wheel.sha256, wheel.record) if text]
        known = known_hashes().get(wheel.file, wheel.sha256)
        if not hashes or not all(map(_HASH.fullmatch, hashes)) or wheel.sha256 != known:
            raise ToolchainError(
                f"the lock pins {wheel.file} by {', '.join(hashes) or 'no hash'}; its release has "
                f"sha256 {known}",
                hint="do not build this project: its lock names another file under this name. "
                "`kernforge lock` writes a new lock",
            )
