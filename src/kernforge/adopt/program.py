# SPDX-License-Identifier: Apache-2.0
"""The extension modules that a setup.py or a script asks for, as values.

A setup.py is run up to its ``setup()`` call, behind the stand-in for torch and in the sandbox, in a
copy of its project; a script is read and not run.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernforge.adopt import scripts
from kernforge.adopt.scripts import Computed
from kernforge.builder.execute import sandbox
from kernforge.errors import UsageError, page
from kernforge.project.api import is_skipped
from kernforge.setuptools import stand_in, target
from kernforge.source import extension_source
from kernforge.system import files
from kernforge.system.process import Command, run
from kernforge.toolchain.releases import torch_releases

SETUP = "setup.py"
_ARCHITECTURE = re.compile(r"(?:-gencode|--generate-code|-arch|--gpu-architecture|-code)\b.*")
_STANDARD = re.compile(r"-{1,2}std=(?:c|gnu)\+\+\w+$")
# Options that need a word after them.
_PAIRS = (
    "-gencode",
    "--generate-code",
    "-arch",
    "--gpu-architecture",
    "-Xcompiler",
    "-I",
    "-isystem",
)
# What a build of kernforge sets itself, or what says nothing about the code.
_OURS = re.compile(
    r"-O[0-3s]?$|-g$|-f(?:PIC|pic)$|--?threads\b|-w$|-W|-DTORCH_API_INCLUDE_EXTENSION_H|"
    r"--expt-(?:relaxed-constexpr|extended-lambda)|-DTORCH_EXTENSION_NAME|-D_GLIBCXX_USE_CXX11_ABI|"
    r"--ptxas-options|-Xptxas|-lineinfo|--generate-line-info|-fdiagnostics-|-fcolor-diagnostics|"
    r"-DPy_LIMITED_API|-DWITH_PYTHON$"
)
_HINT = "name the directory of a setup.py, or a script that calls load or load_inline"
_OPENMP = re.compile(r"-fopenmp|-DAT_PARALLEL_OPENMP")
_LEFT_OUT = (
    (_ARCHITECTURE, "`cuda-capabilities` in build.toml and `build --arch` choose architectures"),
    (_STANDARD, "a build uses torch's C++ standard"),
    (_OPENMP, "a kernel links to no OpenMP: use at::parallel_for"),
)
_LINKS_TORCH = (
    "a kernel links to torch and nothing else; call what it needs through torch (at::cuda::blas, "
    "torch::mm) or at run time (dlopen)"
)
_RESULTS = frozenset({"build", "dist"})
# What a setup.py may take to say what it asks for.
_SECONDS = 300.0


@dataclass(frozen=True, slots=True, order=True)
class Remark:
    """Something that the user should know, with its place.

    Attributes:
        path: relative to the old project.
        line: 0 where it is the whole file.
        text: what, and what to do.
        kind: ``left`` is not translated, ``changed`` was, ``check`` is an assumption.
    """

    path: str
    line: int
    text: str
    kind: str = "left"

    def __str__(self) -> str:
        return f"{self.path}{f':{self.line}' if self.line else ''}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One extension module.

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
    def last_name(self) -> str:
        """The last part of the name."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a program asks for.

    Attributes:
        root: directory that paths are relative to.
        file: name of the program.
        name: of the distribution, or of its module.
        modules: the extension modules.
        inline: sources that the program has as text, by the path that they get.
        remarks: what was not understood.
        license: as the program says it; empty where it does not.
    """

    root: Path
    file: str
    name: str
    modules: tuple[Module, ...]
    inline: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()
    license: str = ""


def check_source(source: Path) -> None:
    """Refuse a path that is neither a directory with a setup.py nor a script.

    Raises:
        UsageError: there is none.
    """
    if not source.exists():
        raise UsageError(f"there is no file or directory {source}", hint=_HINT)
    if not _program(source).is_file():
        raise UsageError(f"there is no {SETUP} in {source}", hint=_HINT)


def read(source: Path, place: Path) -> Program:
    """Read a directory with a setup.py, or a script.

    Args:
        place: an own directory, which holds the copy of a project whose setup.py is run.

    Raises:
        UsageError: there is no such file, or it asks for no extension.
    """
    check_source(source)
    path = _program(source)
    found = _setup(path, place) if path.name == SETUP else _script(path)
    if not found.modules:
        problems = (f"\n{remark}" for remark in found.remarks)
        raise UsageError(
            f"{source} asks for no extension of torch that can be read: no CUDAExtension, "
            f"CppExtension, load or load_inline with sources{''.join(problems)}",
            hint="start another project with `kernforge new --here`, and name its sources in "
            "build.toml; kernels of Python alone (Triton) are moved below torch-ext/, with "
            "[torch-noarch]: "
            f"{page('how-to/author/come-from-a-tutorial')}",
        )
    return found


def _program(source: Path) -> Path:
    return (source / SETUP if source.is_dir() else source).resolve()


def _setup(path: Path, place: Path) -> Program:
    """What a setup.py asks for, which is run in a copy of its project."""
    copy = place / path.parent.name
    _copy(path.parent, copy)
    found, note = _described(copy, place)
    reader = _Reader(copy, path.name)
    for each in found["extensions"]:
        reader.extension(each)
    name = found["name"] if found["name"] != "UNKNOWN" else ""
    return Program(
        root=copy,
        file=path.name,
        name=name or (reader.modules[0].name if reader.modules else ""),
        license=found["license"],
        modules=tuple(reader.modules),
        remarks=tuple(sorted({*reader.remarks, *note})),
    )


def _copy(project: Path, copy: Path) -> None:
    """Copy a project without what was built or installed in it; links stay links."""
    for directory, folders, names in os.walk(project):
        place = Path(directory)
        skipped = {name for name in folders if name in _RESULTS and place == project}
        skipped |= {name for name in folders if is_skipped(place / name)}
        folders[:] = [name for name in folders if name not in skipped]
        for path in (place / name for name in (*folders, *names)):
            target_path = copy / path.relative_to(project)
            if path.is_symlink():
                files.symlink(str(path.readlink()), target_path)
            elif path.is_file():
                files.copy_file(path, target_path)


def _described(project: Path, place: Path) -> tuple[dict[str, Any], list[Remark]]:
    """What ``describe`` says of the setup.py of a project, and remarks on how it was run.

    Raises:
        UsageError: the setup.py ends with an error.
    """
    wanted = target.named_target(str(max(torch_releases())), None, target.running_python())
    package = stand_in.write_package(place / "torch", wanted, [(9, 0)])
    toolkit, out = place / "cuda", place / "described.json"
    release = f"release {wanted.cuda}, V{wanted.cuda}.0"
    nvcc = f"#!/bin/sh\necho 'Cuda compilation tools, {release}'\n"
    files.write_new(toolkit / "bin" / "nvcc", nvcc, executable=True)
    files.make_dir(toolkit / "torch")
    # By its own path: the links of an environment may lead to what the sandbox does not have.
    argv: tuple[str, ...] = (
        os.path.realpath(sys.executable),
        "-m",
        "kernforge.adopt.describe",
        str(out),
        str(toolkit),
    )
    isolation = sandbox.probe("auto", "/bin/true", run)
    ours = str(Path(__file__).parents[2])
    paths = [ours, *(path for path in sys.path if path and Path(path).is_dir())]
    if isolation.isolates:
        places = [Path(path) for path in (*paths, sys.prefix, sys.base_prefix)]
        argv = sandbox.isolated(argv, cwd=project, readable=places, writable=place)
    text = (project / SETUP).read_text(encoding="utf-8", errors="replace")
    env = {
        "PATH": f"{toolkit}/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(place),
        "PYTHONPATH": os.pathsep.join([str(package.parent), *paths]),
        "CUDA_HOME": str(toolkit),
        "KERNFORGE_HOME": str(place / "home"),
        "KERNFORGE_STAND_IN": str(package),
        "KERNFORGE_TORCH": wanted.release,
        "KERNFORGE_CUDA": str(wanted.cuda or target.NO_CUDA),
        **stand_in.forced(text),
    }
    done = run(Command(argv=argv, cwd=project, env=env, timeout=_SECONDS))
    if done.returncode != 0 or not out.is_file():
        said = (done.stderr or done.stdout).strip().splitlines()
        raise UsageError(
            f"{SETUP} does not reach its setup() call:\n{said[-1] if said else 'it ended early'}",
            hint="install what it imports, or start with `kernforge new --here` and name its "
            "sources in build.toml",
        )
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    text = f"it was run without a sandbox: {isolation.reason}"
    return found, [] if isolation.isolates else [Remark(SETUP, 0, text, "check")]


def _script(path: Path) -> Program:
    """What a script asks ``load`` and ``load_inline`` for; it is not run."""
    reader = _Reader(path.parent, path.name)
    try:
        calls = scripts.calls(path)
    except (SyntaxError, UnicodeDecodeError) as error:
        reader.line = getattr(error, "lineno", 0) or 0
        reader.left(f"cannot be read as Python: {error}")
        calls = ()
    for call in calls:
        reader.loaded(call)
    return Program(
        root=path.parent,
        file=path.name,
        name=reader.modules[0].name if reader.modules else "",
        modules=tuple(reader.modules),
        inline=reader.inline,
        remarks=tuple(sorted(set(reader.remarks))),
    )


class _Reader:
    """Collects modules and remarks of one program."""

    def __init__(self, root: Path, file: str) -> None:
        self.root, self.file = root, file
        self.line = 0  # of the call that is read; 0 for the whole file
        self.modules: list[Module] = []
        self.inline: dict[str, str] = {}
        self.remarks: list[Remark] = []

    def left(self, text: str, kind: str = "left") -> None:
        self.remarks.append(Remark(self.file, self.line, text, kind))

    def extension(self, given: Mapping[str, Any]) -> None:
        """An extension module, as ``describe`` writes those of a setup.py."""
        name = given["name"]
        if not given["with_torch"]:
            self.left(f"{name} has no torch operators; it is not part of the kernel")
            return
        for option in ("ldflags", "dlink"):
            values = [each for each in given.get(option) or () if each not in ("-s", "-fopenmp")]
            if values:
                self.left(f"{option} of {name}, {values}: {_LINKS_TORCH}")
        module = Module(
            name=name,
            backend="cuda" if given["with_cuda"] else "cpu",
            sources=tuple(self._paths(given["sources"])),
            include=tuple(self._directories(given["includes"])),
            cxx_flags=tuple(self._flags(given["cflags"])),
            cuda_flags=tuple(self._flags(given["cuda_cflags"], nvcc=True)),
        )
        # A script may load one in two places.
        known = {(each.name, each.backend) for each in self.modules}
        if module.sources and (module.name, module.backend) not in known:
            self.modules.append(module)

    def loaded(self, call: scripts.Call) -> None:
        """A call of load or load_inline."""
        self.line = call.line
        given = {name: self._known(name, value) for name, value in call.options.items()}
        name = given.get("name")
        if not isinstance(name, str):
            self.left(f"the name of the module that {call.function} makes is computed")
            return
        inline = call.function == "load_inline"
        sources = self._inline_sources(name, given) if inline else _list(given.get("sources"))
        has_cuda = any(str(path).endswith(extension_source.CUDA_SUFFIXES) for path in sources)
        self.extension(
            {
                "name": name,
                "with_torch": True,
                "with_cuda": has_cuda or given.get("with_cuda") is True,
                "sources": sources,
                "includes": _list(given.get("extra_include_paths")),
                "cflags": _list(given.get("extra_cflags")),
                "cuda_cflags": _list(given.get("extra_cuda_cflags")),
                "ldflags": _list(given.get("extra_ldflags")),
            }
        )

    def _known(self, name: str, value: Any) -> Any:
        """A value without its computed parts, each of which is a remark."""
        if isinstance(value, Computed):
            self.left(f"{name}: {value} is computed and not read")
            return None
        if isinstance(value, list):
            known = (self._known(name, each) for each in value)
            return [each for each in known if each is not None]
        return value

    def _inline_sources(self, name: str, given: Mapping[str, Any]) -> list[str]:
        cpp, cuda = (_list(given.get(kind)) for kind in ("cpp_sources", "cuda_sources"))
        try:
            made = extension_source.inline(cpp, cuda, given.get("functions"))
        except UsageError as error:
            self.left(error.message)
            return []
        stem = re.sub(r"\W", "_", name)
        paths = {extension_source.MAIN: f"{stem}.cpp", extension_source.CUDA: f"{stem}.cu"}
        self.inline |= {paths[file]: inline.text for file, inline in made.items()}
        return [paths[file] for file in made]

    def _paths(self, listed: Iterable[Any]) -> Iterator[str]:
        for entry in dict.fromkeys(map(str, listed)):
            path = self._relative(entry)
            if path not in self.inline and (
                path is None or scripts.text_in(self.root, path) is None
            ):
                self.left(f"{entry}: no such file in the project")
            else:
                yield path

    def _directories(self, listed: Iterable[Any]) -> Iterator[str]:
        for entry in map(str, listed):
            path = self._relative(entry)
            if path is None:
                self.left(f"include directory {entry} lies outside the project")
            elif (self.root / path).is_dir():
                yield path
            else:
                self.left(f"include directory {entry} does not exist")

    def _relative(self, path: str) -> str | None:
        """A path relative to the project, or None for one outside it."""
        root = self.root.as_posix()
        whole = posixpath.normpath(posixpath.join(root, path))
        if whole == root:
            return "."
        return whole.removeprefix(f"{root}/") if whole.startswith(f"{root}/") else None

    def _flags(self, listed: Iterable[Any], *, nvcc: bool = False) -> Iterator[str]:
        flags = iter(map(str, listed))
        for flag in flags:
            value = next(flags, "") if flag in _PAIRS else ""
            whole = [flag, *([value] if value else [])]
            text = " ".join(whole)
            for pattern, reason in _LEFT_OUT:
                if pattern.match(text):
                    self.left(f"{text}: left out; {reason}", "changed")
                    break
            else:
                if not _OURS.match(text) and not (nvcc and text == "-Xcompiler"):
                    yield from whole


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
