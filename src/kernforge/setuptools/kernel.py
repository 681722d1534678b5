# SPDX-License-Identifier: Apache-2.0
"""Kernel project (build.toml) as a setuptools package: pip builds what ``kernforge build`` builds.

The setup.py that ``kernforge export`` writes calls ``kernel_project``. The variant is the one that
fits the torch that is installed; ``KERNFORGE_TORCH`` and ``KERNFORGE_CUDA`` (a version, or ``cpu``)
name another one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import setuptools
from setuptools import errors
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

from kernforge.artifact.variant import Backend
from kernforge.builder import api as build, from_source
from kernforge.builder.api import BuildRequest
from kernforge.builder.workspace import Workspace, open_workspace, this_cpu
from kernforge.errors import KernforgeError
from kernforge.loader.host import Host
from kernforge.manifest.model import Torch, TorchNoarch
from kernforge.project import units
from kernforge.project.api import read_project
from kernforge.project.targets import Target
from kernforge.setuptools.stub import build_console
from kernforge.setuptools.target import TorchTarget, find_target
from kernforge.system import files
from kernforge.system.environment import Environment
from kernforge.toolchain.releases import TVM_FFI

_GENERATED = ("_ops.py", "*.so")
_PACKAGE = "kernel_package"


def kernel_project(setup_file: str | os.PathLike[str]) -> dict[str, Any]:
    """Arguments of ``setup`` for the kernel project of a setup.py.

    Args:
        setup_file: ``__file__`` of the setup.py.

    Raises:
        ManifestError: build.toml has a mistake.
    """
    manifest = read_project(Path(setup_file).resolve().parent).manifest
    if isinstance(manifest.framework, TorchNoarch):
        return {"cmdclass": {"build_py": _BuildPython}}
    limited = isinstance(manifest.framework, Torch)
    name = f"{manifest.general.python_name}._kernel"
    return {
        "ext_modules": [setuptools.Extension(name, [], py_limited_api=limited)],
        "cmdclass": {"build_ext": _BuildKernel},
        "options": {"bdist_wheel": {"py_limited_api": "cp39"}} if limited else {},
    }


class _BuildKernel(build_ext):
    """``build_ext``: the build decides the extension's name, so setuptools copies nothing."""

    def run(self) -> None:
        here = self.inplace or getattr(self, "editable_mode", False)
        build_into_package(Path(self.build_temp), None if here else Path(self.build_lib))

    def get_outputs(self) -> list[str]:
        return []

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class _BuildPython(build_py):
    """``build_py`` of a project of Python alone, with its ``_ops.py``."""

    def run(self) -> None:
        super().run()
        here = getattr(self, "editable_mode", False)
        build_into_package(
            Path(self.build_lib).parent / _PACKAGE, None if here else Path(self.build_lib)
        )


def build_into_package(work: Path, build_lib: Path | None) -> None:
    """Build the project of the current directory, and copy the generated files to its package.

    Args:
        build_lib: parent of the package; None for the source directory.
    """
    environment = Environment.read()
    console = build_console(environment)
    project = read_project(Path.cwd())
    package = Path(units.package_dir(project.manifest))
    try:
        workspace = open_workspace(project, console, environment)
        matching = _matching_target(workspace, find_target(environment))
        request = BuildRequest(
            targets=(matching,), events=console, out=work.absolute() / "variants"
        )
        result = build.build_project(workspace, request)
        result.refuse_failures()
    except KernforgeError as error:
        # setuptools ends with its message and without a traceback.
        raise errors.CompileError(str(error)) from error
    place = package if build_lib is None else build_lib / package.name
    for pattern in _GENERATED:
        for path in sorted(result.variants[matching.name].glob(pattern)):
            files.make_dir(place)
            files.copy_atomic(path, place / path.name)


def _matching_target(workspace: Workspace, wanted: TorchTarget) -> Target:
    """The variant that a loader selects for a torch; a CPU variant if the project has no CUDA."""
    general = workspace.project.manifest.general
    cuda = wanted.cuda if "cuda" in general.backends else None
    host = Host(
        cpu=this_cpu(),
        os="linux",
        backend=Backend("cuda", cuda) if cuda else Backend("cpu"),
        torch=wanted.torch,
        cxx11=True,
        tvm_ffi=TVM_FFI,
    )
    return from_source.fitting_target(
        workspace, host, general.name, for_cpu="set KERNFORGE_CUDA=cpu"
    )
