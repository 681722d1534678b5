# SPDX-License-Identifier: Apache-2.0
"""Names and identities of the trees of a toolchain, as the arguments of an action refer to them.

A tree is written ``%{name}``. It becomes a real path only when an action runs; its identity, not
its path, goes into the action's key.
"""

from __future__ import annotations

import functools

from kernforge.artifact.version import Version2
from kernforge.system import digest
from kernforge.toolchain import front_end
from kernforge.toolchain.lockfile import Lock, LockedTree, Tree

CXX = "%{cxx}"
THREADS = "%{threads}"
"""How many threads an action may use; not a tree."""


def cuda_root(version: Version2) -> str:
    """Name of a CUDA toolkit's tree."""
    return Tree("cuda", str(version)).name


def cxx_of(cpu: str) -> str:
    """The C++ compiler as an argv writes it, of the building machine or for another processor."""
    return tree(Tree("cxx", cpu=cpu).name)


def runtime_root(version: Version2, cpu: str) -> str:
    """Name of the tree with the static CUDA runtime for another processor."""
    return Tree("cudart", str(version), cpu).name


def libraries_root(version: Version2) -> str:
    """Name of the tree with the headers of CUDA's libraries."""
    return Tree("cuda-libraries", str(version)).name


def torch_root(version: Version2, cpu: str = "") -> str:
    """Name of the tree with a torch release's headers."""
    return Tree("torch", str(version), cpu).name


def tvm_ffi_root(version: Version2) -> str:
    """Name of the tree with tvm-ffi's headers."""
    return Tree("tvm-ffi", str(version)).name


def tree(root: str, path: str = "") -> str:
    """A path in a tree, as an argv writes it."""
    return f"%{{{root}}}/{path}" if path else f"%{{{root}}}"


def identity(name: str, lock: Lock) -> str:
    """What a tree of a lock is, whatever its path.

    Raises:
        ToolchainError: the lock does not have it.
    """
    compiler = lock.compilers.get(name)
    return compiler.key if compiler else key(lock.tree(name))


@functools.lru_cache(maxsize=256)
def key(tree: LockedTree) -> str:
    """Fingerprint of what a tree is made of, also its key in the store.

    Different kinds take different members of one wheel, so that each has keys of its own.

    Raises:
        ToolchainError: it is a toolkit whose front end kernforge cannot adapt.
    """
    added = front_end.texts(tree) if tree.front_end else {}
    return digest.key(
        "tree",
        of=tree.kind,
        layout=1,
        digest=tree.digest,
        wheels=[[wheel.sha256, wheel.record] for wheel in sorted(tree.every_wheel)],
        added={path: digest.sha256(text) for path, text in added.items()},
    )
