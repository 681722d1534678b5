# SPDX-License-Identifier: Apache-2.0
"""The plan of a module that is compiled while its user waits.

The flags are those of ``torch.utils.cpp_extension`` (2.13), so that a source compiles as it does
there. Two things differ. A unit that reads no header of torch is not given torch's search paths.
And nothing is linked against torch's libraries, which take the linker long to read and which the
process has loaded: empty libraries with the same names stand for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kernforge.artifact.variant import Backend, Variant
from kernforge.artifact.version import Version2
from kernforge.binary import abi_floor
from kernforge.builder.plan import flags, linking
from kernforge.builder.plan.graph import Action, ActionSet, Plan
from kernforge.builder.plan.linking import OBJECT
from kernforge.extension import flags as jit_flags
from kernforge.extension.device.units import CudaUnit, DeviceToolchain, ModulePlan
from kernforge.project.targets import Target
from kernforge.source import extension_source as generated
from kernforge.source.extension_source import CUDA_SUFFIXES
from kernforge.source.includes import Closure
from kernforge.system import digest
from kernforge.toolchain import front_end, tree_names
from kernforge.toolchain.lockfile import Lock, Tree

TORCH = "installed-torch"
"""Name of the tree of the installed torch."""
NVCC_FLAGS = (
    *("-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__"),
    *("-D__CUDA_NO_BFLOAT16_CONVERSIONS__", "-D__CUDA_NO_HALF2_OPERATORS__"),
    "--expt-relaxed-constexpr",
)
"""Flags of every CUDA source, as torch's."""
# A symbol that is unique in a process would be that of the first module that has it, also after an
# edit.
_SHARED = ("-fPIC", "-fno-gnu-unique")
_NAMES = "kernforge_names.cpp"
_MOST = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JitMachine:
    """What sources are compiled with and for.

    Attributes:
        sonames: torch's libraries in this process.
        runtime: soname of the CUDA runtime that torch has loaded into this process; empty if it
            loads none that fits the toolkit.
        archs: arguments for nvcc that say what to compile for.
        lock: the identities of compiler, headers and toolkit.
        cpu: as variant names spell it.
    """

    torch: Version2
    sonames: tuple[str, ...]
    cuda: Version2 | None
    archs: tuple[str, ...]
    lock: Lock
    cpu: str
    runtime: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JitToolchain(DeviceToolchain):
    """What sources of one kind are compiled with; ``machine`` is what planning takes of it."""

    machine: JitMachine


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleUnit:
    """A source with what it may read.

    Attributes:
        path: in the action's directory.
        texts: of every file that it may read, itself among them, by path.
    """

    path: str
    texts: Mapping[str, str]
    closure: Closure


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRequest:
    """A module that is to be planned.

    Paths in flags are absolute, or in the action's directory.

    Attributes:
        linked: files that the linker reads outside the action's directory -> their stamps.
        includes: search path in the action's directory.
        installed: search path outside it.
        with_cuda: whether to give C++ sources CUDA's headers.
        executable: make a program and not a module.
        taken: op namespaces that this process has from other builds.
    """

    name: str
    units: tuple[ModuleUnit, ...]
    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    linked: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    includes: tuple[str, ...] = ()
    installed: tuple[str, ...] = ()
    with_cuda: bool = False
    executable: bool = False
    taken: frozenset[str] = frozenset()

    @property
    def has_device(self) -> bool:
        """Whether there is device code."""
        return any(unit.path.endswith(CUDA_SUFFIXES) for unit in self.units)

    @property
    def names_arch(self) -> bool:
        """Whether a flag says what device code is compiled for."""
        return any("arch" in flag for flag in self.cuda_cflags)

    @property
    def reads_cuda_libraries(self) -> bool:
        """Whether a source may read headers of CUDA's libraries."""
        return any(unit.closure.reaches_cuda_libraries for unit in self.units)

    @property
    def reads_python(self) -> bool:
        """Whether a source may read Python's headers."""
        return any(unit.closure.reaches_python for unit in self.units)


def torch_target(
    torch: Version2, cuda: Version2 | None, cpu: str, toolkit: Version2 | None
) -> Target:
    """What is compiled by a toolkit for a torch with this CUDA, or for one of the CPU."""
    variant = Variant(
        framework="torch",
        version=torch,
        backend=Backend("cuda", cuda) if cuda else Backend("cpu"),
        cpu=cpu,
        os="linux",
        cxx11=True,
    )
    return Target(variant=variant, torch=torch, cuda=toolkit)


def plan_module(
    request: ModuleRequest, machine: JitMachine, objects: Mapping[str, Action] | None = None
) -> ModulePlan:
    """Plan a module; ``objects`` are linked in place of those of the units of these paths."""
    texts = [text for unit in request.units for text in unit.texts.values()]
    defined = generated.namespaces(texts)
    content = {p: digest.sha256(t) for unit in request.units for p, t in unit.texts.items()}
    argv = [*request.cflags, "", *request.cuda_cflags, "", *request.ldflags]
    cxx = machine.lock.compilers["cxx"].key
    suffix = digest.key("jit", files=content, flags=argv, cxx=cxx)[:10]
    written = {n: request.name if n == generated.EXTENSION_NAME else n for n in defined}
    actual = {n: _free_namespace(w, suffix, request.taken) for n, w in written.items()}
    planner = _ModulePlanner(request, machine, actual, objects or {})
    return planner.plan({written[n]: a for n, a in actual.items()})


def _free_namespace(name: str, suffix: str, taken: frozenset[str]) -> str:
    """A namespace that the process does not have: the name, or the name with a suffix."""
    if name not in taken:
        return name
    names = (f"{name}_{suffix}", *(f"{name}_{suffix}_{number}" for number in range(2, _MOST)))
    return next(name for name in names if name not in taken)


class _ModulePlanner:
    def __init__(
        self,
        request: ModuleRequest,
        machine: JitMachine,
        names: Mapping[str, str],
        objects: Mapping[str, Action],
    ) -> None:
        self._request, self._machine, self._names = request, machine, names
        self._objects = objects
        self._cuda: list[CudaUnit] = []
        archs = () if request.names_arch else machine.archs
        given = (*archs, *request.cuda_cflags)
        self._cuda_flags: tuple[str, ...] = given
        self._device_link_flags: tuple[str, ...] = ()
        self._relocatable = jit_flags.is_relocatable(given)
        if self._relocatable:
            self._cuda_flags, self._device_link_flags = jit_flags.at_device_link(given)
        self._actions = ActionSet(machine.lock)
        self._target = torch_target(machine.torch, machine.cuda, machine.cpu, machine.cuda)

    def plan(self, namespaces: Mapping[str, str]) -> ModulePlan:
        objects = [self._compile(unit) for unit in self._request.units]
        if self._relocatable and self._request.has_device:
            objects.append(self._link_device(objects))
        if self._names:
            objects.append(self._compile_names())
        link = self._link(objects)
        plan = Plan(
            actions=tuple(self._actions.by_key.values()),
            artifacts=(),
            texts=self._actions.texts,
            sources_id="",
        )
        return ModulePlan(
            plan=plan,
            link=link,
            namespaces=namespaces,
            cuda=tuple(self._cuda),
            target=self._target,
        )

    # -- compiling -------------------------------------------------------------------------

    def _compile(self, unit: ModuleUnit) -> Action:
        if action := self._objects.get(unit.path):
            self._actions.by_key[action.key] = action
            return action
        texts, named = self._texts(unit)
        inputs = [self._actions.text(path, text) for path, text in texts.items()]
        common = tuple(self._common(unit))
        included = ("-include", generated.NAMES_HEADER) if named else ()
        if unit.path.endswith(CUDA_SUFFIXES):
            argv = (*self._nvcc(), *included, *flags.for_nvcc(common), *self._cuda_flags)
            argv = (*argv, *self._standard_of(self._cuda_flags))
        else:
            plain = ("-c", *_SHARED, self._standard())
            argv = (tree_names.CXX, *included, *plain, *common, *self._request.cflags)
        whole = (*argv, unit.path, "-o", OBJECT)
        # Texts that lie nowhere are in no directory.
        title = f"/{unit.path}" if "/" in unit.path else unit.path
        action = self._actions.add(title, whole, inputs, (OBJECT,), self._target)
        if unit.path.endswith(CUDA_SUFFIXES):
            self._cuda.append(
                CudaUnit(
                    path=unit.path,
                    texts=texts,
                    foreign=unit.closure.foreign,
                    opaque=unit.closure.opaque,
                    action=action,
                )
            )
        return action

    def _texts(self, unit: ModuleUnit) -> tuple[dict[str, str], bool]:
        """The files of a unit, and whether some of them take op namespaces from the link."""
        defined = frozenset(self._names)
        texts = {path: generated.register(text, defined) for path, text in unit.texts.items()}
        named = any(texts[path] != unit.texts[path] for path in texts)
        if named:
            texts[generated.NAMES_HEADER] = generated.names_header(defined)
        return texts, named

    def _common(self, unit: ModuleUnit) -> Iterator[str]:
        """Definitions and search paths, for the host compiler."""
        if any(generated.EXTENSION_NAME in text for text in unit.texts.values()):
            yield f"-D{generated.EXTENSION_NAME}={self._request.name}"
        yield from (f"-I{directory}" for directory in self._request.includes)
        yield from (f"-I{directory}" for directory in self._request.installed)
        if unit.closure.reaches_torch or unit.closure.reaches_python:
            yield "-DTORCH_API_INCLUDE_EXTENSION_H"
            for below in ("include", "include/torch/csrc/api/include"):
                yield from ("-isystem", Tree(TORCH).at(below))
        if unit.closure.reaches_python:
            yield from ("-isystem", Tree("python").at())
        cuda = self._machine.cuda
        if not cuda:
            return
        if self._request.with_cuda and not unit.path.endswith(CUDA_SUFFIXES):
            yield from flags.cuda_includes(cuda)
        if unit.closure.reaches_cuda_libraries:
            yield from flags.library_includes(cuda, self._machine.lock)

    def _nvcc(self) -> tuple[str, ...]:
        toolkit = self._machine.lock.toolkit(self._machine.cuda)
        return (
            self._toolkit("bin/nvcc"),
            "-c",
            *NVCC_FLAGS,
            *front_end.nvcc_flags(toolkit, self._request.cuda_cflags, self._request.name),
            *("-Xcompiler", ",".join(_SHARED), f"-ccbin={tree_names.CXX}"),
            f"--threads={tree_names.THREADS}",
        )

    def _toolkit(self, path: str) -> str:
        """A path in the toolkit."""
        if self._machine.cuda is None:
            raise AssertionError("a CUDA source was accepted without a toolkit")
        return Tree.of("cuda", self._machine.cuda).at(path)

    def _standard(self) -> str:
        return f"-std=c++{flags.standard(self._target)}"

    def _standard_of(self, given: tuple[str, ...]) -> tuple[str, ...]:
        """Nvcc takes one standard only."""
        return (
            () if any(flag.startswith(("-std", "--std")) for flag in given) else (self._standard(),)
        )

    def _compile_names(self) -> Action:
        text = self._actions.text(_NAMES, generated.names_source(self._names))
        argv = (tree_names.CXX, "-c", *_SHARED, _NAMES, "-o", OBJECT)
        return self._actions.add("op namespaces", argv, [text], (OBJECT,), self._target)

    # -- linking ---------------------------------------------------------------------------

    def _link_device(self, objects: list[Action]) -> Action:
        """Complete device code that was compiled to be relocatable."""
        names, inputs = linking.named_objects(self._actions, objects)
        given = (w for w in self._request.ldflags if w.startswith("/") and w.endswith((".o", ".a")))
        argv = (
            *(
                self._toolkit("bin/nvcc"),
                "-dlink",
                "-Xcompiler",
                "-fPIC",
                f"-ccbin={tree_names.CXX}",
            ),
            *(*self._device_link_flags, *names, *given, "-o", OBJECT),
        )
        title = f"device link {self._request.name}"
        return self._actions.add(title, argv, inputs, (OBJECT,), self._target)

    def _link(self, objects: list[Action]) -> Action:
        names, inputs = linking.named_objects(self._actions, objects)
        if stamps := self._request.linked:
            # No program reads it: other files on the same command line make another action.
            lines = (f"{path} {' '.join(map(str, stamp))}\n" for path, stamp in stamps.items())
            inputs.append(self._actions.text("linked.txt", "".join(lines)))
        libraries: tuple[str, ...]
        cuda = self._machine.cuda if self._request.with_cuda else None
        shares = bool(cuda and self._machine.runtime and not self._request.executable)
        if self._request.executable:
            below = Tree(TORCH).at("lib")
            named = (s.removeprefix("lib").removesuffix(".so") for s in self._machine.sonames)
            wanted = (f"-l{name}" for name in named if name != "torch_python")
            libraries = (f"-L{below}", *wanted)
        else:
            # One runtime for all modules, as with torch's loader.
            shared = (self._machine.runtime,) if shares else ()
            stubs = abi_floor.empty_stubs((*self._machine.sonames, *shared))
            inputs += linking.stubs(self._actions, stubs, self._target, of="torch")
            libraries = tuple(f"{linking.STUB_DIR}/{stub.file}" for stub in stubs)
            libraries = ("-shared", "-Wl,--no-as-needed", *libraries, "-Wl,--as-needed")
        runtime: tuple[str, ...] = ()
        if cuda and not shares:
            runtime = (
                f"-L{self._toolkit('lib64')}",
                "-lcudart_static",
                "-ldl",
                "-lrt",
                "-lpthread",
            )
        if self._relocatable and self._request.has_device:
            runtime = (self._toolkit("lib64/libcudadevrt.a"), *runtime)
        output = self._request.name + ("" if self._request.executable else ".so")
        argv = (tree_names.CXX, *names, *self._request.ldflags, *libraries, *runtime, "-o", output)
        return self._actions.add(f"link {output}", argv, inputs, (output,), self._target)
