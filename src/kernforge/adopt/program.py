# SPDX-License-Identifier: Apache-2.0
"""Extension modules of a setup.py or a script.

Both are run in the sandbox, behind a stub of torch: a setup.py up to its ``setup()`` call, in a
copy of its project.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernforge.builder import sandbox
from kernforge.builder.sandbox import Sandbox
from kernforge.errors import UsageError
from kernforge.extension.request import Tree
from kernforge.setuptools import stub, target
from kernforge.source.cpp_text import CUDA_SUFFIXES
from kernforge.system import files, untrusted_tree
from kernforge.system.process import Command, run
from kernforge.system.tables import page
from kernforge.toolchain.releases import torch_releases

SETUP = "setup.py"
# Options that need a word after them.
_PAIRS = {
    *("-gencode", "--generate-code", "-arch", "--gpu-architecture"),
    *("-Xcompiler", "-I", "-isystem"),
}
# What a build of kernforge sets itself, or what says nothing about the code.
_DEFAULTS = re.compile(
    r"-O[0-3s]?$|-g$|-f(?:PIC|pic)$|--?threads\b|-w$|-W|-DTORCH_API_INCLUDE_EXTENSION_H|"
    r"--expt-(?:relaxed-constexpr|extended-lambda)|-DTORCH_EXTENSION_NAME|-D_GLIBCXX_USE_CXX11_ABI|"
    r"--ptxas-options|-Xptxas|-lineinfo|--generate-line-info|-fdiagnostics-|-fcolor-diagnostics|"
    r"-DPy_LIMITED_API|-DWITH_PYTHON$|-Xcompiler "
)
_LEFT_OUT = {
    r"(?:-gencode|--generate-code|-arch|--gpu-architecture|-code)\b": (
        "`cuda-capabilities` in build.toml and `build --arch` choose architectures"
    ),
    r"-{1,2}std=(?:c|gnu)\+\+\w+$": "a build uses torch's C++ standard",
    r"-fopenmp|-DAT_PARALLEL_OPENMP": "a kernel links to no OpenMP: use at::parallel_for",
}
"""Pattern of a flag, and the reason why a kernel does without it."""
_LINKS_TORCH = (
    "a kernel links to torch and nothing else; call what it needs through torch (at::cuda::blas, "
    "torch::mm) or at run time (dlopen)"
)
_SECONDS = 300.0  # for a setup.py, to say what it asks for
_LONGEST = 16 << 20  # bytes of a source


@dataclass(frozen=True, slots=True, order=True)
class Remark:
    """Note to the user on a place of the old project.

    Attributes:
        path: relative to the old project.
        line: 0 where it is the whole file.
        text: condition and action.
        kind: ``left`` for untranslated code, ``changed`` for a change, ``check`` for an assumption.
    """

    path: str
    line: int
    text: str
    kind: str = "left"

    def __str__(self) -> str:
        return f"{self.path}{f':{self.line}' if self.line else ''}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """An extension module.

    Attributes:
        name: dotted, as it is imported.
        backend: ``cuda`` or ``cpu``.
        sources: paths relative to the project.
        include: directories relative to the project.
        cxx_flags: for the C++ compiler, macros included.
        cuda_flags: for nvcc, macros included.
    """

    name: str
    backend: str
    sources: tuple[str, ...]
    include: tuple[str, ...] = ()
    cxx_flags: tuple[str, ...] = ()
    cuda_flags: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """Name of its Python submodule; a CPU and a CUDA module may share it."""
        last = re.sub(r"\W", "_", self.name.rpartition(".")[2])
        return re.sub(r"_(?:cpu|cuda)$", "", last.lstrip("_")) or last


class Program(Tree):
    """Extensions of a setup.py or a script, and the texts of its project's files.

    Args:
        root: directory that paths are relative to.
        described: output of ``describe``.

    Attributes:
        license: as stated by the program; may be empty.
        remarks: notes to the user.
    """

    def __init__(self, root: Path, file: str, described: Mapping[str, Any]) -> None:
        super().__init__(described.get("texts", {}))
        self.root, self.file, self.license = root, file, described["license"]
        self.modules: list[Module] = []
        self.remarks = [Remark(file, *each) for each in described.get("remarks", ())]
        self._line = 0  # of the call that is read; 0 for the whole file
        for each in described["extensions"]:
            self._add(each)
        self._line = 0
        self._name = described["name"] if described["name"] != "UNKNOWN" else ""

    @property
    def kernel_name(self) -> str:
        """Name of the kernel, from that of the distribution or module."""
        name = self._name or self.modules[0].name
        plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        return re.sub(r"^[^a-z]+", "", plain) or "kernel"

    def remark(self, text: str, kind: str = "left") -> None:
        """Add a remark on the program."""
        self.remarks.append(Remark(self.file, self._line, text, kind))

    def files(self, sources: Iterable[str], include: tuple[str, ...]) -> set[str]:
        """Sources and the headers of the project that they include."""
        return {file for path in sources for file in self.closure(path, include, ()).files}

    def _read(self, path: str) -> str | None:
        top, real = self.root.resolve(), (self.root / path).resolve()
        if not real.is_relative_to(top) or not real.is_file():  # behind a link too
            return None
        name = real.relative_to(top).as_posix()
        data = untrusted_tree.read_bytes(top, name, limit=_LONGEST, hard_links=True)
        return data.decode(errors="surrogateescape")

    def _headers_below(self, _directories: Iterable[str]) -> Iterable[str]:
        return ()  # a header that a macro names is the user's to add

    def _add(self, request: Mapping[str, Any]) -> None:
        """Add an extension module from the output of ``describe``."""
        name, self._line = request["name"], request.get("line", 0)
        if not request["with_torch"]:
            self.remark(f"{name} is no extension of torch: left out")
            return
        for option in ("ldflags", "dlink"):
            values = [each for each in request[option] or () if each not in {"-s", "-fopenmp"}]
            if values:
                self.remark(f"{option} of {name}, {values}: {_LINKS_TORCH}")
        sources = tuple(self._inside(request["sources"], "source"))
        is_cuda = request["with_cuda"] or any(path.endswith(CUDA_SUFFIXES) for path in sources)
        module = Module(
            name=name,
            backend="cuda" if is_cuda else "cpu",
            sources=sources,
            include=tuple(self._inside(request["includes"], "include directory")),
            cxx_flags=tuple(self._flags(request["cflags"])),
            cuda_flags=tuple(self._flags(request["cuda_cflags"])),
        )
        # A script may load one in two places.
        known = {(each.name, each.backend) for each in self.modules}
        if module.sources and (module.name, module.backend) not in known:
            self.modules.append(module)

    def _inside(self, listed: Iterable[str], kind: str) -> Iterator[str]:
        """Paths relative to the project; a remark for each that is outside."""
        for entry in dict.fromkeys(listed):
            path = posixpath.relpath(posixpath.join(self.root, entry), self.root)
            if path in self or (not path.startswith("..") and (self.root / path).is_dir()):
                yield path
            else:
                shown = entry if path.startswith("..") else path
                self.remark(f"{kind} {shown} is not in the project")

    def _flags(self, listed: Iterable[str]) -> Iterator[str]:
        flags = iter(listed)
        for flag in flags:
            words = [flag, *([next(flags, "")] if flag in _PAIRS else [])]
            text = " ".join(words)
            reason = next((why for form, why in _LEFT_OUT.items() if re.match(form, text)), "")
            if reason:
                self.remark(f"{text}: left out; {reason}", "changed")
            elif not _DEFAULTS.match(text):
                yield from words


def read(source: Path, place: Path) -> Program:
    """Read the setup.py of a directory, or a script.

    Args:
        place: directory of the copy of a setup.py project.
    """
    path = (source / SETUP if source.is_dir() else source).resolve()
    if not path.is_file():
        where = f"{SETUP} in {source}" if source.is_dir() else f"file or directory {source}"
        raise UsageError(
            f"there is no {where}",
            hint="name the directory of a setup.py, or a script that calls load or load_inline",
        )
    root = path.parent
    if path.name == SETUP:
        root = place / path.parent.name
        stub.copy_project(path.parent, root)
    isolation = sandbox.probe("auto", "/bin/true", run)
    program = Program(root, path.name, _describe(root / path.name, place, isolation))
    if not isolation.isolates:
        program.remark(f"run without a sandbox: {isolation.reason}", "check")
    if not program.modules:
        problems = (f"\n{remark}" for remark in sorted({*program.remarks}))
        raise UsageError(
            f"no extension of torch in {path}: it has no CUDAExtension, CppExtension, load or "
            f"load_inline with sources{''.join(problems)}",
            hint="start another project with `kernforge new --here`, and name its sources in "
            "build.toml; kernels of Python alone (Triton) are moved below torch-ext/, with "
            f"[torch-noarch]: {page('how-to/author/come-from-a-tutorial')}",
        )
    return program


def _describe(program: Path, place: Path, isolation: Sandbox) -> dict[str, Any]:
    """Run ``describe`` on a program; returns its output."""
    wanted = target.named_target(str(max(torch_releases())), None, target.running_python())
    package = stub.write_package(place / "torch", wanted, [(9, 0)])
    toolkit, out = place / "cuda", place / "described.json"
    release = f"release {wanted.cuda}, V{wanted.cuda}.0"
    nvcc = f"#!/bin/sh\necho 'Cuda compilation tools, {release}'\n"
    files.write_new(toolkit / "bin" / "nvcc", nvcc, executable=True)
    argv: tuple[str, ...] = (
        # By its own path: the links of an environment may lead to what the sandbox does not have.
        *(os.path.realpath(sys.executable), "-P", "-m", "kernforge.adopt.describe"),
        *(program.name, str(out)),
    )
    paths = [str(Path(__file__).parents[2]), *(p for p in sys.path if p and Path(p).is_dir())]
    if isolation.isolates:
        places = [program.parent, *(Path(path) for path in (*paths, sys.prefix, sys.base_prefix))]
        argv = sandbox.isolated(argv, cwd=program.parent, readable=places, writable=place)
    env = {
        "PATH": f"{toolkit}/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(place),
        "PYTHONPATH": os.pathsep.join([str(package.parent), *paths]),
        "CUDA_HOME": str(toolkit),
        "KERNFORGE_HOME": str(place / "home"),
        "KERNFORGE_STUB": str(package),
        **wanted.variables,
    }
    done = run(Command(argv=argv, cwd=program.parent, env=env, timeout=_SECONDS))
    if done.returncode != 0 or not out.is_file():
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise UsageError(
            f"{program.name} failed before it named its extensions:\n"
            f"{lines[-1] if lines else 'it ended early'}",
            hint="install its imports, or start with `kernforge new --here` and name its "
            "sources in build.toml",
        )
    described: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return described
