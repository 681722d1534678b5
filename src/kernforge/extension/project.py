# SPDX-License-Identifier: Apache-2.0
"""Build a kernel project for this process's torch and GPU, and load it.

The plan is that of ``kernforge build``. For an edit of device code, only that code is compiled, as
for an edit of sources (``device.swap``): its object replaces nvcc's in the plan, and all that comes
after is as for any build.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from kernforge.binary import elf
from kernforge.builder import api as build, from_source
from kernforge.builder.api import BuildRequest
from kernforge.builder.workspace import Workspace, open_workspace
from kernforge.errors import BuildError
from kernforge.extension import machine
from kernforge.extension.device import nvcc_stages
from kernforge.extension.device.swap import replace_edited
from kernforge.extension.loading import missing_symbol, undefined_error
from kernforge.extension.session import JitSession
from kernforge.loader import host
from kernforge.loader.api import get_local_kernel
from kernforge.manifest.model import TvmFfi
from kernforge.project import api as project_api
from kernforge.project.api import Project
from kernforge.system.console import Console
from kernforge.toolchain.local_parts import LocalParts

_CODE = (".cpp", ".cc", ".cxx", ".c", ".cu", ".h", ".hpp", ".hh", ".hxx", ".cuh")
_FOR_CPU = "start the process with no GPU to be seen (CUDA_VISIBLE_DEVICES=)"


def load_project(session: JitSession, directory: Path, *, verbose: bool = False) -> ModuleType:
    """Build the project that holds a directory, and import it, unless it is loaded and unchanged.

    Args:
        directory: the project's root, or a directory in it.
        verbose: say what is compiled, on stderr.
    """
    project = project_api.read_project(project_api.find(directory))
    if not isinstance(project.manifest.framework, TvmFfi):
        machine.import_torch()  # without it, the error would be that no variant fits
    # Copies of a project with the same sources are laid out in the same directory.
    with session.lock_for("project", project.manifest.general.name):
        variant = _build_variant(session, project, Console(quiet=not verbose, failures=False))
        return _import_variant(project, variant)


def _import_variant(project: Project, variant: Path) -> ModuleType:
    try:
        return get_local_kernel(variant)
    except ImportError as error:
        if undefined := _undefined_error(project, variant, str(error)):
            raise undefined from error
        raise


def _undefined_error(project: Project, variant: Path, message: str) -> BuildError | None:
    """Error of an undefined function; None for another reason."""
    missing = missing_symbol(message)
    if not missing:
        return None
    texts = {
        name: path.read_text(encoding="utf-8", errors="replace")
        for name, path in project.files.items()
        if name.endswith(_CODE)
    }
    (library,) = variant.rglob("*.so")
    where = "build.toml's src, for this backend too"
    name = project.manifest.general.name
    return undefined_error(name, elf.parse(library.read_bytes()), texts, where, missing=missing)


# -- building ------------------------------------------------------------------------------


def _build_variant(session: JitSession, project: Project, console: Console) -> Path:
    """The project's variant for this process, built if need be.

    With what the lock names, or, if that is not available, with the headers of this machine's torch
    and the compilers of the installed toolkit.
    """

    def make(parts: LocalParts) -> Path:
        cxx = machine.find_compiler(session.environment)
        workspace = open_workspace(project, console, session.environment, parts, cxx=cxx)
        return _build(session, workspace, console)

    return from_source.with_installed(make, host.probe_to_load(), session.environment)


def _build(session: JitSession, workspace: Workspace, console: Console) -> Path:
    root, process = workspace.project.root, host.probe_to_load()
    target = from_source.fitting_target(workspace, process, str(root), for_cpu=_FOR_CPU)
    capability = host.with_device(process).capability
    request = BuildRequest(
        targets=(target,),
        events=console,
        only=(str(capability),) if capability and target.cuda else (),
        sandbox="off",
        jobs=machine.jobs(session.environment),
        runner=nvcc_stages.run_stages,
        edited=functools.partial(replace_edited, session.device),
    )
    planned = build.plan_project(workspace, request)
    (artifact,) = planned.plan.artifacts
    # A directory of its own for each state of the sources: what a process has loaded stays.
    name = f"{artifact.ops_name}-{planned.plan.sources_id[:16]}"
    request = replace(request, out=session.environment.home / "jit" / "projects" / name)
    result = build.build_project(workspace, request, planned)
    if failures := result.outcome.failures:
        texts = "\n".join(failure.text() for failure in failures)
        raise BuildError(f"{target.name} could not be built\n{texts}")
    return result.variants[target.name]
