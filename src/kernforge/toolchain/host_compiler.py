# SPDX-License-Identifier: Apache-2.0
"""Find the host's C++ compiler and identify it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernforge.errors import ToolchainError
from kernforge.system import digest, files
from kernforge.system.process import Command, Completed, Runner
from kernforge.toolchain.lockfile import LockedCompiler

_OLDEST = 10  # the first that knows -std=gnu++20
# What the driver starts, and which of their libraries do the work.
_PROGRAMS = ("cc1plus", "as", "ld.bfd")
_WORKERS = ("libbfd", "libopcodes", "libisl", "libgmp", "libmpfr", "libmpc")
_LIBRARIES = ("libstdc++.a", "libgcc.a")
_PARTS = (*_PROGRAMS, *_LIBRARIES, "headers")
# Together these reach nearly every header of the C++ and the C library.
_HEADERS = ("bits/stdc++.h", "unistd.h", "dlfcn.h", "pthread.h", "sys/mman.h", "sys/stat.h")
# They start a compiler, and keep what it made or have another machine make it.
_LAUNCHERS = frozenset({"ccache", "sccache", "distcc", "icecc", "buildcache"})
_FIXED_PATH = "/usr/bin:/bin"
_SAID = 600
_INSTALL = (
    "install g++: `apt install g++` (Debian, Ubuntu), `dnf install gcc-c++` (Fedora, RHEL), "
    "`zypper install gcc-c++` (openSUSE); or name one in the environment variable CXX"
)
CROSS = {"x86_64": ("aarch64",)}
"""Processors that are built for on machines of another, by the machine's."""
# The middle of a cross compiler's name, between processor and program: as Debian, Ubuntu and Arch
# name it, as conda-forge does, as crosstool-NG and Gentoo do.
_VENDORS = ("linux-gnu", "conda-linux-gnu", "unknown-linux-gnu")
_INSTALL_CROSS = (
    "install one: `apt install g++-{cpu}-linux-gnu` (Debian, Ubuntu), `pacman -S "
    "{cpu}-linux-gnu-gcc` (Arch), `conda install -c conda-forge gxx_linux-{cpu}`; or build on a "
    "machine with that processor"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """A C++ compiler.

    Attributes:
        identity: first line of ``--version``.
        target: ``-dumpmachine``.
        static_libstdcxx: whether it has a ``libstdc++.a``, which some distributions package apart.
        library_path: the ``LD_LIBRARY_PATH`` without which it does not run; usually empty.
        refusal: why nothing can be compiled, as the end of a sentence; empty otherwise.
        parts: digests of its parts, where they are known without it.
    """

    path: str
    identity: str
    target: str
    static_libstdcxx: bool = True
    library_path: str = ""
    refusal: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def recorded(cls, compiler: LockedCompiler, refusal: str) -> Compiler:
        """A compiler that is not here, and that made what the store has."""
        return cls(
            path="",
            identity=compiler.identity,
            target=compiler.target,
            static_libstdcxx=compiler.parts.get("libstdc++.a") != _digest(()),
            refusal=refusal,
            parts=compiler.parts,
        )


def find(env: Mapping[str, str], runner: Runner) -> Compiler:
    """Find the compiler that ``CXX`` names, else ``g++``, else ``c++``.

    A launcher, as in ``ccache g++``, is left out: results are in kernforge's own store.
    """
    named = env.get("CXX", "").strip()
    for program in [_compiler(named)] if named else ["g++", "c++"]:
        try:
            return _identify(program, env, runner)
        except FileNotFoundError:
            continue
    missing = f"CXX is {named!r}, and there is no such program" if named else ""
    raise ToolchainError(missing or "no C++ compiler is installed", hint=_INSTALL)


def _compiler(named: str) -> str:
    """The compiler that ``CXX`` names."""
    words: list[str] = []
    with contextlib.suppress(ValueError):  # a quotation mark without its partner
        words = shlex.split(named)
    while words and Path(words[0]).name in _LAUNCHERS:
        words = words[1:]
    if len(words) != 1:
        raise ToolchainError(
            f"CXX is {named!r}, which is not the name of a compiler",
            hint="write it as CXX=g++ or CXX='ccache g++', without flags",
        )
    return words[0]


def find_cross(cpu: str, env: Mapping[str, str], runner: Runner) -> Compiler:
    """Find the compiler that makes machine code of another processor."""
    if not any(cpu in others for others in CROSS.values()):  # a lock is untrusted input
        raise ToolchainError(
            f"nothing is built for {cpu!r} on machines of another processor",
            hint="build on a machine with that processor",
        )
    hint = _INSTALL_CROSS.format(cpu=cpu)
    for vendor in _VENDORS:
        program = f"{cpu}-{vendor}-g++"
        try:
            compiler = _identify(program, env, runner)
        except FileNotFoundError:
            continue
        if not compiler.target.startswith(f"{cpu}-") or "linux" not in compiler.target:
            raise ToolchainError(f"{program} compiles for {compiler.target}", hint=hint)
        if not compiler.static_libstdcxx:
            raise ToolchainError(f"{program} has no libstdc++.a for {cpu}", hint=hint)
        return compiler
    raise ToolchainError(f"no C++ compiler for {cpu} Linux is installed", hint=hint)


def _identify(program: str, env: Mapping[str, str], runner: Runner) -> Compiler:
    work = ("-c", "-x", "c++", "-Wa,--version", "/dev/null", "-o", os.devnull)
    done, library_path = ask_version(program, env, runner, work=work)
    variables = _environment(env, library_path)

    def ask(*argv: str) -> str:
        return runner(Command(argv=argv, env=variables)).stdout

    identity = (done.stdout.splitlines() or [""])[0]
    version = ask(program, "-dumpfullversion").strip()
    if not re.match(r"\d+", version) or "clang" in identity.lower():
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
        library_path=library_path,
    )


def ask_version(
    program: str, env: Mapping[str, str], runner: Runner, *, work: tuple[str, ...] = ()
) -> tuple[Completed, str]:
    """What a compiler answers to ``--version``, and the LD_LIBRARY_PATH that it needs.

    Programs run without that variable, which would be a part of no key. Compilers of module systems
    may need it: their libraries' content is in the key.

    Args:
        work: arguments with which it starts the programs that do its work.
    """
    argv, named = (program, "--version"), env.get("LD_LIBRARY_PATH", "")
    done, needed = runner(Command(argv=argv, env=_environment(env))), ""
    if named and (done.returncode or (work and _fails(program, work, env, runner))):
        again = runner(Command(argv=argv, env=_environment(env, named)))
        done, needed = (done, "") if again.returncode else (again, named)
    if done.returncode:
        said = (done.stderr or done.stdout).strip() or f"exit status {done.returncode}"
        raise ToolchainError(
            f"{program} --version fails: {said[:_SAID]}",
            hint="load the compiler's module, or set LD_LIBRARY_PATH to its libraries, so that "
            "this command works; or name another compiler",
        )
    return done, needed


def _fails(program: str, work: tuple[str, ...], env: Mapping[str, str], runner: Runner) -> bool:
    return runner(Command(argv=(program, *work), env=_environment(env))).returncode != 0


def _environment(env: Mapping[str, str], library_path: str = "") -> dict[str, str]:
    needed = {"LD_LIBRARY_PATH": library_path} if library_path else {}
    return {"PATH": env.get("PATH", ""), "LC_ALL": "C", **needed}


def locked(compiler: Compiler, runner: Runner, memory: Path) -> LockedCompiler:
    """The compiler as a lock records it: with a digest of each part that can change its bytes.

    Hashing takes about a second, so the digests are recorded until a file changes.

    Args:
        memory: directory of what is recorded.
    """

    def hashed() -> tuple[dict[str, str], list[Path]]:
        paths_of = {part: tuple(_files_of(part, compiler, runner)) for part in _PARTS}
        digests = {part: _digest(paths) for part, paths in paths_of.items()}
        return digests, [path for paths in paths_of.values() for path in paths]

    known = [compiler.path, compiler.identity, compiler.target, compiler.library_path]
    name = digest.key("compiler-parts", of=known if compiler.library_path else known[:-1])
    parts = compiler.parts or recorded(memory / f"{name}.note", hashed)
    return LockedCompiler(identity=compiler.identity, target=compiler.target, parts=parts)


def recorded(record: Path, make: Callable[[], tuple[dict[str, str], list[Path]]]) -> dict[str, str]:
    """Digests that are recorded until the time or size of a file changes.

    Args:
        make: returns the digests, and the files on which they depend.
    """
    with contextlib.suppress(OSError, LookupError, TypeError, ValueError, AttributeError):
        document = files.read_json(record)
        if all(_stamp(Path(path)) == stamp for path, stamp in document["stamps"].items()):
            return dict(document["digests"])
    digests, paths = make()
    stamps = {str(path): _stamp(path) for path in paths}
    files.write_json(record, {"digests": digests, "stamps": stamps})
    return digests


def _digest(paths: Iterable[Path]) -> str:
    return digest.key("part", files={str(path): files.sha256_file(path) for path in paths})


def _stamp(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino]


def _files_of(part: str, compiler: Compiler, runner: Runner) -> Iterator[Path]:
    """The files, behind links, that make up a part; none when the compiler does not have it."""
    variables = _environment({"PATH": _FIXED_PATH}, compiler.library_path)

    def ask(*argv: str) -> str:
        return runner(Command(argv=argv, env=variables)).stdout.strip()

    if part == "headers":
        wanted = [argument for name in _HEADERS for argument in ("-include", name)]
        rule = ask(compiler.path, "-M", "-x", "c++", "-std=gnu++20", *wanted, "/dev/null")
        names = rule.replace("\\\n", " ").split()[1:]
        yield from sorted({_real(name) for name in names if name != "/dev/null"})
    elif part in _LIBRARIES:
        path = ask(compiler.path, f"-print-file-name={part}")
        yield from [_real(path)] if "/" in path else []
    else:
        path = ask(compiler.path, f"-print-prog-name={part}")
        path = path if "/" in path else ask("/bin/sh", "-c", 'command -v "$0"', path)
        if path:
            yield _real(path)
            words = ask("ldd", path).split()
            yield from sorted(
                _real(word)
                for word in words
                if "/" in word and word.rpartition("/")[2].startswith(_WORKERS)
            )


def _real(path: str) -> Path:
    return Path(os.path.realpath(path))
