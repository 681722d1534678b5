# SPDX-License-Identifier: Apache-2.0
"""Locks in forked processes, which have one thread: none may stay held by a thread of the parent.

``fork`` is usual where a thread compiles or loads: torch's data loaders fork.
"""

from __future__ import annotations

import os
import weakref
from typing import Any, TypeVar

_Lock = TypeVar("_Lock")
_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def free_in_child(lock: _Lock) -> _Lock:
    """A lock of ``threading`` that is free in a forked process."""
    _locks.add(lock)
    return lock


def _free() -> None:
    for lock in _locks:
        lock._at_fork_reinit()  # noqa: SLF001 - as the standard library does with its own


os.register_at_fork(after_in_child=_free)
