# SPDX-License-Identifier: Apache-2.0
"""Names of the trees of a toolchain, and how the arguments of an action refer to them.

A tree is written ``%{name}``. It becomes a real path only when an action runs; its identity, not
its path, goes into the action's key.
"""

from __future__ import annotations

from kernforge.artifact.version import Version2

CXX = "%{cxx}"
THREADS = "%{threads}"
"""How many threads an action may use; not a tree."""


def cuda_root(version: Version2) -> str:
    """Name of a CUDA toolkit's tree."""
    return f"cuda-{version}"


def cross_root(cpu: str, root: str) -> str:
    """Name of a tree for another processor than the building machine's, as ``aarch64-torch-2.10``.

    Args:
        cpu: the processor; empty for the building machine's own.
        root: name of the same tree for the building machine.
    """
    return f"{cpu}-{root}" if cpu else root


def cxx_of(cpu: str) -> str:
    """The C++ compiler as an argv writes it, of the building machine or for another processor."""
    return tree(cross_root(cpu, "cxx"))


def runtime_root(version: Version2) -> str:
    """Name of the tree with the static CUDA runtime for another processor."""
    return f"cudart-{version}"


def library_root(version: Version2, project: str) -> str:
    """Name of the tree with a CUDA library's headers."""
    return f"cuda-{version}-{project}"


def torch_root(version: Version2) -> str:
    """Name of the tree with a torch release's headers."""
    return f"torch-{version}"


def tvm_ffi_root(version: Version2) -> str:
    """Name of the tree with tvm-ffi's headers."""
    return f"tvm-ffi-{version}"


def tree(root: str, path: str = "") -> str:
    """A path in a tree, as an argv writes it."""
    return f"%{{{root}}}/{path}" if path else f"%{{{root}}}"
