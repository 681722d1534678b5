# SPDX-License-Identifier: Apache-2.0
"""The actions that make a loadable module of objects: stubs, the ABI floor's extras, the link."""

from __future__ import annotations

from collections.abc import Sequence

from kernforge.binary import abi_floor
from kernforge.builder import flags
from kernforge.builder.graph import Action, ActionSet, Input
from kernforge.project.targets import Target
from kernforge.source import op_namespace
from kernforge.toolchain.lockfile import Tree

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
    argv = (flags.cxx_of(target), "-o", output, *names, *runtime, *link_args)
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
    cxx = flags.cxx_of(target)
    argv = (cxx, *flags.cxx("17"), op_namespace.SOURCE, "-o", OBJECT)
    return actions.add(f"namespace {ops_name}", argv, [text], (OBJECT,), target, kind="c++")


def floor(actions: ActionSet, target: Target, needed: Sequence[str]) -> list[Input]:
    """What a link finds of the ABI floor, and of the libraries that are needed."""
    compat = actions.add(  # what newer headers need in addition to the floor's libraries
        "the ABI floor's extras",
        abi_floor.compat_argv(flags.cxx_of(target)),
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
    argv = (SHELL, "-eu", _SCRIPT, flags.cxx_of(target))
    files = tuple(library.file for library in libraries)
    action = actions.add(f"stubs of {of}", argv, inputs, files, target, kind="stubs")
    return [actions.output(action, file, f"{STUB_DIR}/{file}") for file in files]
