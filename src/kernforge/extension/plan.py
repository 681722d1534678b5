# SPDX-License-Identifier: Apache-2.0
"""The plan of extensions: of a module that is compiled while its user waits, and of a setup.py.

The flags are those of ``torch.utils.cpp_extension`` (2.13), so that a source compiles as it does
there. These things differ:

* a unit that reads no header of torch or Python is not given them: one object serves every torch;
* nothing is linked against torch's libraries, which take the linker long to read and which the
  process has loaded: empty libraries with the same names stand for them;
* what is to run elsewhere (``ExtensionMachine.portable``) is optimised in one way, whatever this
  Python was built with, and linked against stubs of manylinux_2_28, not this machine's libraries.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kernforge.artifact.gpu import Arch
from kernforge.artifact.variant import Backend, Variant
from kernforge.artifact.version import Version2
from kernforge.binary import abi_floor
from kernforge.builder import flags, graph
from kernforge.builder.flags import OBJECT
from kernforge.builder.graph import Action, ActionKind, ActionSet, Input, Plan
from kernforge.extension import flags as user_flags, op_names
from kernforge.extension.device.units import CudaUnit, ExtensionUnit, ModulePlan
from kernforge.project.targets import Target
from kernforge.source import torch_headers
from kernforge.source.op_namespace import EXTENSION_NAME
from kernforge.toolchain import front_end
from kernforge.toolchain.lockfile import CXX, HERE, THREADS, Lock, Tree

NVCC_FLAGS = (
    *("-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__"),
    *("-D__CUDA_NO_BFLOAT16_CONVERSIONS__", "-D__CUDA_NO_HALF2_OPERATORS__"),
    "--expt-relaxed-constexpr",
)
"""Flags of every CUDA source, as torch's."""
_LIMITED_API = "-DPy_LIMITED_API=0x030A0000"
_OPTIMISE = ("-O3", "-DNDEBUG", "-fwrapv")
# A symbol that is unique in a process would be that of the first module that has it, also after an
# edit.
_SHARED = ("-fPIC", "-fno-gnu-unique", "-fno-canonical-system-headers")
_NAMES = "kernforge_names.cpp"
# Libraries that are stubs of the ABI floor already, or that torch has loaded.
_PROVIDED = {
    *("c", "m", "dl", "rt", "pthread", "util", "stdc++", "gcc_s", "gomp", "omp", "iomp5"),
    *("c10", "torch", "torch_cpu", "torch_python", "c10_cuda", "torch_cuda"),
    *("cudart", "cudart_static", "cudadevrt"),
}
_TORCH_PYTHON = "libtorch_python.so"
_CUDA_13 = 13
_PLAIN_SONAME = 12  # the runtime's soname has the minor version before
_STRIP = "-Wl,-s"
# The link is always that of a shared object; OpenMP's runtime is the one that torch has loaded.
_LINK_IGNORED = {"-shared", "-fopenmp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionMachine:
    """Compiler, headers and target of a plan of extensions.

    Attributes:
        torch: release series of torch.
        torch_cuda: CUDA that torch was built with; None for a CPU build.
        cuda: the toolkit; None where no source needs one.
        archs: arguments for nvcc that say what to compile for.
        only: architectures that the user asked for; empty narrows nothing.
        sonames: torch's libraries that the loading process has, without libtorch_python.
        portable: whether the result is for other machines too.
        standard: the least C++ standard that torch's headers take, as 20.
        static_libstdcxx: whether the host compiler has a ``libstdc++.a``.
        refusal: why nothing can be compiled; empty otherwise.
        library_path: the ``LD_LIBRARY_PATH`` that the compilers need; empty for most.
        paths: real path of each tree and program by name.
        trees: directories of the toolchain that a setup.py may name, and the trees they are.
    """

    torch: Version2
    torch_cuda: Version2 | None = None
    cpu: str
    cuda: Version2 | None = None
    archs: tuple[str, ...] = ()
    only: tuple[Arch, ...] = ()
    lock: Lock
    sonames: tuple[str, ...] = ()
    portable: bool = False
    standard: int = 17
    static_libstdcxx: bool = True
    refusal: str = ""
    library_path: str = ""
    paths: Mapping[str, str] = field(default_factory=dict)
    trees: tuple[tuple[str, str], ...] = ()

    @property
    def runtime(self) -> str:
        """Soname of torch's CUDA runtime, if it has all that the toolkit may call; else empty."""
        torch, cuda = self.torch_cuda, self.cuda
        if torch is None or cuda is None or cuda.major < _PLAIN_SONAME:
            return ""
        return f"libcudart.so.{cuda.major}" if torch.major == cuda.major and torch >= cuda else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """An extension, as ``load``, ``load_inline`` or a setup.py asks for it, and as it is planned.

    What is asked for are plain values with the user's paths, so that the same request is known
    again. ``request.read_extension`` reads the files. Paths in its flags are absolute, or in the
    action's directory.

    Attributes:
        name: of the module, with the packages it is in.
        texts: path and text of each file that is not on the disk.
        nvcc_defaults: for nvcc, before all others.
        dlink: for nvcc's device link; None leaves it to the flags whether there is one.
        includes: search path; once read, in the action's directory.
        build_directory: where the caller wants the shared object too; empty for nowhere.
        with_cuda: whether C++ sources get CUDA's headers; None: if a source is CUDA.
        limited_api: whether the module keeps to Python's limited API.
        is_python_module: False for sources that only register operators.
        here: the current directory, or that of the setup.py, from which relative paths start.
        environment: values of the variables that decide what is compiled with.
        linked: files that the linker reads outside the action's directory -> what identifies them.
        installed: search path outside the action's directory.
        source_root: where debuggers and profilers find the files of the action's directory.
    """

    name: str
    sources: tuple[str, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()
    nvcc_defaults: tuple[str, ...] = NVCC_FLAGS
    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    dlink: tuple[str, ...] | None = None
    includes: tuple[str, ...] = ()
    build_directory: str = ""
    with_torch: bool = True
    with_cuda: bool | None = None
    limited_api: bool = False
    is_python_module: bool = True
    file: str = ""
    here: str = ""
    environment: tuple[str | None, ...] = ()
    units: tuple[ExtensionUnit, ...] = ()
    linked: Mapping[str, str] = field(default_factory=dict, hash=False)
    installed: tuple[str, ...] = ()
    source_root: str = field(default="", repr=False)

    @property
    def debugs(self) -> bool:
        """Whether flags ask for names and lines of sources in the module."""
        return user_flags.debugs((*self.cflags, *self.cuda_cflags))

    @property
    def last_name(self) -> str:
        """The last part of the name, which stands for TORCH_EXTENSION_NAME."""
        return self.name.rpartition(".")[2]

    @property
    def has_device(self) -> bool:
        """Whether there is device code."""
        return any(unit.is_cuda for unit in self.units)

    @property
    def has_cuda(self) -> bool:
        """Whether it needs a CUDA toolkit."""
        return bool(self.with_cuda) or self.has_device

    @property
    def names_arch(self) -> bool:
        """Whether a flag names an architecture of device code."""
        return any("arch" in flag and EXTENSION_NAME not in flag for flag in self.cuda_cflags)

    @property
    def reads_torch(self) -> bool:
        """Whether a source may read torch's headers."""
        return self.with_torch and any(unit.closure.reaches_torch for unit in self.units)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionNeeds:
    """Parts of the toolchain that extensions need.

    Attributes:
        device: whether flags must say which GPUs to compile for.
    """

    torch: bool = False
    cuda: bool = False
    libraries: bool = False
    python: bool = False
    device: bool = False

    @classmethod
    def of(cls, extensions: Sequence[Extension]) -> ExtensionNeeds:
        """Needs of some extensions together."""
        cuda = any(each.has_cuda for each in extensions)
        units = [(each, unit) for each in extensions for unit in each.units]
        return cls(
            torch=any(each.reads_torch for each in extensions),
            cuda=cuda,
            libraries=cuda and any(unit.closure.reaches_cuda_libraries for _, unit in units),
            python=any(unit.reads_python or not each.with_torch for each, unit in units),
            device=any(each.has_device and not each.names_arch for each in extensions),
        )


def plan_extensions(
    extensions: Sequence[Extension],
    machine: ExtensionMachine,
    namespaces: Mapping[str, str] | None = None,
) -> tuple[ModulePlan, ...]:
    """Plan the compilation of extensions; they have one plan.

    Args:
        namespaces: what each op namespace of the sources is called in this process; None leaves
            them as they are written.
    """
    actions = ActionSet(machine.lock)
    planners = [_ExtensionPlanner(each, machine, actions, namespaces) for each in extensions]
    links = [planner.link() for planner in planners]
    plan = Plan(
        actions=tuple(actions.by_key.values()), artifacts=(), texts=actions.texts, sources_id=""
    )
    return tuple(
        ModulePlan(
            plan=plan,
            link=link,
            cuda=tuple(planner.cuda),
            target=planner.target,
            lock=machine.lock,
        )
        for planner, link in zip(planners, links, strict=True)
    )


def op_namespaces(extension: Extension) -> dict[str, str]:
    """Op namespaces that sources register, by the word that they write."""
    defined = op_names.namespaces([t for u in extension.units for t in u.texts.values()])
    return {word: extension.last_name if word == EXTENSION_NAME else word for word in defined}


class _ExtensionPlanner:
    def __init__(
        self,
        extension: Extension,
        machine: ExtensionMachine,
        actions: ActionSet,
        namespaces: Mapping[str, str] | None,
    ) -> None:
        self._extension, self._machine, self._actions = extension, machine, actions
        self._names: dict[str, str] = {}
        if namespaces is not None:
            written = op_namespaces(extension)
            self._names = {word: namespaces[name] for word, name in written.items()}
        self.cuda: list[CudaUnit] = []
        variant = Variant(
            framework="torch",
            version=machine.torch,
            backend=Backend("cuda", machine.torch_cuda) if machine.torch_cuda else Backend("cpu"),
            cpu=machine.cpu,
            os="linux",
            cxx11=True,
        )
        self.target = Target(variant=variant, torch=machine.torch, cuda=machine.cuda)
        words = user_flags.without_scheduling(self._words(extension.cuda_cflags))
        archs = () if extension.names_arch else machine.archs
        self._cuda_flags = (*archs, *user_flags.narrowed(words, machine.only))
        relocatable = extension.has_device and user_flags.is_relocatable(self._cuda_flags)
        self._links_device = relocatable or extension.dlink is not None

    # -- compiling -------------------------------------------------------------------------

    def _compile(self, unit: ExtensionUnit) -> Action:
        texts = self._texts(unit)
        inputs = [self._actions.text(path, text) for path, text in texts.items()]
        common = tuple(self._common(unit))
        if self._extension.debugs:
            common = (*common, *self._debug_names(unit, common))
        header = op_names.NAMES_HEADER
        included = ("-include", header) if header in texts else ()
        if unit.is_cuda:
            argv = self._nvcc(unit, (*included, *common))
        else:
            user = self._user_flags(unit, self._words(self._extension.cflags))
            steady = _OPTIMISE if self._machine.portable else ()
            argv = (CXX, "-c", *included, *steady, *_SHARED, *common, *user)
        whole = (*argv, unit.path, "-o", OBJECT)
        title = unit.title or unit.path
        kind: ActionKind = "cuda" if unit.is_cuda else "c++"
        action = self._actions.add(
            title,
            whole,
            inputs,
            (OBJECT,),
            self.target,
            kind=kind,
            source=unit.path,
            archs=user_flags.architectures(argv) if unit.is_cuda else (),
            slim=self._extension.with_torch and torch_headers.may_be_slim(unit.closure),
        )
        if unit.is_cuda:
            self.cuda.append(
                CudaUnit(path=unit.path, texts=texts, closure=unit.closure, action=action)
            )
        return action

    def _texts(self, unit: ExtensionUnit) -> dict[str, str]:
        """The files of a unit, with a header for op namespaces that come from the link."""
        defined = frozenset(self._names)
        texts = {path: op_names.register(text, defined) for path, text in unit.texts.items()}
        if texts != unit.texts:
            texts[op_names.NAMES_HEADER] = op_names.names_header(defined)
        if unit.is_cuda and self._extension.debugs and not self._machine.portable:
            # nvcc maps no prefix in device code.
            root = self._extension.source_root.removesuffix("/")
            for path in unit.texts:
                name = json.dumps(f"{root}/{path}", ensure_ascii=False)
                texts[path] = f"#line 1 {name}\n{texts[path]}"
        return texts

    def _debug_names(self, unit: ExtensionUnit, common: tuple[str, ...]) -> Iterator[str]:
        """Flags for names in debug information that exist when the action's directory is gone."""
        if self._machine.portable:  # relative to the project's directory, wherever that is
            names = {f"{HERE}/src": ".", HERE: ".", "src": "."}
        else:
            names = {HERE: self._extension.source_root}
            names |= {top: f"/{top}" for each in unit.texts if (top := posixpath.dirname(each))}
            words = (*common, self._toolkit("")) if unit.is_cuda else common
            names |= {Tree(n).at(): self._machine.paths[n] for n in graph.trees(words)}
        return (f"-fdebug-prefix-map={old}={new}" for old, new in names.items())

    def _nvcc(self, unit: ExtensionUnit, common: tuple[str, ...]) -> tuple[str, ...]:
        user = self._user_flags(unit, self._cuda_flags)
        own = any(word.startswith(("-ccbin", "--compiler-bindir")) for word in user)
        return (
            self._toolkit("bin/nvcc"),
            "-c",
            *self._compatibility_flags(user, unit.title or unit.path),
            *self._extension.nvcc_defaults,
            *("-Xcompiler", ",".join(_SHARED)),
            *("--keep", "--keep-dir=../tmp"),
            *(() if own else (f"-ccbin={CXX}",)),
            f"--threads={THREADS}",
            *flags.for_nvcc(common),
            *user,
        )

    def _compatibility_flags(self, user: tuple[str, ...], title: str) -> tuple[str, ...]:
        """Flags that make the front end of a later CUDA behave as that of this one."""
        toolkit = self._machine.lock.toolkit(self._machine.cuda)
        return front_end.nvcc_flags(toolkit, (*self._extension.nvcc_defaults, *user), title)

    def _common(self, unit: ExtensionUnit) -> Iterator[str]:
        """Definitions and search paths of both compilers."""
        extension = self._extension
        if unit.closure.reaches_torch and extension.with_torch:
            yield "-DTORCH_API_INCLUDE_EXTENSION_H"
        if any(EXTENSION_NAME in text for text in unit.texts.values()):
            yield f"-D{EXTENSION_NAME}={extension.last_name}"
        if extension.limited_api and extension.with_torch:
            yield _LIMITED_API
        yield from (f"-I{directory}" for directory in extension.includes)
        for directory in extension.installed:
            tree = self._tree_of(directory)
            # Torch's, CUDA's and Python's own come below, for those who read them.
            if not tree:
                yield f"-I{directory}"
            elif not extension.with_torch and not tree.startswith("%{python"):
                yield from ("-isystem", tree)
        yield from self._trees_of(unit)

    def _trees_of(self, unit: ExtensionUnit) -> Iterator[str]:
        """Search paths of the toolchain's headers that a unit may read."""
        extension, cuda = self._extension, self._machine.cuda
        if unit.closure.reaches_torch and extension.with_torch:
            yield from flags.tree_includes(Tree.of("torch", self._machine.torch))
        if unit.reads_python or not extension.with_torch:
            yield from ("-isystem", Tree("python").at())
        if not cuda or not extension.has_cuda:
            return
        if extension.with_cuda and not unit.is_cuda:
            yield from flags.cuda_includes(cuda)
        if unit.closure.reaches_cuda_libraries:
            yield from flags.library_includes(cuda, self._machine.lock)

    def _user_flags(self, unit: ExtensionUnit, given: tuple[str, ...]) -> tuple[str, ...]:
        """The user's flags, with a C++ standard that torch's headers take where they are read."""
        torch = unit.closure.reaches_torch
        words = user_flags.raised(given, self._machine.standard) if torch else given
        if any(flag.startswith(("-std", "--std")) for flag in words) or unit.path.endswith(".c"):
            return words
        # One for all releases of torch where torch is not read: so the object serves them all.
        return (*words, f"-std=c++{flags.standard(self.target) if torch else '20'}")

    def _compile_names(self) -> Action:
        text = self._actions.text(_NAMES, op_names.names_source(self._names))
        argv = (CXX, "-c", *_SHARED, _NAMES, "-o", OBJECT)
        return self._actions.add("op namespaces", argv, [text], (OBJECT,), self.target, kind="c++")

    # -- linking ---------------------------------------------------------------------------

    def link(self) -> Action:
        """The action that links the shared object."""
        extension = self._extension
        objects = [self._compile(unit) for unit in extension.units]
        if self._links_device:
            objects.append(self._device_link(objects))
        if self._names:
            objects.append(self._compile_names())
        names, inputs = flags.named_objects(self._actions, objects)
        if extension.linked:
            # No program reads it: other files on the same command line make another action.
            lines = "".join(f"{path} {identity}\n" for path, identity in extension.linked.items())
            inputs.append(self._actions.text("linked.txt", lines))
        libraries, stubs = self._libraries()
        words = (*names, *self._link_words(), *self._runtime(), *libraries)
        argv = (CXX, "-o", extension.file, *words)
        title = f"link {extension.file}"
        inputs = [*inputs, *stubs]
        return self._actions.add(title, argv, inputs, (extension.file,), self.target, kind="link")

    def _device_link(self, objects: list[Action]) -> Action:
        """Link device code that was compiled with ``-dc`` or ``-rdc=true``."""
        extension = self._extension
        self._compatibility_flags(("-dlink",), extension.file)
        names, inputs = flags.named_objects(self._actions, objects)
        given = [w for w in self._words(extension.dlink or ()) if w != "-dlink"]
        linked = [w for w in extension.ldflags if w.startswith("/") and w.endswith((".o", ".a"))]
        own = any("arch" in word for word in given)
        argv = (
            self._toolkit("bin/nvcc"),
            *("-dlink", "-Xcompiler", "-fPIC", f"-ccbin={CXX}"),
            *(() if own else user_flags.architecture_flags(self._cuda_flags)),
            *given,
            *names,
            *linked,
            *("-o", OBJECT),
        )
        title = f"device link {extension.file}"
        return self._actions.add(title, argv, inputs, (OBJECT,), self.target, kind="device link")

    def _libraries(self) -> tuple[tuple[str, ...], list[Input]]:
        """Libraries at the end of the link, and the stubs among them."""
        machine = self._machine
        needed = self._needed()
        if not machine.portable:
            stubs = abi_floor.empty_stubs(needed)
            inputs = flags.stubs(self._actions, stubs, self.target, of="torch")
            words = (f"{flags.STUB_DIR}/{stub.file}" for stub in stubs)
            return ("-shared", "-Wl,--no-as-needed", *words, "-Wl,--as-needed"), inputs
        floor = abi_floor.link_args(
            stub_dir=flags.STUB_DIR,
            backend="",
            libstdcxx_archive=machine.static_libstdcxx,
            needed=needed,
        )
        compiled = (*self._extension.cflags, *self._extension.cuda_cflags)
        if user_flags.debugs(compiled):
            floor = tuple(word for word in floor if word != _STRIP)
        return floor, flags.floor(self._actions, self.target, needed)

    def _needed(self) -> tuple[str, ...]:
        """Sonames that the module depends on, in load order."""
        extension, machine = self._extension, self._machine
        torch: tuple[str, ...] = ()
        if extension.with_torch:
            torch = tuple(s for s in machine.sonames if extension.has_cuda or "_cuda" not in s)
            torch += () if extension.limited_api else (_TORCH_PYTHON,)
        runtime = (machine.runtime,) if self._shares_runtime else ()
        named = [w.removeprefix("-l") for w in extension.ldflags if w.startswith("-l")]
        libraries = map(self._soname, named)
        return tuple(dict.fromkeys((*torch, *runtime, *filter(None, libraries))))

    @property
    def _shares_runtime(self) -> bool:
        """Whether the CUDA runtime is torch's."""
        return bool(self._extension.has_cuda and self._machine.runtime)

    def _runtime(self) -> tuple[str, ...]:
        """Libraries of the toolkit that become a part of the module."""
        device = (self._toolkit("lib64/libcudadevrt.a"),) if self._links_device else ()
        if not self._machine.cuda or not self._extension.has_cuda or self._shares_runtime:
            return device
        own = () if self._machine.portable else ("-ldl", "-lrt", "-lpthread")
        return (*device, self._toolkit("lib64/libcudart_static.a"), *own)

    def _link_words(self) -> Iterator[str]:
        """The user's words for the linker."""
        for word in self._extension.ldflags:
            if word.startswith("-L") and self._tree_of(word[2:]):
                continue
            if not self._machine.portable:
                yield word
                continue
            given = word[2:] in _PROVIDED or bool(self._soname(word[2:]))
            if word not in _LINK_IGNORED and not (word.startswith("-l") and given):
                yield word

    def _soname(self, name: str) -> str:
        """Soname of a library that a portable module takes from its process; else empty."""
        cuda = self._machine.torch_cuda or self._machine.cuda
        if not self._machine.portable or name not in abi_floor.CUDA_LIBRARIES:
            return ""
        versions = abi_floor.CUDA_LIBRARIES[name]
        return f"lib{name}.so.{versions[cuda is not None and cuda.major >= _CUDA_13]}"

    # -- paths -----------------------------------------------------------------------------

    def _words(self, words: Iterable[str]) -> tuple[str, ...]:
        """Flags with the toolchain's directories as an action names them."""
        return tuple(self._tree_of(word) or word for word in words)

    def _tree_of(self, path: str) -> str:
        """A path of the toolchain as an action names it; empty for any other."""
        for directory, tree in self._machine.trees:
            if path == directory or path.startswith(f"{directory}/"):
                return tree + path.removeprefix(directory)
        return ""

    def _toolkit(self, path: str) -> str:
        """A path in the toolkit."""
        if self._machine.cuda is None:
            raise AssertionError("a CUDA source was accepted without a toolkit")
        return Tree.of("cuda", self._machine.cuda).at(path)
