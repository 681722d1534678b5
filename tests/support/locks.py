# SPDX-License-Identifier: Apache-2.0
"""Toolchain locks for tests."""

from kernforge.toolchain.lockfile import LockedTree


def tree(kind, version="", wheel=None, **fields):
    """A locked tree, of one wheel or none."""
    wheels = (wheel,) if wheel else ()
    return LockedTree(
        **{"kind": kind, "version": version, "release": version, "wheels": wheels} | fields
    )


def table(*trees):
    """Trees as a lock lists them."""
    return {each.name: each for each in trees}
