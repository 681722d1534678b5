# SPDX-License-Identifier: Apache-2.0
"""What the trees of a toolchain are, whatever their paths: this goes into the keys of actions."""

from __future__ import annotations

import functools

from kernforge.system import digest
from kernforge.toolchain import front_end
from kernforge.toolchain.lockfile import Lock, LockedTree, Tree

CXX = "%{cxx}"
THREADS = "%{threads}"
"""How many threads an action may use; not a tree."""


def cxx_of(cpu: str) -> str:
    """The C++ compiler as an argv writes it, of the building machine or for another processor."""
    return Tree("cxx", cpu=cpu).at()


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
