# SPDX-License-Identifier: Apache-2.0
"""The extension modules that a setup.py or a script asks for, as values."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernforge.adopt.script import Call, Reader, Unknown
from kernforge.errors import UsageError, page
from kernforge.source import extension_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SETUP = "setup.py"
_EXTENSIONS = ("CUDAExtension", "CppExtension")
_ARCHITECTURE = re.compile(r"(?:-gencode|--generate-code|-arch|--gpu-architecture|-code)\b.*")
_STANDARD = re.compile(r"-{1,2}std=(?:c|gnu)\+\+(\d+\w*)")
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
    r"-DPy_LIMITED_API"
)
_HINT = "name the directory of a setup.py, or a script that calls load or load_inline"
_PYTHON_KERNEL = re.compile(r"^[ \t]*@triton\.(?:jit|autotune)\b|\btorch\.library\.", re.MULTILINE)
_PYTHON_ALONE = (
    "kernels and operators of Python alone (Triton, torch.library) are not translated: move them below "
    "torch-ext/ of a project with [torch-noarch]: "
    f"{page('how-to/author/come-from-a-tutorial')}"
)
_OPENMP = re.compile(r"-fopenmp|-DAT_PARALLEL_OPENMP")


@dataclass(frozen=True, slots=True, order=True)
class Remark:
    """Something that the user should know, with its place.

    Attributes:
        path: relative to the old project.
        line: 0 where it is the whole file.
        text: what, and what to do.
        kind: ``left`` is not translated, ``changed`` was, ``check`` is an assumption, ``fake`` is an
            operator without a fake implementation, ``beside`` is Python that uses the old module.
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


def _of_python_alone(path: Path) -> bool:
    """Whether a program defines kernels or operators in Python, where there is nothing to translate."""
    return _PYTHON_KERNEL.search(path.read_text(encoding="utf-8", errors="replace")) is not None


def read(source: Path) -> Program:
    """Read a directory with a setup.py, a directory with scripts, or one script.

    Raises:
        UsageError: there is no such file, or it asks for no extension.
    """
    if not source.exists():
        raise UsageError(f"there is no file or directory {source}", hint=_HINT)
    programs = _programs(source)
    if not programs:
        raise UsageError(f"there is no {SETUP} and no script in {source}", hint=_HINT)
    found = [_read_file(path) for path in programs]
    found = [program for program in found if program.modules or program.remarks]
    if not any(program.modules for program in found):
        problems = (f"\n{remark}" for program in found for remark in program.remarks)
        raise UsageError(
            f"{source} asks for no extension of torch that can be read: no CUDAExtension, "
            f"CppExtension, load or load_inline with sources{''.join(problems)}",
            hint=_PYTHON_ALONE
            if any(_of_python_alone(path) for path in programs)
            else "a project that drives CMake itself, or computes its extensions by running programs, "
            "cannot be adopted: start with `kernforge init` and name its sources in build.toml",
        )
    return _joined(found)


def _programs(source: Path) -> list[Path]:
    if source.is_file():
        return [source.resolve()]
    root = source.resolve()
    if (root / SETUP).is_file():
        return [root / SETUP]
    return sorted(path for path in root.glob("*.py") if path.is_file())


def _joined(programs: list[Program]) -> Program:
    """Scripts of one directory as one program; a module that several build counts once."""
    modules: dict[tuple[str, str], Module] = {}
    inline: dict[str, str] = {}
    for program in programs:
        for module in program.modules:
            modules.setdefault((module.name, module.backend), module)
        inline |= program.inline
    first = next(program for program in programs if program.modules)
    return Program(
        root=first.root,
        file=first.file,
        name=first.name if len(programs) == 1 or len(modules) == 1 else first.root.name,
        modules=tuple(modules.values()),
        inline=inline,
        license=first.license,
        remarks=tuple(sorted({remark for program in programs for remark in program.remarks})),
    )


def _read_file(path: Path) -> Program:
    reader = Reader(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
        reader.read(text)
    except (SyntaxError, UnicodeDecodeError) as error:
        line = getattr(error, "lineno", 0) or 0
        remark = Remark(path.name, line, f"cannot be read as Python: {error}")
        return Program(root=path.parent, file=path.name, name="", modules=(), remarks=(remark,))
    translator = _Translator(path)
    setups = [call for call in reader.calls if call.function == "setup"]
    calls = [call for call in reader.calls if call.function in _EXTENSIONS]
    listed = [e for call in setups for e in _list(call.get("ext_modules"))]
    chosen = [call for call in listed if isinstance(call, Call)]
    for value in listed:
        if isinstance(value, Unknown):
            translator.left(value.line, f"an extension is made by {value.reason}")
    for call in chosen or calls:
        translator.extension(call)
    for call in reader.calls:
        if call.function in {"load", "load_inline"}:
            translator.loaded(call)
    uses = bool(translator.modules) or path.name == SETUP
    doubts = [Remark(path.name, line, text, "check") for line, text in reader.doubts.items()]
    remarks = (*translator.remarks, *doubts) if uses else ()
    return Program(
        root=path.parent,
        file=path.name,
        license=_literal(setups, "license"),
        name=_literal(setups, "name") or (translator.modules[0].name if translator.modules else ""),
        modules=tuple(translator.modules),
        inline=translator.inline,
        remarks=tuple(sorted(set(remarks))),
    )


def _literal(setups: list[Call], option: str) -> str:
    """An option of ``setup`` that is a text; empty if there is none."""
    values = (call.get(option) for call in setups)
    return next((value for value in values if isinstance(value, str)), "")


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


class _Translator:
    """Collects modules and remarks of one program."""

    def __init__(self, path: Path) -> None:
        self.file = path.name
        self.root = path.parent
        self.modules: list[Module] = []
        self.inline: dict[str, str] = {}
        self.remarks: list[Remark] = []

    def left(self, line: int, text: str, kind: str = "left") -> None:
        self.remarks.append(Remark(self.file, line, text, kind))

    def extension(self, call: Call) -> None:
        """A CUDAExtension or a CppExtension."""
        if call.function not in _EXTENSIONS:
            self.left(
                call.line, f"{call.function} has no torch operators; it is not part of the kernel"
            )
            return
        name = call.get("name", 0)
        if not isinstance(name, str):
            self.left(call.line, f"the name of the {call.function} is not a literal")
            return
        sources = self._paths(call.get("sources", 1), call.line_of("sources", 1), name)
        flags = call.get("extra_compile_args")
        by_compiler = flags if isinstance(flags, dict) else {"cxx": flags, "nvcc": flags}
        macros = tuple(self._macros(call))
        line = call.line_of("extra_compile_args")
        cxx = tuple(self._flags(by_compiler.get("cxx"), line, macros))
        nvcc = tuple(self._flags(by_compiler.get("nvcc"), line, macros, nvcc=True))
        paths = _list(call.get("include_dirs"))
        for option in ("libraries", "library_dirs", "extra_link_args", "extra_objects", "dlink"):
            values = [v for v in _list(call.get(option)) if v not in ("-s", "-fopenmp", False)]
            if values:
                self.left(
                    call.line_of(option),
                    f"{option}={_shown(values)}: a kernel links to torch and nothing else; "
                    "call what it needs through torch (at::cuda::blas, torch::mm) or at run time (dlopen)",
                )
        module = Module(
            name=name,
            backend="cuda" if call.function == "CUDAExtension" else "cpu",
            sources=sources,
            include=tuple(self._directories(paths, call.line_of("include_dirs"))),
            cxx_flags=(*macros, *cxx),
            cuda_flags=(*macros, *nvcc),
        )
        self.modules += [module] if sources else []

    def loaded(self, call: Call) -> None:
        """A call of load or load_inline."""
        name = call.get("name", 0)
        if not isinstance(name, str):
            self.left(
                call.line, f"the name of the module that {call.function} makes is not a literal"
            )
            return
        cxx = call.get("extra_cflags")
        nvcc = call.get("extra_cuda_cflags")
        if call.function == "load":
            sources = self._paths(call.get("sources", 1), call.line_of("sources", 1), name)
        else:
            sources = self._inline(call, name)
        if not sources:
            return
        has_cuda = any(path.endswith(extension_source.CUDA_SUFFIXES) for path in sources)
        paths = _list(call.get("extra_include_paths"))
        line = call.line_of("extra_cuda_cflags")
        module = Module(
            name=name,
            backend="cuda" if has_cuda or call.get("with_cuda") is True else "cpu",
            sources=sources,
            include=tuple(self._directories(paths, call.line_of("extra_include_paths"))),
            cxx_flags=tuple(self._flags(cxx, call.line_of("extra_cflags"), ())),
            cuda_flags=tuple(self._flags(nvcc, line, (), nvcc=True)),
        )
        self.modules.append(module)
        if call.get("extra_ldflags"):
            self.left(
                call.line_of("extra_ldflags"),
                "extra_ldflags: a kernel links to torch and nothing else",
            )

    def _inline(self, call: Call, name: str) -> tuple[str, ...]:
        cpp, cuda = call.get("cpp_sources", 1), call.get("cuda_sources", 2)
        given = call.get("functions", 3)
        texts = [*_list(cpp), *_list(cuda)]
        if not all(isinstance(text, str) for text in texts):
            self.left(call.line, f"a source of {name} is not a literal text")
            return ()
        names = [*given, *given.values()] if isinstance(given, dict) else _list(given)
        if not all(isinstance(each, str) for each in names):
            self.left(call.line_of("functions", 3), f"functions of {name} are computed")
            given = None
        try:
            files = extension_source.inline(_list(cpp), _list(cuda), given)
        except UsageError as error:
            self.left(call.line, error.message)
            return ()
        stem = re.sub(r"\W", "_", name)
        paths = {extension_source.MAIN: f"{stem}.cpp", extension_source.CUDA: f"{stem}.cu"}
        for file, inline in files.items():
            self.inline[paths[file]] = inline.text
        return tuple(paths[file] for file in files)

    def _paths(self, value: Any, line: int, name: str) -> tuple[str, ...]:
        found = []
        for entry in _list(value):
            if isinstance(entry, Unknown):
                self.left(line, f"sources of {name}: {entry.reason} is computed and not read")
                continue
            path = self._relative(str(entry))
            if path is None or not (self.root / path).is_file():
                self.left(line, f"{entry}: no such file in the project")
            else:
                found.append(path)
        return tuple(dict.fromkeys(found))

    def _relative(self, path: str) -> str | None:
        """A path relative to the project, or None for one outside it."""
        whole = posixpath.normpath(posixpath.join(self.root.as_posix(), path))
        root = self.root.as_posix()
        if whole == root:
            return "."
        return whole.removeprefix(f"{root}/") if whole.startswith(f"{root}/") else None

    def _directories(self, values: list[Any], line: int) -> Iterator[str]:
        for value in values:
            if isinstance(value, Unknown):
                self.left(line, f"include directory {value.reason} is computed and not read")
                continue
            path = self._relative(str(value))
            if path is None:
                self.left(line, f"include directory {value} lies outside the project")
            elif (self.root / path).is_dir():
                yield path
            else:
                self.left(line, f"include directory {value} does not exist")

    def _macros(self, call: Call) -> Iterator[str]:
        for option, sign in (("define_macros", "-D"), ("undef_macros", "-U")):
            for macro in _list(call.get(option)):
                parts = _list(macro)[:2]
                unknown = [part for part in parts if isinstance(part, Unknown)]
                if unknown:
                    reason = unknown[0].reason
                    self.left(call.line_of(option), f"{option}: {reason} is computed and not read")
                elif parts and parts[0] != "WITH_PYTHON":
                    yield sign + "=".join(str(part) for part in parts if part is not None)

    def _flags(
        self, value: Any, line: int, macros: tuple[str, ...], *, nvcc: bool = False
    ) -> Iterator[str]:
        flags = iter(_list(value))
        for flag in flags:
            if isinstance(flag, Unknown):
                self.left(line, f"a compiler flag is computed by {flag.reason} and not read")
                continue
            value = next(flags, "") if flag in _PAIRS else ""
            if isinstance(value, Unknown):
                self.left(line, f"what follows {flag} is computed by {value.reason} and not read")
                continue
            whole = [str(flag), *([str(value)] if value else [])]
            text = " ".join(whole)
            if _ARCHITECTURE.match(text):
                self.left(
                    line,
                    f"{text}: left out; `cuda-capabilities` in build.toml and `build --arch` choose "
                    "architectures",
                    "changed",
                )
            elif _STANDARD.fullmatch(text):
                self.left(line, f"{text}: left out; a build uses torch's C++ standard", "changed")
            elif _OPENMP.match(text):
                self.left(
                    line,
                    f"{text}: left out; a kernel links to no OpenMP: use at::parallel_for",
                    "changed",
                )
            elif not _OURS.match(text) and text not in macros:
                if nvcc and text == "-Xcompiler":
                    continue
                yield from whole


def _shown(values: list[Any]) -> str:
    return repr([v.reason if isinstance(v, Unknown) else v for v in values])
