# SPDX-License-Identifier: Apache-2.0
"""Compile the extensions of a setup.py: read sources, plan, run what the store lacks."""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kernforge.binary import elf
from kernforge.builder.action import ActionContext
from kernforge.errors import BuildError
from kernforge.extension import flags, make
from kernforge.extension import machine as jit_machine
from kernforge.extension.device.units import ModulePlan
from kernforge.extension.loading import undefined_error
from kernforge.extension.plan import Extension, ExtensionNeeds
from kernforge.extension.request import Tree, read_extension
from kernforge.project import git
from kernforge.setuptools import machine
from kernforge.setuptools.target import find_target
from kernforge.store.local import Store
from kernforge.system.console import Console
from kernforge.system.environment import Environment
from kernforge.system.process import run

_log = logging.getLogger("kernforge")
_ABOVE = 2
_MISSING = re.compile(r"fatal error: ([^\s:]+): No such file")


def build_extensions(
    requests: Sequence[Extension], environment: Environment, console: Console
) -> dict[str, Path]:
    """Compile extensions for the target of the environment.

    Returns:
        The shared object in the store of each extension, by its name.

    Raises:
        BuildError: a compiler failed, or a function that is called is not defined.
        NetworkError: a part of the toolchain is lacking, and no index can be reached.
        ToolchainError: a compiler, a toolkit or Python's headers are missing.
        UsageError: a source is not there or in a language that is not compiled here.
    """
    if not requests:
        return {}
    wanted = find_target(environment)
    # Behind a stub, whoever started this has said it.
    why = "" if environment.kernforge_stand_in else wanted.why
    console.note(f"building for {wanted} ({why})" if why else f"building for {wanted}")
    installed = machine.installed_directories(environment)
    trees = [project_tree(request, installed) for request in requests]
    asked = [with_variables(request, environment.variables) for request in requests]
    read = [read_extension(*each) for each in zip(asked, trees, strict=True)]
    needs = ExtensionNeeds.of(read)
    if needs.cuda and wanted.cuda is None:
        cuda = machine.toolkit_version(wanted)
        console.note(
            "note: this torch is a build for the CPU, and setup.py has CUDA sources: what is "
            "compiled of them runs on no GPU, and cannot be imported if it calls torch's CUDA "
            "functions. To build for a torch with CUDA, name it: "
            f"KERNFORGE_TORCH={wanted.torch} KERNFORGE_CUDA={cuda} (`kernforge pip` has --torch "
            "and --cuda)"
        )
    restore = trees[0].restore
    toolchain = machine.find_toolchain(wanted, needs, environment, console)
    context = ActionContext(
        store=toolchain.store,
        trees=toolchain.trees,
        runner=run,
        jobs=jit_machine.jobs(environment),
        compiles=environment.may_compile,
    )
    try:
        planned, ran = make.compile_extensions(
            read,
            toolchain,
            context,
            console,
            environment=environment,
            restore=restore,
            retry_note=_log.info,
        )
    except BuildError as error:
        missing = _MISSING.search(error.message)
        if missing and (empty := git.empty_submodules(Path(requests[0].here))):
            error.hint = (
                f"git did not fetch {', '.join(empty)}, which may have {missing[1]}: "
                f"`git submodule update --init`\n{error.hint}"
            )
        raise
    count = max(ran, len(planned[0].plan.actions))
    console.note(f"{ran} of {count} actions were run, the rest came from the store")
    return {
        extension.name: _linked(extension, module, toolchain.store, restore)
        for extension, module in zip(read, planned, strict=True)
    }


def project_tree(request: Extension, installed: tuple[str, ...]) -> Tree:
    """The files of a project, whose setup.py may lie below the paths that it names."""
    here = base = request.here
    for path in (flags.absolute(each, here) for each in (*request.sources, *request.includes)):
        above = here
        for _ in range(_ABOVE):
            above = posixpath.dirname(above)
            if above.count("/") > 1:
                inside = flags.is_below(path, [above]) and not flags.is_below(path, [base])
                base = above if inside else base
    return Tree({}, here, installed, base)


def with_variables(request: Extension, variables: Mapping[str, str]) -> Extension:
    """An extension with what ``CFLAGS`` and the like say.

    Raises:
        UsageError: one of them cannot be read.
    """

    def words(*names: str) -> tuple[str, ...]:
        return flags.words([variables.get(name, "") for name in names])

    return replace(
        request,
        cflags=(*words("CPPFLAGS", "CFLAGS", "CXXFLAGS"), *request.cflags),
        cuda_cflags=(*request.cuda_cflags, *words("NVCC_APPEND_FLAGS")),
        ldflags=(*words("LDFLAGS"), *request.ldflags),
    )


def _linked(
    extension: Extension, module: ModulePlan, store: Store, restore: Callable[[str], str]
) -> Path:
    """An extension's shared object, after a look for functions that nothing defines."""
    path = make.module_path(module, store)
    texts = {restore(name): text for unit in extension.units for name, text in unit.texts.items()}
    library = elf.parse(path.read_bytes())
    if error := undefined_error(extension.name, library, texts, "its list of sources"):
        raise error
    return path
