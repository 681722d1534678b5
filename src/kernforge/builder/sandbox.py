# SPDX-License-Identifier: Apache-2.0
"""The sandbox and the directory of an action.

Every action runs in one directory, ``/var/tmp/kernforge-<key>``, on every machine and with every
store: nvcc hashes the real path of a source into the names of internal kernels, and compilers write
paths into line tables. In a sandbox that directory is a mount, and else the program sees the
system's compilers and its toolchain, read-only, and nothing more: no network, no other process, no
home. Without a sandbox the same directory is a real one, so that the bytes are the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from kernforge.builder import namespaces
from kernforge.errors import ToolchainError
from kernforge.system.environment import user_file
from kernforge.system.process import Command, Runner

Mode: TypeAlias = Literal["required", "auto", "off"]
_Mounts: TypeAlias = "tuple[list[tuple[str, str, bool]], list[tuple[str, str]]]"
MODES: tuple[Mode, ...] = ("required", "auto", "off")

EPOCH = 315_532_800
"""The time of every file that an action sees, and of ``__DATE__``: 1980-01-01, as in zip files."""

PLACE = Path("/var/tmp")
"""Where the directories of actions are; one is made exclusively, and is its user's alone."""
KEY_LENGTH = 24
"""Characters of an action's key in the name of its directory."""
NAMES = f"kernforge-{'[0-9a-f]' * KEY_LENGTH}"
"""Glob pattern of these directories, which fits nothing that a user would name so."""
WORK = "work"
"""The part of an action's directory that holds its inputs and outputs."""
OPENED = "opened.d"
"""Dependency list of its compilers, among the temporary files of an action."""
LIMIT_S = 6 * 3600.0
"""The longest that an action may take."""
_FILE_BYTES = 64 << 30
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives")
_DEVICES = ("null", "zero", "full", "random", "urandom")
# Parts of a compiler's installation directory that it needs, where that lies in a home.
_COMPILER_PARTS = ("include/c++", "lib/gcc", "lib64/gcc", "libexec/gcc")
_COMPILER_PROGRAM = re.compile(
    r"(?:[\w.]+-)*(?:as|ld|ld\.\w+|ar|nm|ranlib|strip|objcopy|cc|c\+\+|cpp|gcc|g\+\+|collect2)"
    r"(?:-[\d.]+)?"
)
_LIBRARY = re.compile(r"[\w.+-]+\.(?:so(?:\.[\w.]+)?|a|o|spec)")
_TMP_BYTES = 1 << 28
# Switches of a kernel that refuses: their values then, and what allows it.
_SWITCHES = {
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "0"),
    "kernel/unprivileged_userns_clone": ("0", "1"),
    "user/max_user_namespaces": ("0", "10000"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """How this machine isolates an action; plain values, so that it can be sent elsewhere.

    Attributes:
        reason: why there is none; empty otherwise.
        wanted: the mode that the user asked for, for workers of a farm.
    """

    isolates: bool
    reason: str = ""
    wanted: Mode = "auto"


OFF = Sandbox(isolates=False, reason="it was switched off", wanted="off")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionDirectory:
    """One action's directory: ``work`` (its inputs, where it runs), ``tmp`` and ``roots``.

    Attributes:
        path: where it is on the disk.
        inside: where the action sees it.
        fixed: read-only paths in ``work``: inputs, or directories of inputs.
    """

    path: Path
    inside: str
    trees: Mapping[str, str]
    fixed: tuple[str, ...] = ()

    @property
    def work(self) -> Path:
        """Directory of inputs and outputs."""
        return self.path / WORK

    @property
    def scratch(self) -> Path:
        """Directory of temporary files."""
        return self.path / "tmp"

    def tree(self, name: str) -> str:
        """Path of a toolchain's tree as the action sees it; the host compiler stays where it is."""
        return f"{self.inside}/roots/{name}" if name in self.mounted() else self.trees[name]

    def mounted(self) -> dict[str, str]:
        """The trees that are seen inside the directory."""
        return {name: real for name, real in self.trees.items() if Path(real).is_dir()}


def fixed_inputs(inputs: Iterable[str], outputs: Iterable[str]) -> tuple[str, ...]:
    """Read-only paths of an action: inputs, and top directories without outputs."""
    made = set(outputs)
    busy = {path.partition("/")[0] for path in made}
    tops = {path: path.partition("/")[0] for path in inputs}
    fixed = {path if top in busy else top for path, top in tops.items()}
    return tuple(sorted(fixed - made))


def fixed_path(key: str) -> str:
    """Path of an action's directory, the same on every machine."""
    return f"{PLACE}/kernforge-{key[:KEY_LENGTH]}"


def environment(inside: str, programs: Mapping[str, str], library_path: str = "") -> dict[str, str]:
    """The whole environment of an action; directories of its programs come first in the path."""
    directories = [str(Path(program).parent) for program in programs.values()]
    path = dict.fromkeys([*directories, "/usr/bin", "/bin"])
    return {
        "HOME": f"{inside}/tmp",
        "LC_ALL": "C",
        **({"LD_LIBRARY_PATH": library_path} if library_path else {}),
        "PATH": ":".join(path),
        "SOURCE_DATE_EPOCH": str(EPOCH),
        # GCC adds what it opens to this list, also where nvcc starts it.
        "SUNPRO_DEPENDENCIES": f"{inside}/tmp/{OPENED}",
        "TMPDIR": f"{inside}/tmp",
        "TZ": "UTC",
    }


def probe(mode: Mode, compiler: str, runner: Runner, library_path: str = "") -> Sandbox:
    """Try the sandbox on this machine.

    Args:
        compiler: path of the host compiler, which must be visible inside.
        library_path: the ``LD_LIBRARY_PATH`` that it needs.
    """
    if mode == "off":
        return OFF
    mounts = _mounts(None, {"cxx": compiler}, library_path)
    argv = (*_prefix(mounts, "/"), compiler, "--version")
    done = runner(Command(argv=argv, env={"LD_LIBRARY_PATH": library_path} if library_path else {}))
    if done.returncode == 0:
        return Sandbox(isolates=True, wanted=mode)
    reason = (done.stderr.strip() or "refused").splitlines()[-1]
    if mode == "required":
        raise ToolchainError(
            f"actions cannot be isolated on this machine: {reason}",
            hint=remedy() + ", or build with --sandbox off what you trust as your own code",
        )
    return Sandbox(isolates=False, reason=reason, wanted=mode)


def remedy() -> str:
    """How to allow the sandbox on this machine."""
    for name, (refusing, allowing) in _SWITCHES.items():
        with contextlib.suppress(OSError):  # the kernel lacks the switch, or /proc is hidden
            if Path("/proc/sys", name).read_text().strip() == refusing:
                setting = f"{name.replace('/', '.')}={allowing}"
                return f"allow user namespaces to programs: `sysctl {setting}`"
    return "allow user namespaces (a container needs that from its host)"


def command(
    sandbox: Sandbox,
    directory: ActionDirectory,
    argv: tuple[str, ...],
    seconds: float = LIMIT_S,
    library_path: str = "",
) -> Command:
    """Command that runs an action in its directory.

    Args:
        library_path: the ``LD_LIBRARY_PATH`` that its compilers need.
    """
    programs = {k: v for k, v in directory.trees.items() if Path(v).is_file()}
    env = environment(directory.inside, programs, library_path)
    if not sandbox.isolates:
        return Command(argv=argv, cwd=directory.work, env=env, timeout=seconds)
    mounts = _mounts(directory, directory.trees, library_path)
    inside = f"{directory.inside}/{WORK}"
    words = _prefix(mounts, inside) + argv
    return Command(argv=words, cwd=directory.work, env=env, timeout=seconds)


def isolated(
    argv: tuple[str, ...], *, cwd: Path, readable: Iterable[Path], writable: Path
) -> tuple[str, ...]:
    """Argv of a program in a sandbox with some directories and no network.

    Args:
        readable: directories that it may read besides, under their own names.
    """
    system, links = _mounts(None, {})
    own = {str(path.resolve()) for path in readable if path.is_dir()}
    tops = sorted(p for p in own if not any(p.startswith(f"{q}/") for q in (*own, *_SYSTEM)))
    binds = [(path, path, False) for path in tops if path not in _SYSTEM]
    place = str(writable.resolve())
    return _prefix(([*system, *binds, (place, place, True)], links), str(cwd)) + argv


def by_hand(repeated: Command) -> str:
    """Shell script that repeats a command with nothing but its own environment."""
    env = [f"{name}={value}" for name, value in (repeated.env or {}).items()]
    line = shlex.join(["env", "-i", *env, *repeated.argv])
    return f"#!/bin/sh\ncd {shlex.quote(str(repeated.cwd))} && exec {line}\n"


def _mounts(
    directory: ActionDirectory | None, trees: Mapping[str, str], library_path: str = ""
) -> _Mounts:
    """Mounts of a sandbox: binds as (source, target, writable), links as (text, path)."""
    binds: list[tuple[str, str, bool]] = []
    links: list[tuple[str, str]] = []
    for path in _SYSTEM:
        if Path(path).is_symlink():
            links.append((str(Path(path).readlink()), path))
        elif Path(path).is_dir():
            binds.append((path, path, False))
    binds += [(path, path, False) for path in _SYSTEM_FILES if Path(path).exists()]
    binds += [(f"/dev/{name}", f"/dev/{name}", True) for name in _DEVICES]
    prefixes = {prefix for real in trees.values() for prefix in _prefixes(real)}
    programs = {p for real in trees.values() for p in (real, os.path.realpath(real))}
    for prefix in sorted(prefixes):
        parts = _compiler_parts(Path(prefix), programs) if _private(prefix) else (prefix,)
        for part in parts:
            # A link stays one: a compiler finds its parts from where its program really is.
            if Path(part).is_symlink() and not Path(part).is_dir():
                links.append((str(Path(part).readlink()), part))
            else:
                binds.append((os.path.realpath(part), part, False))
    binds += [(str(p.resolve()), str(p), False) for p in _outside(library_path, prefixes)]
    if directory is not None:
        binds.append((str(directory.path), directory.inside, True))
        binds += [
            (str(directory.work / path), f"{directory.inside}/{WORK}/{path}", False)
            for path in directory.fixed
        ]
        for name, real in directory.mounted().items():
            binds.append((os.path.realpath(real), f"{directory.inside}/roots/{name}", False))
            binds += [(place, place, False) for place in _linked_outside(os.path.realpath(real))]
    return binds, links


def _linked_outside(tree: str) -> Iterator[str]:
    """Directories outside a toolkit's tree to which links at its top lead."""
    with os.scandir(tree) as entries:
        for entry in entries:
            real = os.path.realpath(entry.path)
            system = f"{real}/".startswith((f"{tree}/", *(f"{d}/" for d in _SYSTEM)))
            if entry.is_symlink() and os.path.isdir(real) and not system:  # noqa: PTH112
                yield real


def _prefixes(program: str) -> Iterator[str]:
    """Installation prefixes of a program outside the system, by its name and its real path."""
    for path in (Path(program).absolute(), Path(os.path.realpath(program))):
        if len(path.parents) <= 1 or not path.is_file():
            continue
        prefix = str(path.parents[1])  # it is in PREFIX/bin
        if prefix != "/" and not f"{path}".startswith(tuple(f"{d}/" for d in _SYSTEM)):
            yield prefix


def _outside(library_path: str, prefixes: Iterable[str]) -> Iterator[Path]:
    """Directories of an LD_LIBRARY_PATH that are not seen otherwise."""
    seen = tuple(f"{top}/" for top in (*_SYSTEM, *prefixes))
    for folder in library_path.split(":"):
        if folder.startswith("/") and Path(folder).is_dir() and not f"{folder}/".startswith(seen):
            yield Path(folder)


def _private(prefix: str) -> bool:
    """Whether a directory holds, or lies in, a user's home."""
    home = user_file("~")
    homes = {home, home.resolve(), Path("/root"), Path("/home")}
    path = Path(prefix)
    return any(path.is_relative_to(each) or each.is_relative_to(path) for each in homes)


def _compiler_parts(prefix: Path, programs: set[str]) -> Iterator[str]:
    """Files of a GCC below a prefix: a home has more than a compiler in it.

    Its own directories, its headers, the programs that it starts, and libraries as such.
    """
    yield from (str(prefix / part) for part in _COMPILER_PARTS if (prefix / part).is_dir())
    targets = {path.name for path in (prefix / "lib" / "gcc").glob("*") if path.is_dir()}
    yield from (str(prefix / name) for name in sorted(targets) if (prefix / name).is_dir())
    for path in sorted((prefix / "bin").glob("*")):
        if path.is_file() and (_COMPILER_PROGRAM.fullmatch(path.name) or str(path) in programs):
            yield str(path)
    for folder in ("lib", "lib64"):
        paths = sorted((prefix / folder).glob("*"))
        yield from (str(p) for p in paths if p.is_file() and _LIBRARY.fullmatch(p.name))


def _prefix(mounts: _Mounts, cwd: str) -> tuple[str, ...]:
    """Argv of the program that enters the namespaces."""
    binds, links = mounts
    spec = json.dumps(
        {
            "binds": binds,
            "links": links,
            "cwd": cwd,
            "tmp": _TMP_BYTES,
            "file": _FILE_BYTES,
            "seconds": int(LIMIT_S),
        }
    )
    return (sys.executable, "-I", "-S", namespaces.__file__, spec)
