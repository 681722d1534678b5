# SPDX-License-Identifier: Apache-2.0
"""Flags of every compiler, for every kind of target; and the actions that link its objects.

The set equals what kernel-builder's CMake files and torch's own give a unit, so that a project
compiles the same from both tools.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernforge.artifact.version import Version2
from kernforge.binary import abi_floor
from kernforge.builder.graph import Action, ActionSet, Input
from kernforge.project.targets import Target
from kernforge.source import op_namespace
from kernforge.toolchain.lockfile import THREADS, Lock, Tree

PYTHON_LIMITED_API = "-DPy_LIMITED_API=0x03090000"
# From this release on torch's headers are compiled as C++20; 2.14 and later demand it.
_CXX20_SINCE = Version2(2, 12)

# Or GCC writes the shorter of a header's two paths: the one it was given or the one behind links.
_AS_NAMED = "-fno-canonical-system-headers"
# Intermediate files get their names from the source and not from nvcc's process number.
_NVCC_STEADY = ("--keep", "--keep-dir=../tmp")
_OPTIMISE = ("-O3", "-DNDEBUG")
_BACKEND_DEFINES = {"cpu": "-DCPU_KERNEL", "cuda": "-DCUDA_KERNEL"}
# What torch's own cmake target defines for everything that links to it.
_TORCH_DEFINES = ("-DUSE_DISTRIBUTED", "-DUSE_C10D_GLOO", "-DUSE_RPC", "-DUSE_TENSORPIPE")
_TORCH_CUDA_DEFINES = ("-DUSE_C10D_NCCL",)
# From this toolkit on the C++ core libraries have a directory of their own.
_CCCL_SINCE = Version2(13, 0)
# Torch's cmake files and cpp_extension give these to every CUDA unit; rotary, for one, does not
# compile without extended lambdas.
NVCC_DEFINES = ("-DONNX_NAMESPACE=onnx_c2", "-DENABLE_FP8")
_NVCC = ("--expt-relaxed-constexpr", "--expt-extended-lambda", *NVCC_DEFINES)
# Diagnostics that torch's own headers raise.
_NVCC_QUIET = (
    "cc_clobber_ignored",
    "field_without_dll_interface",
    "base_class_has_different_dll_interface",
    "dll_interface_conflict_none_assumed",
    "dll_interface_conflict_dllexport_assumed",
    "bad_friend_decl",
)


def standard(target: Target) -> str:
    """C++ standard of the units of a target that read torch's headers, as ``"20"``.

    A stable-ABI build keeps to its oldest torch at run time, but the reference builder compiles
    it against its newest, as C++20.
    """
    if target.variant.framework == "tvm-ffi":
        return "17"
    if target.variant.framework == "torch-stable-abi":
        return "20"
    return "20" if target.torch and target.torch >= _CXX20_SINCE else "17"


def shared_standard(newest_torch: Version2 | None) -> str:
    """C++ standard of the units that read no torch header, one for all targets of a project.

    It must not follow the target's torch: the same result is to serve every torch. What builds
    for a torch of C++20 is C++20; only a project that stops before is C++17.

    Args:
        newest_torch: the manifest's upper bound; None when it has none.
    """
    return "17" if newest_torch and newest_torch < _CXX20_SINCE else "20"


def defines(target: Target, ops_name: str | None) -> tuple[str, ...]:
    """Definitions for every unit of a target.

    Args:
        ops_name: the op namespace; None for a unit that does not mention it, so that its result
            serves every build.
    """
    words = [_BACKEND_DEFINES[target.backend]]
    if target.variant.framework == "tvm-ffi":
        words += [f"-DTVM_FFI_EXTENSION_NAME={ops_name}"] if ops_name else []
        return tuple(words)
    words = [*(["-DUSE_CUDA=1"] if target.cuda else []), *words, PYTHON_LIMITED_API]
    words += [f"-DTORCH_EXTENSION_NAME={ops_name}"] if ops_name else []
    return tuple(words)


def cuda_includes(version: Version2) -> tuple[str, ...]:
    """Search paths of a toolkit's headers, for the host compiler."""
    toolkit = Tree.of("cuda", version)
    below = ("include", "include/cccl") if version >= _CCCL_SINCE else ("include",)
    return tuple(part for path in below for part in ("-isystem", toolkit.at(path)))


def library_includes(version: Version2, lock: Lock) -> tuple[str, ...]:
    """Search path of the headers of CUDA's libraries; an installed toolkit has them itself."""
    if lock.toolkit(version).digest:
        return ()
    return ("-isystem", Tree.of("cuda-libraries", version).at("include"))


def stable_target(oldest: Version2) -> str:
    """The definition that hides what the oldest torch of a stable-ABI build does not have."""
    return f"TORCH_TARGET_VERSION=0x{(oldest.major << 56) | (oldest.minor << 48):016x}"


def torch_includes(target: Target) -> tuple[str, ...]:
    """Search paths of torch's headers, and the definitions that torch's own cmake adds."""
    if target.torch is None:
        return ()
    trees = [Tree.of("torch", target.torch, target.cross_cpu)]
    if target.borrows_cuda_headers:  # of this machine's wheel; its others come second
        trees.append(Tree.of("torch", target.torch))
    return (
        *_TORCH_DEFINES,
        *(_TORCH_CUDA_DEFINES if target.cuda else ()),
        *(part for tree in trees for part in tree_includes(tree)),
    )


def tree_includes(tree: Tree) -> tuple[str, ...]:
    """Search paths of a torch's headers; the prefix map keeps their path out of ``__FILE__``."""
    return (
        "-isystem",
        tree.at("include"),
        "-isystem",
        tree.at("include/torch/csrc/api/include"),
        f"-fmacro-prefix-map={tree.at()}=torch",
    )


def cxx_of(target: Target) -> str:
    """The C++ compiler of a target as an argv writes it."""
    return Tree("cxx", cpu=target.cross_cpu).at()


def cxx(cxx_standard: str) -> tuple[str, ...]:
    """Flags of every C++ unit."""
    return ("-c", f"-std=gnu++{cxx_standard}", *_OPTIMISE, "-fPIC", "-fno-gnu-unique", _AS_NAMED)


def nvcc(target: Target, cxx_standard: str) -> tuple[str, ...]:
    """Flags of every CUDA unit, without its architectures."""
    quiet = ("-Xcudafe", ",".join(f"--diag_suppress={name}" for name in _NVCC_QUIET))
    return (
        "-c",
        f"-std=c++{cxx_standard}",
        *_OPTIMISE,
        *(() if target.variant.framework == "tvm-ffi" else (*_NVCC, *quiet)),
        "-Xcompiler",
        f"-fPIC,-fno-gnu-unique,{_AS_NAMED}",
        *_NVCC_STEADY,
        f"-ccbin={cxx_of(target)}",
        f"--threads={THREADS}",
    )


_PREFIX_MAPS = ("-fmacro-prefix-map", "-fdebug-prefix-map")


def for_nvcc(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """The same arguments, with those that only the host compiler knows handed on to it."""
    return tuple(
        f"-Xcompiler={argument}" if argument.startswith(_PREFIX_MAPS) else argument
        for argument in arguments
    )


OBJECT = "out.o"
"""The output of every compile action."""
STUB_DIR = "stubs"
SHELL = "/bin/sh"
"""The only program of an action that is not part of a toolchain: every Linux has it there."""
_SCRIPT = "stubs.sh"


def link(
    actions: ActionSet,
    target: Target,
    ops_name: str,
    objects: Sequence[Action],
    *,
    static_libstdcxx: bool,
) -> Action:
    """Link a target's objects."""
    tvm_ffi = target.variant.framework == "tvm-ffi"
    output = f"{ops_name}.so" if tvm_ffi else f"{ops_name}.abi3.so"
    needed = abi_floor.TVM_FFI if tvm_ffi else abi_floor.torch_sonames(target.backend)
    names, inputs = named_objects(actions, objects)
    inputs += floor(actions, target, needed)
    runtime: tuple[str, ...] = ()
    if target.cuda and target.cross:  # a toolkit has the runtime of its own machine alone
        tree = Tree.of("cudart", target.cuda, target.cross_cpu)
        runtime = (tree.at("lib/libcudart_static.a"),)
    elif target.cuda:
        runtime = (Tree.of("cuda", target.cuda).at("lib64/libcudart_static.a"),)
    link_args = abi_floor.link_args(
        stub_dir=STUB_DIR,
        backend=target.backend,
        libstdcxx_archive=static_libstdcxx,
        needed=needed,
    )
    argv = (cxx_of(target), "-o", output, *names, *runtime, *link_args)
    return actions.add(f"link {target.name}", argv, inputs, (output,), target, kind="link")


def named_objects(
    actions: ActionSet, objects: Sequence[Action]
) -> tuple[tuple[str, ...], list[Input]]:
    """The names that objects have in the directory of a link, and the objects."""
    names = tuple(f"objects/{number}.o" for number in range(len(objects)))
    return names, [actions.output(o, OBJECT, n) for o, n in zip(objects, names, strict=True)]


def namespace(actions: ActionSet, target: Target, ops_name: str) -> Action:
    """Compile the object that holds a build's op namespace."""
    text = actions.text(op_namespace.SOURCE, op_namespace.source(ops_name))
    argv = (cxx_of(target), *cxx("17"), op_namespace.SOURCE, "-o", OBJECT)
    return actions.add(f"namespace {ops_name}", argv, [text], (OBJECT,), target, kind="c++")


def floor(actions: ActionSet, target: Target, needed: Sequence[str]) -> list[Input]:
    """What a link finds of the ABI floor, and of the libraries that are needed."""
    compat = actions.add(  # what newer headers need in addition to the floor's libraries
        "the ABI floor's extras",
        abi_floor.compat_argv(cxx_of(target)),
        [actions.text(abi_floor.COMPAT_SOURCE, abi_floor.compat_source())],
        (abi_floor.COMPAT_OBJECT,),
        target,
        kind="c++",
    )
    path = f"{STUB_DIR}/{abi_floor.COMPAT_OBJECT}"
    return [
        actions.output(compat, abi_floor.COMPAT_OBJECT, path),
        *stubs(actions, abi_floor.system_stubs(target.variant.cpu), target, of="the ABI floor"),
        *stubs(actions, abi_floor.empty_stubs(needed), target, of=", ".join(needed)),
    ]


def stubs(
    actions: ActionSet, libraries: Sequence[abi_floor.StubLibrary], target: Target, *, of: str
) -> list[Input]:
    """What a link finds in the place of libraries that the loading process has.

    One action makes them all: each takes less time than the start of a sandbox.
    """
    texts = {_SCRIPT: abi_floor.stubs_script(libraries)}
    for library in libraries:
        texts |= library.texts
    inputs = [actions.text(path, text) for path, text in texts.items()]
    argv = (SHELL, "-eu", _SCRIPT, cxx_of(target))
    files = tuple(library.file for library in libraries)
    action = actions.add(f"stubs of {of}", argv, inputs, files, target, kind="stubs")
    return [actions.output(action, file, f"{STUB_DIR}/{file}") for file in files]
