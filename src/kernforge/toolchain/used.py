# SPDX-License-Identifier: Apache-2.0
"""The toolchain that a store was last used with, so that it serves where no compiler is.

A plan that is made with the recorded compilers and trees has the keys of the results that they
made: a stale record finds nothing, and never another module.
"""

from __future__ import annotations

import contextlib
import json
import platform
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kernforge.artifact.version import Version2
from kernforge.errors import ToolchainError
from kernforge.system import files
from kernforge.system.process import Runner
from kernforge.toolchain import host_compiler, installed, lockfile
from kernforge.toolchain.host_compiler import Compiler
from kernforge.toolchain.lockfile import Lock, LockedCompiler, LockedTree

FORBIDDEN = "KERNFORGE_NO_COMPILE=1 forbids to compile it"


def _file(home: Path) -> Path:
    return home / f"used-{platform.machine()}.lock"


def record(home: Path, lock: Lock) -> None:
    """Add the compilers and trees of a plan to what is recorded."""
    made, known = json.loads(lock.to_json()), None
    with contextlib.suppress(OSError, ValueError):
        # Not validated, which takes longer than to load a module.
        known = files.read_json(_file(home))
    both = made
    if isinstance(known, dict) and known.get("lock-version") == made["lock-version"]:
        both = {**made, **{part: {**known[part], **made[part]} for part in ("compilers", "trees")}}
    if both != known:
        files.write_json(_file(home), both)


def read(home: Path) -> Lock | None:
    """What is recorded; None if nothing is that can be read."""
    try:
        return lockfile.from_json(_file(home).read_text())
    except (OSError, ValueError, ToolchainError):  # damaged, or of another version
        return None


def find_compiler(
    env: Mapping[str, str], home: Path, runner: Runner, *, compiles: bool
) -> Compiler:
    """The compiler, or what is recorded of it if it is not here or must not run.

    Args:
        compiles: whether compilers may run. Otherwise none is started if one is recorded, unless
            ``CXX`` names another.
    """
    made_by = None if compiles else _compiler(home)
    if made_by and not env.get("CXX"):
        return Compiler.recorded(made_by, FORBIDDEN)
    try:
        compiler = host_compiler.find(env, runner)
    except ToolchainError as error:
        made_by = made_by or _compiler(home)
        if made_by is None:
            raise
        return Compiler.recorded(made_by, error.message if compiles else FORBIDDEN)
    return compiler if compiles else replace(compiler, refusal=FORBIDDEN)


def _compiler(home: Path) -> LockedCompiler | None:
    known = read(home)
    return known.compilers.get("cxx") if known else None


def find_python(home: Path, compiler: Compiler) -> LockedTree:
    """Python's headers; where nothing is compiled, they need not be installed."""
    try:
        return installed.identify_python()
    except ToolchainError:
        known = read(home) if compiler.refusal else None
        there = known.trees.get("python") if known else None
        if there is None or there.release != platform.python_version():
            raise
        return there


def toolkit(home: Path, torch: Version2 | None) -> Version2 | None:
    """Version of the toolkit that was used for a torch's CUDA; an installed one goes first.

    Args:
        torch: the CUDA that torch is built for; None for a build for the CPU.
    """
    known = read(home)
    trees = [t for t in known.trees.values() if t.kind == "cuda" and not t.cpu] if known else []
    versions = [(bool(tree.digest), Version2.parse(tree.version)) for tree in trees]
    fitting = [each for each in versions if torch is None or each[1].major == torch.major]
    return max(fitting)[1] if fitting else None
