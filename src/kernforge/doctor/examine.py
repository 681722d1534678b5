# SPDX-License-Identifier: Apache-2.0
"""Look at this machine for ``kernforge doctor``: one function for each group of facts.

Nothing is changed. What may crash or hang is asked in a process of its own.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.artifact.version import Version2
from kernforge.build.execute import sandbox
from kernforge.doctor.facts import Index, Machine, Nvcc, Place, Torch, TorchLock
from kernforge.errors import KernforgeError, NetworkError, ToolchainError
from kernforge.loader import host
from kernforge.system import disk, extras, files, machine_memory
from kernforge.system.paths import home
from kernforge.system.process import Command
from kernforge.toolchain import host_compiler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kernforge.system.process import Runner

_TORCH_TIMEOUT_S = 120.0
_PROGRAM_TIMEOUT_S = 60.0
_WORDS = 300
_ASK_TORCH = """
import json, torch
cuda = torch.cuda.is_available()
print("@" + json.dumps({
    "version": torch.__version__,
    "cuda": torch.version.cuda,
    "cxx11": torch.compiled_with_cxx11_abi(),
    "archs": torch.cuda.get_arch_list() if cuda else [],
    "gpus": [[torch.cuda.get_device_name(i), torch.cuda.get_device_capability(i)]
             for i in range(torch.cuda.device_count())] if cuda else [],
}))
"""
# File systems of this machine alone; on others a process of another machine may hold a lock.
_LOCAL = frozenset(
    ("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "tmpfs", "xfs", "zfs")
)
_SHELVES = ("toolchains", "actions")


def examine(env: Mapping[str, str], runner: Runner, *, ask_network: bool = True) -> Machine:
    """Collect the facts.

    Args:
        env: the process environment.
        runner: starts programs.
        ask_network: whether the package indexes are asked.

    Raises:
        StorageError: no directory takes temporary files, so that no program can be started.
    """
    store = home() / "store"
    temporary = _temporary(env)
    gcc, found, trouble = _compiler(env, runner)
    python = Path(sysconfig.get_path("include"))
    cuda_home = env.get("CUDA_HOME") or env.get("CUDA_PATH") or ""
    isolation = _sandbox(found, env, runner)
    return Machine(
        system=platform.system(),
        cpu=_cpu(),
        glibc=Version2.leading(platform.libc_ver()[1])
        if platform.libc_ver()[0] == "glibc"
        else None,
        gcc=gcc,
        gcc_trouble=trouble,
        cxx_headers=_compile(found.path, runner) if found else "",
        static_libstdcxx=found.static_libstdcxx if found else True,
        python_headers=str(python),
        has_python_headers=(python / "Python.h").is_file(),
        cxxflags=env.get("CXXFLAGS", ""),
        max_jobs=env.get("MAX_JOBS", ""),
        arch_list=env.get("TORCH_CUDA_ARCH_LIST", ""),
        nvcc=_nvcc(env, runner),
        cuda_home=cuda_home,
        has_cuda_home=bool(cuda_home) and (Path(cuda_home) / "bin" / "nvcc").is_file(),
        gpu_devices=any(Path("/dev").glob("nvidia[0-9]*")),
        driver=host.driver_version(),
        torch=_torch(runner),
        places=(temporary, *_places(store, isolates=not isolation[0])),
        memory=machine_memory.available(),
        sandbox=isolation,
        locks=tuple(_torch_locks(env)),
        indexes=_indexes() if ask_network else None,
        damaged=tuple(map(str, _damaged(store))),
        foreign=tuple(map(str, _foreign(store))),
        missing=tuple(name for name in extras.EXTRAS["build"] if not host.has_module(name)),
    )


def _cpu() -> str:
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(m := platform.machine().lower(), m)


def _compiler(
    env: Mapping[str, str], runner: Runner
) -> tuple[int, host_compiler.Compiler | None, tuple[str, str]]:
    try:
        found = host_compiler.find(env, runner)
    except ToolchainError as error:
        return 0, None, (error.message, error.hint)
    asked = Command(argv=(found.path, "-dumpversion"), timeout=_PROGRAM_TIMEOUT_S)
    major = runner(asked).stdout.strip().partition(".")[0]
    return int(major) if major.isdigit() else 0, found, ("", "")


def _compile(path: str, runner: Runner) -> str:
    """The compiler's words about a small C++20 file; nothing when it compiles."""
    headers = ("vector", "cstdint", "unistd.h")
    included = [part for name in headers for part in ("-include", name)]
    argv = (path, "-std=gnu++20", "-fsyntax-only", *included, "-x", "c++", "/dev/null")
    done = runner(Command(argv=argv, timeout=_PROGRAM_TIMEOUT_S))
    return "" if done.returncode == 0 else _words(done.stderr, "error") or "it crashed"


def _nvcc(env: Mapping[str, str], runner: Runner) -> Nvcc | None:
    places = [Path(env[name]) / "bin" for name in ("CUDA_HOME", "CUDA_PATH") if env.get(name)]
    places += [Path(part) for part in env.get("PATH", "").split(os.pathsep) if part]
    places.append(Path("/usr/local/cuda/bin"))
    path = next((p / "nvcc" for p in places if os.access(p / "nvcc", os.X_OK)), None)
    if path is None:
        return None
    try:
        done = runner(Command(argv=(str(path), "--version"), timeout=_PROGRAM_TIMEOUT_S))
    except OSError:
        return Nvcc(path=str(path), version=None)
    match = re.search(r"release (\d+\.\d+)", done.stdout)
    config = path.resolve().parent.parent / "include" / "crt" / "host_config.h"
    text = config.read_text(errors="replace") if config.is_file() else ""
    newest = re.search(r"__GNUC__\s*>\s*(\d+)", text)
    return Nvcc(
        path=str(path),
        version=Version2.leading(match[1]) if match else None,
        newest_gcc=int(newest[1]) if newest else None,
    )


def _torch(runner: Runner) -> Torch | None:
    """Asked in a process of its own: a broken torch can end the process that imports it."""
    if not host.has_module("torch"):
        return None
    asked = Command(argv=(sys.executable, "-c", _ASK_TORCH), timeout=_TORCH_TIMEOUT_S)
    done = runner(asked)
    line = next((part for part in done.stdout.splitlines() if part.startswith("@{")), None)
    if line is None:
        ended = "it takes longer than two minutes" if done.timed_out else ""
        code = f"the process ended with {done.returncode}"
        return Torch(failure=ended or _words(done.stderr, "Error") or code)
    told: dict[str, Any] = json.loads(line[1:])
    return Torch(
        version=told["version"],
        cuda=Version2.leading(told["cuda"] or ""),
        cxx11=told["cxx11"],
        archs=tuple(told["archs"]),
        gpus=tuple((name, Version2(*capability)) for name, capability in told["gpus"]),
    )


def _temporary(env: Mapping[str, str]) -> Place:
    """Where temporary files go: the first of several directories that takes them."""
    used = files.temporary()
    named = env.get("TMPDIR")
    if named and Path(named).absolute() != used.absolute():
        there = Path(named)
        trouble = disk.room(there)[1] if there.is_dir() else "there is no such directory"
        return Place(
            use="temporary files (TMPDIR)",
            path=named,
            free=disk.room(used)[0],
            trouble=trouble or "it takes no files",
            instead=f"they go to {used}",
        )
    free, trouble = disk.room(used)
    return Place(use="temporary files", path=str(used), free=free, trouble=trouble)


def _places(store: Path, *, isolates: bool) -> Iterator[Place]:
    free, trouble = disk.room(store)
    yield Place(use="the store", path=str(store), free=free, trouble=trouble)
    if isolates:
        return  # each action's place is a mount then; its files lie in the store
    rooms = Path(sandbox.ROOMS[0])
    free, trouble = disk.room(rooms)
    instead = "they run in the store, and what they make may differ by paths from other machines'"
    yield Place(use="actions", path=str(rooms), free=free, trouble=trouble, instead=instead)


def _sandbox(
    found: host_compiler.Compiler | None, env: Mapping[str, str], runner: Runner
) -> tuple[str, str]:
    if found is None or platform.system() != "Linux":
        return ("", "")
    tried = sandbox.probe("auto", found.path, runner, env.get("PATH", ""))
    return (tried.reason, sandbox.remedy()) if not tried.isolates else ("", "")


def _torch_locks(env: Mapping[str, str]) -> Iterator[TorchLock]:
    """Locks below ``TORCH_EXTENSIONS_DIR``, else where torch keeps its builds."""
    cache = Path(env.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    named = env.get("TORCH_EXTENSIONS_DIR")
    root = Path(named) if named else cache / "torch_extensions"
    for path in sorted({*root.glob("*/lock"), *root.glob("*/*/lock")}):
        if path.is_file() and not path.is_symlink():
            local = disk.filesystem(path) in _LOCAL
            yield TorchLock(path=str(path), held=disk.is_open(path) if local else None)


def _indexes() -> tuple[Index, ...]:
    from kernforge.toolchain.index.http import bare  # noqa: PLC0415
    from kernforge.toolchain.index.index import Index as Indexes  # noqa: PLC0415 - pip's files are read here

    try:
        opened = Indexes.from_environment()
    except KernforgeError as error:
        return (Index(url="pip's configuration", trouble=error.message),)
    answers = []
    for url in opened.config.index_urls:
        trouble = ""
        try:
            opened.transport.page(f"{url.rstrip('/')}/torch/")  # that it has none is an answer too
        except NetworkError as error:
            trouble = error.message
        answers.append(Index(url=bare(url), trouble=trouble))
    return tuple(answers)


def _damaged(store: Path) -> Iterator[Path]:
    for shelf in _SHELVES:
        for tree in sorted((store / shelf).glob("??/*")):
            if tree.is_dir() and not tree.name.startswith("tmp-") and not _is_whole(shelf, tree):
                yield tree


def _is_whole(shelf: str, tree: Path) -> bool:
    """Whether a tree has what every one of its shelf has."""
    if shelf == "toolchains":
        return (tree / "bin" / "nvcc").is_file() or any((tree / "include").glob("*"))
    return any(tree.iterdir())


def _foreign(store: Path) -> Iterator[Path]:
    for path in (store.parent, store, *(store / shelf for shelf in _SHELVES), store / "locks"):
        if path.is_dir() and not os.access(path, os.W_OK):
            yield path


def _words(text: str, marker: str) -> str:
    """The line that says what is wrong, else the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if marker in line), lines[-1] if lines else "")[:_WORDS]


def remove_locks(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Remove lock files that still nobody has open; returns those that went."""
    gone = [path for path in paths if disk.is_open(Path(path)) is False]
    for path in gone:
        files.remove_tree(Path(path))
    return tuple(gone)
