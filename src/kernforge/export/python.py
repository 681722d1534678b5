# SPDX-License-Identifier: Apache-2.0
"""The pyproject.toml and setup.py of a project, for pip and setuptools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kernforge.manifest.model import Torch, TorchNoarch, TvmFfi
from kernforge.project import units

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernforge.manifest.document import Manifest

# Distributions of names in python-depends, if they have another name.
_DISTRIBUTIONS = {"tvm-ffi": "apache-tvm-ffi", "onednn": "onednn-devel"}
_NOARCH_TORCH = "torch>=2.8"

_SETUP = '''"""Written by `kernforge export`: builds the extension with CMake where pip wants it."""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
PACKAGE = "@PACKAGE@"


class CMakeBuild(build_ext):
    """CMake decides the extension's name, so setuptools' own copying of files is left out."""

    def run(self):
        here = self.inplace or getattr(self, "editable_mode", False)
        where = ROOT / PACKAGE if here else Path(self.build_lib).resolve() / Path(PACKAGE).name
        build = Path(self.build_temp).resolve()
        configure = ["cmake", "-S", str(ROOT), "-B", str(build)]
        configure += [f"-DPython3_EXECUTABLE={sys.executable}", "-DCMAKE_BUILD_TYPE=Release"]
        configure += [f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={where}"]
        configure += os.environ.get("CMAKE_ARGS", "").split()
        jobs = os.environ.get("MAX_JOBS") or str(len(os.sched_getaffinity(0)))
        subprocess.run(configure, check=True)
        subprocess.run(["cmake", "--build", str(build), "--parallel", jobs], check=True)

    def get_outputs(self):
        return []

    def get_output_mapping(self):
        return {}


setup(
    ext_modules=[Extension("@NAME@._kernel", sources=[], py_limited_api=@LIMITED@)],
    cmdclass={"build_ext": CMakeBuild},
    options=@OPTIONS@,
)
'''
_SETUP_NOARCH = '''"""Written by `kernforge export`: there is nothing to compile."""

from setuptools import setup

setup()
'''


def pyproject(manifest: Manifest) -> str:
    """Text of pyproject.toml."""
    general, noarch = manifest.general, isinstance(manifest.framework, TorchNoarch)
    folder = units.package_dir(manifest).partition("/")[0]
    data = [f"**/*.{extension}" for extension in ("pyi", *manifest.framework.data_extensions)]
    build = ["setuptools>=77"]
    build += [] if noarch else ["cmake>=3.26", "ninja", _framework(manifest)]
    lines = [
        "# Written by `kernforge export`.",
        "[build-system]",
        f"requires = {_list(build)}",
        'build-backend = "setuptools.build_meta"',
        "",
        "[project]",
        f"name = {json.dumps(general.name)}",
        f'version = "{general.version}.0.0"',
        'requires-python = ">=3.9"',
        f"dependencies = {_list([_framework(manifest), *_named(general.python_depends)])}",
    ]
    extras = {b: general.python_depends_for(b) for b in general.backends}
    own_depends = {b: names[len(general.python_depends) :] for b, names in extras.items()}
    if any(own_depends.values()):
        lines += ["", "[project.optional-dependencies]"]
        lines += [
            f"{backend} = {_list(_named(names))}" for backend, names in own_depends.items() if names
        ]
    lines += [
        "",
        "[tool.setuptools]",
        f'package-dir = {{ "" = {json.dumps(folder)} }}',
        "include-package-data = false",
        "",
        "[tool.setuptools.packages.find]",
        f"where = [{json.dumps(folder)}]",
        f"include = {_list([general.python_name, f'{general.python_name}.*'])}",
        "",
        "[tool.setuptools.package-data]",
        f'"*" = {_list(data)}',
        "",
        "[tool.pytest.ini_options]",
        'markers = ["kernels_ci: a test that the continuous integration of kernels runs"]',
    ]
    return "\n".join(lines) + "\n"


def setup(manifest: Manifest) -> str:
    """Text of setup.py."""
    if isinstance(manifest.framework, TorchNoarch):
        return _SETUP_NOARCH
    torch = isinstance(manifest.framework, Torch)
    return (
        _SETUP.replace("@PACKAGE@", units.package_dir(manifest).rstrip("/"))
        .replace("@NAME@", manifest.general.python_name)
        .replace("@LIMITED@", str(torch))
        .replace("@OPTIONS@", '{"bdist_wheel": {"py_limited_api": "cp39"}}' if torch else "{}")
    )


def _framework(manifest: Manifest) -> str:
    """The requirement of a project's framework."""
    framework = manifest.framework
    if isinstance(framework, TvmFfi):
        return "apache-tvm-ffi>=0.1"
    if isinstance(framework, TorchNoarch):
        return _NOARCH_TORCH
    return f"torch>={framework.minver}" if framework.minver else "torch"


def _named(names: Iterable[str]) -> list[str]:
    return [_DISTRIBUTIONS.get(name, name) for name in names]


def _list(parts: Iterable[str]) -> str:
    return "[" + ", ".join(json.dumps(part) for part in parts) + "]"
