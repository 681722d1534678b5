# SPDX-License-Identifier: Apache-2.0
"""Stores for tests of modules that are compiled in this process."""

from kernforge import jit, jit_swap


def make(top, kept_home, monkeypatch):
    """An empty store but for what the test machine keeps of toolchains; it is used from now on."""
    (top / "store").mkdir(parents=True)
    (kept_home / "store" / "toolchains").mkdir(parents=True, exist_ok=True)
    (top / "store" / "toolchains").symlink_to(kept_home / "store" / "toolchains")
    for kept in ("store/compilers", "jit"):
        (kept_home / kept).mkdir(parents=True, exist_ok=True)
        (top / kept).symlink_to(kept_home / kept)
    monkeypatch.setenv("KERNFORGE_HOME", str(top))
    return top


def forget(monkeypatch):
    """A process that has compiled nothing, but for the op namespaces that it has."""
    monkeypatch.setattr(jit, "_process", jit._Process(taken=jit._process.taken))
    monkeypatch.setattr(jit_swap, "_hosts", {})
    monkeypatch.setattr(jit_swap, "_earlier", {})
