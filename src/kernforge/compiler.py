# SPDX-License-Identifier: Apache-2.0
"""Find the host's C++ compiler and say who it is."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.errors import ToolchainError
from kernforge.run import Command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernforge.run import Runner

_OLDEST = 10  # the first that knows -std=gnu++20
_INSTALL = (
    "install g++: `apt install g++` (Debian, Ubuntu), `dnf install gcc-c++` (Fedora, RHEL), "
    "`zypper install gcc-c++` (openSUSE); or name one in the environment variable CXX"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """A C++ compiler.

    Attributes:
        path: the program's absolute path.
        identity: first line of ``--version``.
        target: ``-dumpmachine``.
        static_libstdcxx: whether it has a ``libstdc++.a``, which some distributions package apart.
    """

    path: str
    identity: str
    target: str
    static_libstdcxx: bool = True


def find(env: Mapping[str, str], runner: Runner) -> Compiler:
    """Find the compiler that ``CXX`` names, else ``g++``, else ``c++``.

    Raises:
        ToolchainError: there is none, or it is not a GCC of a version that can serve.
    """
    named = env.get("CXX")
    candidates = [shlex.split(named)] if named else [["g++"], ["c++"]]
    for candidate in candidates:
        if len(candidate) != 1:
            raise ToolchainError(
                f"CXX is {named!r}, which is more than a program",
                hint="put flags into build.toml (cxx-flags) and name only the compiler in CXX",
            )
        try:
            return _identify(candidate[0], env, runner)
        except FileNotFoundError:
            continue
    missing = (
        f"CXX names {named!r}, which is not there" if named else "no C++ compiler is installed"
    )
    raise ToolchainError(missing, hint=_INSTALL)


def _identify(program: str, env: Mapping[str, str], runner: Runner) -> Compiler:
    def ask(*argv: str) -> str:
        return runner(Command(argv=argv, env={"PATH": env.get("PATH", ""), "LC_ALL": "C"})).stdout

    identity = (ask(program, "--version").splitlines() or [""])[0]
    version = ask(program, "-dumpfullversion").strip()
    if not version or "clang" in identity.lower():
        raise ToolchainError(
            f"{program} is {identity or 'not a compiler'!r}; kernforge builds with GCC",
            hint=_INSTALL,
        )
    if int(version.split(".")[0]) < _OLDEST:
        raise ToolchainError(
            f"{program} is GCC {version}; torch's headers need GCC {_OLDEST} or newer",
            hint=_INSTALL,
        )
    path = ask("/bin/sh", "-c", 'command -v "$0"', program).strip() or program
    archive = ask(program, "-print-file-name=libstdc++.a").strip()
    return Compiler(
        path=path,
        identity=identity,
        target=ask(program, "-dumpmachine").strip(),
        # The compiler answers with the bare name when it does not have the file.
        static_libstdcxx="/" in archive,
    )
