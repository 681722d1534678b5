# SPDX-License-Identifier: Apache-2.0
"""Which releases of CUDA, torch and tvm-ffi there are to build for."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources

from kernforge.artifact.version import Version2
from kernforge.toolchain import front_end

# CUDA toolkits that are made of what the package index carries.
TOOLKITS: tuple[Version2, ...] = (
    *front_end.TOOLKITS,
    *(Version2(13, minor) for minor in (0, 2, 3, 4, 5)),
)
# What a binary that serves every later CUDA of its major version is built with: the oldest of each
# major version, and the first of 12 that has code for Blackwell.
SERVING: tuple[Version2, ...] = (Version2(12, 6), Version2(12, 8), Version2(13, 0))
# Where nothing says which.
USUAL = Version2(13, 0)
# The one series of tvm-ffi that the hub's clients know.
TVM_FFI = Version2(0, 1)


@functools.cache
def torch_releases() -> Mapping[Version2, tuple[Version2, ...]]:
    """CUDA versions that each torch series was published for, the oldest series first."""
    text = resources.files("kernforge").joinpath("data/torch_releases.json").read_text()
    table = json.loads(text)["releases"]
    parse = Version2.parse
    return {parse(torch): tuple(map(parse, cuda)) for torch, cuda in table.items()}
