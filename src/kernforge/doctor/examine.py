# SPDX-License-Identifier: Apache-2.0
"""Collect the facts about this machine for ``kernforge doctor``; nothing is changed.

What may crash or hang runs in another process.
"""

from __future__ import annotations

import json
import platform
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernforge.artifact.version import Version2
from kernforge.builder import sandbox
from kernforge.check.finding import Problem
from kernforge.doctor.rules import Directory, MachineFacts, TorchFacts
from kernforge.errors import (
    KernforgeError,
    MissingPackageError,
    NetworkError,
    ToolchainError,
    UsageError,
)
from kernforge.loader import host
from kernforge.system import extras, files, machine
from kernforge.system.environment import Environment
from kernforge.system.process import Command, Runner
from kernforge.toolchain import host_compiler, installed

_TORCH_TIMEOUT_S = 120.0
_LONGEST_LINE = 300
_ASK_TORCH = """
import importlib.machinery, json, sys
for path in sys.path:
    if (spec := importlib.machinery.PathFinder.find_spec("torch", [path])) and spec.origin:
        print("@at " + spec.origin, flush=True)
import torch
cuda = torch.cuda.is_available()
print("@" + json.dumps({
    "version": torch.__version__,
    "cuda": torch.version.cuda,
    "archs": torch.cuda.get_arch_list() if cuda else [],
    "gpus": [[torch.cuda.get_device_name(i), torch.cuda.get_device_capability(i)]
             for i in range(torch.cuda.device_count())] if cuda else [],
}))
"""
_STORE_PARTS = ("toolchains", "actions", "locks")


def examine(environment: Environment, runner: Runner, *, ask_network: bool = True) -> MachineFacts:
    """Collect the facts."""
    env, store = environment.variables, environment.store
    temporary = files.temporary()
    compiler, no_compiler = _compiler(env, runner)
    header = Path(sysconfig.get_path("include"), "Python.h")
    missing = tuple(name for name in extras.EXTRAS["build"] if not host.has_module(name))
    library, version = platform.libc_ver()
    return MachineFacts(
        system=platform.system(),
        cpu=platform.machine(),
        glibc=Version2.leading(version) if library == "glibc" else None,
        compiler=no_compiler,
        static_libstdcxx=compiler.static_libstdcxx if compiler else True,
        missing_header="" if header.is_file() else str(header),
        arch_list=env.get("TORCH_CUDA_ARCH_LIST", ""),
        toolkits=tuple(_toolkits(env, runner)),
        gpu_devices=any(Path("/dev").glob("nvidia[0-9]*")),
        driver=host.driver_version(),
        torch=_torch(runner),
        directories=tuple(_directories(temporary, store)),
        memory=machine.available_memory(),
        sandbox=_sandbox(compiler, runner),
        unreachable=dict(_unreachable(env) if ask_network and not missing else ()),
        missing=missing,
    )


def _compiler(
    env: Mapping[str, str], runner: Runner
) -> tuple[host_compiler.Compiler | None, Problem | None]:
    try:
        return host_compiler.find(env, runner), None
    except ToolchainError as error:
        return None, Problem(error.message, error.hint)


def _toolkits(env: Mapping[str, str], runner: Runner) -> Iterator[tuple[str, Version2 | Problem]]:
    """The toolkit that ``kernforge.load`` takes, and the one that projects are built with."""
    named = env.get("KERNFORGE_CUDA_HOME", "").strip()
    loads = next((name for name in ("CUDA_HOME", "CUDA_PATH") if env.get(name, "").strip()), "")
    toolkit = installed.find_cuda(env)
    wanted = [(loads, toolkit)] if toolkit else []
    wanted += [("KERNFORGE_CUDA_HOME", Path(named))] if named else []
    for variable, path in wanted:
        try:
            yield variable, installed.identify_cuda(path, env, runner).version
        except UsageError as error:
            yield variable, Problem(error.message, error.hint)
        except OSError as error:
            yield variable, Problem(str(error), "install the toolkit again")


def _torch(runner: Runner) -> TorchFacts | None:
    """Facts of torch, from another process: a broken torch can end the process that imports it."""
    if not host.has_module("torch"):
        return None
    command = Command(argv=(sys.executable, "-c", _ASK_TORCH), timeout=_TORCH_TIMEOUT_S)
    done = runner(command)
    line = next((part for part in done.stdout.splitlines() if part.startswith("@{")), None)
    if line is None:
        timeout = "it takes longer than two minutes" if done.timed_out else ""
        code = f"the process ended with {done.returncode}"
        failure = timeout or _first_line(done.stderr, "Error") or code
        lines = done.stdout.splitlines()
        places = [line.removeprefix("@at ") for line in lines if line.startswith("@at ")]
        return TorchFacts(failure=failure, places=tuple(dict.fromkeys(places)))
    facts: dict[str, Any] = json.loads(line[1:])
    return TorchFacts(
        version=facts["version"],
        cuda=Version2.leading(facts["cuda"] or ""),
        archs=tuple(facts["archs"]),
        gpus=tuple((name, Version2(*capability)) for name, capability in facts["gpus"]),
    )


def _directories(temporary: Path, store: Path) -> Iterator[Directory]:
    yield Directory("temporary files", str(temporary), *machine.room(temporary))
    parts = [store, *(path for name in _STORE_PARTS if (path := store / name).is_dir())]
    rooms = [Directory("the store", str(path), *machine.room(path)) for path in parts]
    yield next((room for room in rooms if room.trouble), rooms[0])


def _sandbox(compiler: host_compiler.Compiler | None, runner: Runner) -> Problem | None:
    if compiler is None or platform.system() != "Linux":
        return None
    probed = sandbox.probe("auto", compiler.path, runner)
    return None if probed.isolates else Problem(probed.reason, sandbox.remedy())


def _unreachable(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The indexes of pip's configuration that do not answer, without credentials, and why."""
    from kernforge.system.http import bare  # noqa: PLC0415
    from kernforge.toolchain.index.index import Index  # noqa: PLC0415 - pip's files are read here

    try:
        opened = Index.from_environment(env)
    except KernforgeError as error:
        yield "pip's configuration", error.message
        return
    for url in opened.config.index_urls:
        try:
            opened.transport.page(f"{url.rstrip('/')}/torch/")  # "not found" is an answer too
        except (MissingPackageError, NetworkError) as error:
            yield bare(url), error.message


def _first_line(text: str, marker: str) -> str:
    """The first line with a marker, or else the last line, shortened."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if marker in line), lines[-1] if lines else "")[
        :_LONGEST_LINE
    ]
