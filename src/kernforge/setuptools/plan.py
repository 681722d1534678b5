# SPDX-License-Identifier: Apache-2.0
"""The plan of the extensions of a setup.py.

The flags are those of torch's ``BuildExtension`` (2.13), so that a source compiles as it does
there. These things differ, so that results are small, portable and shared:

* the optimisation flags are always the same and not those that this Python was built with;
* a unit that reads no header of torch or Python is not given them: one object serves every torch;
* the link is against stubs of manylinux_2_28 and of torch's libraries, not against this machine's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from kernforge.binary import abi_floor
from kernforge.builder.plan import flags, linking
from kernforge.builder.plan.graph import ActionSet, Plan
from kernforge.builder.plan.linking import OBJECT
from kernforge.extension import torch_headers
from kernforge.extension.flags import (
    absolute,
    at_device_link,
    is_relocatable,
    linker_flags,
    parse_flags,
)
from kernforge.extension.plan import torch_target
from kernforge.source.extension_source import EXTENSION_NAME
from kernforge.toolchain import front_end, tree_names
from kernforge.toolchain.lockfile import Tree

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from kernforge.artifact.version import Version2
    from kernforge.builder.plan.graph import Action
    from kernforge.extension.flags import Flags
    from kernforge.setuptools.sources import ExtensionUnit, ProjectFiles
    from kernforge.setuptools.target import TorchTarget
    from kernforge.toolchain.cuda_arch import Arch
    from kernforge.toolchain.lockfile import Lock

Kind: TypeAlias = Literal["cuda", "cpp", "plain"]

_LIMITED_API = "-DPy_LIMITED_API=0x030A0000"
_OPTIMISE = ("-O3", "-DNDEBUG", "-fwrapv")
_SHARED = ("-fPIC", "-fno-gnu-unique", "-fno-canonical-system-headers")
# What the scheduler decides, or what makes an object differ between directories.
_OURS = re.compile(r"(?:--threads|-t|--split-compile|--keep-dir|--objdir-as-tempdir)(?:=.*)?|-t\d+")
_OURS_ALONE = {"--keep", "-keep", "--objdir-as-tempdir", "-objtemp"}
# With TORCH_API_INCLUDE_EXTENSION_H, torch/torch.h includes torch/extension.h.
_PYTHON = ("torch/csrc/", "torch/torch.h")
_NO_PYTHON = ("torch/csrc/api/", "torch/csrc/stable/", "torch/csrc/inductor/aoti_torch/")
# Libraries that are stubs of the ABI floor already, or that torch has loaded.
_GIVEN = {
    *("c", "m", "dl", "rt", "pthread", "util", "stdc++", "gcc_s", "gomp", "omp", "iomp5"),
    *("c10", "torch", "torch_cpu", "torch_python", "c10_cuda", "torch_cuda"),
    *("cudart", "cudart_static", "cudadevrt"),
}
_DRIVER = {"cuda": "libcuda.so.1", "nvidia-ml": "libnvidia-ml.so.1"}
# Major version in the soname of each library of CUDA 12 and 13.
_LIBRARIES = {
    "cublas": (12, 13),
    "cublasLt": (12, 13),
    "cufft": (11, 12),
    "curand": (10, 10),
    "cusolver": (11, 12),
    "cusparse": (12, 12),
    "nvJitLink": (12, 13),
    "nvrtc": (12, 13),
    "cupti": (12, 13),
    "cudnn": (9, 9),
    "nccl": (2, 2),
}
_CUDA_13 = 13
_DEBUG = re.compile(r"-g[0-3]?|-ggdb\d?|--debug")
_STANDARD = re.compile(r"(-{1,2}std=(?:c|gnu)\+\+)(\d\w)")
_DRAFTS = {"0x": 11, "1y": 14, "1z": 17, "2a": 20, "2b": 23, "2c": 26}
_GENCODE = re.compile(r"arch=compute_(\d+)([af]?),code=(.*)")
_STRIP = "-Wl,-s"
# The link is always that of a shared object; OpenMP's runtime is the one that torch has loaded.
_LINK_OURS = {"-shared", "-fopenmp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionRequest:
    """An extension as its setup.py describes it; paths are as written there.

    Attributes:
        name: of the module, with the packages it is in.
        kind: by which class it was made; ``plain`` for an extension without torch.
        macros: flags that define and undefine macros.
        nvcc_defaults: for nvcc, before all others.
        dlink_args: for nvcc's device link; None without one.
        objects: files for the linker.
        library_dirs: where the linker looks for libraries.
        rpaths: where the loader looks for them.
        limited_api: whether the module keeps to Python's limited API.
        file: name of the shared object.
    """

    name: str
    kind: Kind
    sources: tuple[str, ...]
    includes: tuple[str, ...] = ()
    macros: tuple[str, ...] = ()
    cxx_args: tuple[str, ...] = ()
    nvcc_args: tuple[str, ...] = ()
    nvcc_defaults: tuple[str, ...] = ()
    dlink_args: tuple[str, ...] | None = None
    link_args: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    library_dirs: tuple[str, ...] = ()
    rpaths: tuple[str, ...] = ()
    limited_api: bool = False
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionMachine:
    """What extensions are compiled with and for.

    Attributes:
        cpu: as variant names spell it.
        cuda: the toolkit; None where no source needs one.
        archs: arguments for nvcc that say what to compile for.
        only: architectures that the user asked for; empty narrows nothing.
        sonames: torch's libraries that the loading process has; without libtorch_python.
        runtime: soname of the CUDA runtime that torch loads; empty links the static one.
        standard: the least C++ standard that torch's headers take, as 20.
        static_libstdcxx: whether the host compiler has a ``libstdc++.a``.
        cxx_flags: what ``CPPFLAGS``, ``CFLAGS`` and ``CXXFLAGS`` say.
        nvcc_flags: what ``NVCC_APPEND_FLAGS`` says.
        link_flags: what ``LDFLAGS`` says.
        trees: directories of the toolchain that a setup.py may name, and the trees they are.
    """

    target: TorchTarget
    cpu: str
    lock: Lock
    cuda: Version2 | None = None
    archs: tuple[str, ...] = ()
    only: tuple[Arch, ...] = ()
    sonames: tuple[str, ...] = ()
    runtime: str = ""
    standard: int = 17
    static_libstdcxx: bool = True
    cxx_flags: tuple[str, ...] = ()
    nvcc_flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()
    trees: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionSources:
    """An extension with the files that it reads.

    Attributes:
        linked: the linker's files outside the toolchain, and digests of them.
    """

    request: ExtensionRequest
    units: tuple[ExtensionUnit, ...]
    files: ProjectFiles
    linked: tuple[tuple[str, str], ...] = ()

    @property
    def has_device(self) -> bool:
        """Whether there is device code."""
        return any(unit.is_cuda for unit in self.units)

    @property
    def has_cuda(self) -> bool:
        """Whether it needs a CUDA toolkit."""
        return self.request.kind == "cuda" or self.has_device

    @property
    def reads_python(self) -> bool:
        """Whether a source may read Python's headers."""
        return any(reads_python(unit, self.request.kind) for unit in self.units)

    @property
    def reads_torch(self) -> bool:
        """Whether a source may read torch's headers."""
        return any(unit.closure.reaches_torch for unit in self.units)

    @property
    def reads_cuda_libraries(self) -> bool:
        """Whether a source may read headers of CUDA's libraries."""
        return any(unit.closure.reaches_cuda_libraries for unit in self.units)

    @property
    def names_arch(self) -> bool:
        """Whether its flags say what device code is compiled for."""
        return any("arch" in flag and EXTENSION_NAME not in flag for flag in self.request.nvcc_args)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionPlan:
    """Plan of some extensions; ``links`` has the action that makes each, by its name."""

    plan: Plan
    links: Mapping[str, Action]


def reads_python(unit: ExtensionUnit, kind: Kind) -> bool:
    """Whether a unit may read Python's headers."""
    closure = unit.closure
    torch = (name for name in closure.foreign if name.startswith(_PYTHON))
    python = any(not name.startswith(_NO_PYTHON) for name in torch)
    return kind == "plain" or closure.reaches_python or python


def search_path(
    request: ExtensionRequest, files: ProjectFiles
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Directories in which headers are looked for.

    Returns:
        Those of the user, as an action sees them; absolute paths of those of the toolchain.
    """
    parsed = _parsed(request, files)
    given = [absolute(files.virtual(path), files.virtual_here) for path in request.includes]
    given += [path for each in parsed for path in each.search]
    users = tuple(path.lstrip("/") for path in given if not files.is_installed(path))
    return tuple(dict.fromkeys(users)), tuple(dict.fromkeys(filter(files.is_installed, given)))


def read_path(request: ExtensionRequest, files: ProjectFiles) -> tuple[str, ...]:
    """All directories in which the user's headers may be, as an action sees them."""
    apart = (path.lstrip("/") for each in _parsed(request, files) for path in each.apart)
    return tuple(dict.fromkeys((*search_path(request, files)[0], *apart)))


def included_first(request: ExtensionRequest, files: ProjectFiles) -> tuple[str, ...]:
    """The files that flags include before the first line, as an action sees them."""
    return tuple(p.lstrip("/") for each in _parsed(request, files) for p in each.first)


def linked_objects(request: ExtensionRequest, files: ProjectFiles) -> tuple[str, ...]:
    """Absolute paths of the objects that the linker gets besides those that are compiled."""
    return tuple(absolute(path, files.here) for path in request.objects)


def plan_extensions(
    extensions: Sequence[ExtensionSources], machine: ExtensionMachine
) -> ExtensionPlan:
    """Plan the compilation of extensions."""
    actions = ActionSet(machine.lock)
    links = {
        each.request.name: _ExtensionPlanner(each, machine, actions).link() for each in extensions
    }
    plan = Plan(
        actions=tuple(actions.by_key.values()), artifacts=(), texts=actions.texts, sources_id=""
    )
    return ExtensionPlan(plan=plan, links=links)


def raised(words: Iterable[str], standard: int) -> tuple[str, ...]:
    """Flags with a C++ standard of at least this number.

    >>> raised(["-O3", "-std=c++17"], 20)
    ('-O3', '-std=c++20')
    """

    def least(word: str) -> str:
        match = _STANDARD.fullmatch(word)
        older = match and int(_DRAFTS.get(match[2], match[2])) < standard
        return f"{match[1]}{standard}" if match and older else word

    return tuple(map(least, words))


def without_ours(words: Iterable[str]) -> tuple[str, ...]:
    """Flags of nvcc without those that the scheduler decides or that keep intermediate files."""
    kept = []
    todo = list(words)
    while todo:
        word = todo.pop(0)
        if word in _OURS_ALONE:
            continue
        if _OURS.fullmatch(word):
            if "=" not in word and not re.fullmatch(r"-t\d+", word) and todo:
                todo.pop(0)
            continue
        kept.append(word)
    return tuple(kept)


def narrowed(words: Iterable[str], archs: Collection[Arch]) -> tuple[str, ...]:
    """Flags of nvcc without those for GPUs that were not asked for, and with the PTX that was.

    >>> narrowed(["-gencode", "arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=sm_90"],
    ...          [Arch(9, 0)])
    ('-gencode=arch=compute_90,code=sm_90',)

    Args:
        archs: the architectures that were asked for; if the flags name none of them, all stay. PTX
            is added where the flags compile for that number without a suffix.
    """
    digits = {f"{arch.major}{arch.minor}" for arch in archs}
    with_ptx = sorted(f"{arch.major}{arch.minor}" for arch in archs if arch.ptx)
    todo, pairs = list(words), list[tuple[str, ...]]()
    while todo:
        word = todo.pop(0)
        apart = word in {"-gencode", "--generate-code"} and todo
        pairs.append((word, todo.pop(0)) if apart else (word,))
    wanted = {pair: m for pair in pairs if (m := _GENCODE.search(pair[-1])) and m[1] in digits}
    if not wanted:
        return tuple(word for pair in pairs for word in pair)
    kept = [pair for pair in pairs if pair in wanted or not _GENCODE.search(pair[-1])]
    plain = {m[1] for m in wanted.values() if not m[2]}
    there = {m[1] for m in wanted.values() if "compute_" in m[3]}
    ptx = [number for number in with_ptx if number in plain - there]
    kept += [("-gencode", f"arch=compute_{each},code=compute_{each}") for each in ptx]
    return tuple(word for pair in kept for word in pair)


def library_soname(name: str, cuda: Version2 | None) -> str:
    """Soname of a library that the process which loads an extension has; empty for any other.

    Args:
        name: as for ``-l``.
        cuda: the CUDA that torch was built with.
    """
    if name in _DRIVER:
        return _DRIVER[name]
    if name not in _LIBRARIES or cuda is None:
        return ""
    return f"lib{name}.so.{_LIBRARIES[name][cuda.major >= _CUDA_13]}"


class _ExtensionPlanner:
    def __init__(
        self, extension: ExtensionSources, machine: ExtensionMachine, actions: ActionSet
    ) -> None:
        self._extension, self._machine, self._actions = extension, machine, actions
        self._request, self._files = extension.request, extension.files
        wanted = machine.target
        self._target = torch_target(wanted.torch, wanted.cuda, machine.cpu, machine.cuda)
        self._users, self._installed = search_path(self._request, self._files)
        words = self._words((*self._request.nvcc_args, *machine.nvcc_flags))
        archs = () if extension.names_arch else machine.archs
        given = (*archs, *narrowed(without_ours(words), machine.only))
        relocatable = extension.has_device and is_relocatable(given)
        self._links_device = relocatable or self._request.dlink_args is not None
        compiled, self._linked_flags = at_device_link(given)
        self._nvcc_flags = compiled if relocatable else given

    # -- compiling -------------------------------------------------------------------------

    def _compile(self, unit: ExtensionUnit) -> Action:
        inputs = [self._actions.text(path, text) for path, text in unit.texts.items()]
        common = tuple(self._common(unit))
        if unit.is_cuda:
            argv = self._nvcc(unit, common)
        else:
            user = self._words((*self._machine.cxx_flags, *self._request.cxx_args))
            user = self._raised(unit, user)
            argv = (tree_names.CXX, "-c", *_OPTIMISE, *_SHARED, *common, *user)
            argv = (*argv, *self._standard(unit, user))
        whole = (*argv, unit.path, "-o", OBJECT)
        return self._actions.add(unit.title, whole, inputs, (OBJECT,), self._target)

    def _nvcc(self, unit: ExtensionUnit, common: tuple[str, ...]) -> tuple[str, ...]:
        user = self._raised(unit, self._nvcc_flags)
        own = any(word.startswith(("-ccbin", "--compiler-bindir")) for word in user)
        return (
            self._cuda_tree("bin/nvcc"),
            "-c",
            *self._adapted(user, unit.path),
            *self._request.nvcc_defaults,
            *("-Xcompiler", ",".join(_SHARED)),
            *("--keep", "--keep-dir=../tmp"),
            *(() if own else (f"-ccbin={tree_names.CXX}",)),
            f"--threads={tree_names.THREADS}",
            *flags.for_nvcc(common),
            *user,
            *self._standard(unit, user),
        )

    def _adapted(self, user: tuple[str, ...], path: str) -> tuple[str, ...]:
        """What makes a front end of a later CUDA do what that of this one does."""
        toolkit = self._machine.lock.toolkit(self._machine.cuda)
        return front_end.nvcc_flags(toolkit, (*self._request.nvcc_defaults, *user), path)

    def _common(self, unit: ExtensionUnit) -> Iterator[str]:
        """Definitions and search paths of both compilers."""
        torch, kind = unit.closure.reaches_torch, self._request.kind
        yield from self._words(self._request.macros)
        if torch and kind != "plain":
            yield "-DTORCH_API_INCLUDE_EXTENSION_H"
        if any(EXTENSION_NAME in text for text in unit.texts.values()):
            yield f"-D{EXTENSION_NAME}={self._request.name.rpartition('.')[2]}"
        if self._request.limited_api and kind != "plain":
            yield _LIMITED_API
        if any(path.startswith(f"{torch_headers.DIRECTORY}/") for path in unit.texts):
            yield f"-I{torch_headers.DIRECTORY}"
        yield from (f"-I{directory}" for directory in self._users)
        for directory in self._installed:
            tree = self._tree_of(directory)
            # Torch's, CUDA's and Python's own come below, for those who read them.
            if not tree:
                yield f"-I{directory}"
            elif kind == "plain" and not tree.startswith("%{python"):
                yield from ("-isystem", tree)
        yield from self._trees_of(unit)

    def _trees_of(self, unit: ExtensionUnit) -> Iterator[str]:
        """Search paths of the toolchain's headers that a unit may read."""
        kind = self._request.kind
        if unit.closure.reaches_torch and kind != "plain":
            torch = Tree.of("torch", self._machine.target.torch)
            for below in ("include", "include/torch/csrc/api/include"):
                yield from ("-isystem", torch.at(below))
            yield f"-fmacro-prefix-map={torch.at()}=torch"
        if reads_python(unit, kind):
            yield from ("-isystem", Tree("python").at())
        cuda = self._machine.cuda
        if not cuda or not self._extension.has_cuda:
            return
        if not unit.is_cuda:
            yield from flags.cuda_includes(cuda)
        if unit.closure.reaches_cuda_libraries:
            yield from flags.library_includes(cuda, self._machine.lock)

    def _raised(self, unit: ExtensionUnit, user: tuple[str, ...]) -> tuple[str, ...]:
        """The user's flags, and the C++ standard of torch's headers where a unit reads them."""
        return raised(user, self._machine.standard) if unit.closure.reaches_torch else user

    def _standard(self, unit: ExtensionUnit, user: tuple[str, ...]) -> tuple[str, ...]:
        if any(flag.startswith(("-std", "--std")) for flag in user) or unit.path.endswith(".c"):
            return ()
        # One for all releases of torch where torch is not read: so the object serves them all.
        new = flags.standard(self._target) if unit.closure.reaches_torch else "20"
        return (f"-std=c++{new}",)

    # -- linking ---------------------------------------------------------------------------

    def link(self) -> Action:
        """The action that makes the shared object."""
        request, machine = self._request, self._machine
        objects = [self._compile(unit) for unit in self._extension.units]
        if self._links_device:
            objects.append(self._device_link(objects))
        names, inputs = linking.named_objects(self._actions, objects)
        if linked := self._extension.linked:
            # No program reads it: other files on the same command line make another action.
            lines = "".join(f"{path} {digest}\n" for path, digest in linked)
            inputs.append(self._actions.text("linked.txt", lines))
        needed = self._needed()
        inputs += linking.floor(self._actions, self._target, needed)
        runtime: tuple[str, ...] = ()
        if self._extension.has_cuda and machine.cuda and not machine.runtime:
            runtime = (self._cuda_tree("lib64/libcudart_static.a"),)
        if self._links_device:
            runtime = (self._cuda_tree("lib64/libcudadevrt.a"), *runtime)
        floor = abi_floor.link_args(
            stub_dir=linking.STUB_DIR,
            backend="",
            libstdcxx_archive=machine.static_libstdcxx,
            needed=needed,
        )
        compiled = (*request.cxx_args, *request.nvcc_args, *machine.cxx_flags)
        if any(_DEBUG.fullmatch(word) for word in compiled):
            floor = tuple(word for word in floor if word != _STRIP)
        argv = (tree_names.CXX, "-o", request.file, *names, *self._link_words(), *runtime, *floor)
        return self._actions.add(
            f"link {request.file}", argv, inputs, (request.file,), self._target
        )

    def _device_link(self, objects: list[Action]) -> Action:
        """Link device code that was compiled with ``-dc`` or ``-rdc=true``."""
        self._adapted(("-dlink",), self._request.file)
        names, inputs = linking.named_objects(self._actions, objects)
        given = [w for w in self._words(self._request.dlink_args or ()) if w != "-dlink"]
        own = any("arch" in word for word in given)
        argv = (
            self._cuda_tree("bin/nvcc"),
            *("-dlink", "-Xcompiler", "-fPIC", f"-ccbin={tree_names.CXX}"),
            *(word for word in self._linked_flags if not own or word == "-dlto"),
            *given,
            *names,
            *("-o", OBJECT),
        )
        title = f"device link {self._request.file}"
        return self._actions.add(title, argv, inputs, (OBJECT,), self._target)

    def _needed(self) -> tuple[str, ...]:
        """Sonames that the extension depends on, in load order."""
        request, machine = self._request, self._machine
        torch: tuple[str, ...] = ()
        if request.kind != "plain":
            cuda = request.kind == "cuda"
            torch = tuple(s for s in machine.sonames if cuda or "_cuda" not in s)
            torch += () if request.limited_api else ("libtorch_python.so",)
        runtime = (machine.runtime,) if machine.runtime and self._extension.has_cuda else ()
        named = [w.removeprefix("-l") for w in request.link_args if w.startswith("-l")]
        libraries = (
            library_soname(name, machine.target.cuda or machine.cuda)
            for name in (*request.libraries, *named)
        )
        return tuple(dict.fromkeys((*torch, *runtime, *filter(None, libraries))))

    def _link_words(self) -> Iterator[str]:
        """The user's words for the linker."""
        request, cuda = self._request, self._machine.target.cuda or self._machine.cuda

        def given(name: str) -> bool:
            return name in _GIVEN or bool(library_soname(name, cuda))

        yield from linked_objects(request, self._files)
        for directory in request.library_dirs:
            path = absolute(directory, self._files.here)
            if not self._tree_of(path):
                yield f"-L{path}"
        words = (*self._machine.link_flags, *request.link_args)
        for word in linker_flags(words, self._files.here):
            if word in _LINK_OURS or (word.startswith("-l") and given(word[2:])):
                continue
            if not (word.startswith("-L") and self._tree_of(word[2:])):
                yield word
        yield from (f"-l{name}" for name in request.libraries if not given(name))
        yield from (f"-Wl,-rpath,{path}" for path in request.rpaths)

    # -- paths -----------------------------------------------------------------------------

    def _words(self, words: Iterable[str]) -> tuple[str, ...]:
        """Flags with paths as an action's directory has them, without those of -I."""
        virtual = map(self._files.virtual, words)
        parsed = parse_flags(virtual, self._files.virtual_here, self._files.installed)
        return tuple(self._tree_of(word) or word for word in parsed.words)

    def _tree_of(self, path: str) -> str:
        """A path of the toolchain as an action names it; empty for any other."""
        for directory, tree in self._machine.trees:
            if path == directory or path.startswith(f"{directory}/"):
                return tree + path.removeprefix(directory)
        return ""

    def _cuda_tree(self, path: str) -> str:
        if self._machine.cuda is None:
            raise AssertionError("a CUDA source was accepted without a toolkit")
        return Tree.of("cuda", self._machine.cuda).at(path)


def _parsed(request: ExtensionRequest, files: ProjectFiles) -> tuple[Flags, ...]:
    return tuple(
        parse_flags(map(files.virtual, words), files.virtual_here, files.installed)
        for words in (request.cxx_args, request.nvcc_args)
    )
