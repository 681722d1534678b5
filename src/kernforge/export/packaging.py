# SPDX-License-Identifier: Apache-2.0
"""The pyproject.toml and setup.py of a project: pip builds what ``kernforge build`` builds."""

from __future__ import annotations

import json
from collections.abc import Iterable

from kernforge.manifest.document import Manifest
from kernforge.manifest.model import TorchNoarch, TvmFfi
from kernforge.project import units

# Distributions of names in python-depends, if they have another name.
_DISTRIBUTIONS = {"tvm-ffi": "apache-tvm-ffi", "onednn": "onednn-devel"}
SETUP = '''\
"""Written by `kernforge export`: builds the project for the torch that is installed."""

from kernforge.setuptools import kernel_project
from setuptools import setup

setup(**kernel_project(__file__))
'''


def pyproject(manifest: Manifest) -> str:
    """Text of pyproject.toml."""
    general = manifest.general
    folder = units.package_dir(manifest).partition("/")[0]
    data = [f"**/*.{extension}" for extension in ("pyi", *manifest.framework.data_extensions)]
    extras = {b: general.python_depends_for(b) for b in general.backends}
    own = {b: names[len(general.python_depends) :] for b, names in extras.items()}
    optional = [f"{backend} = {_list(_named(names))}" for backend, names in own.items() if names]
    return f"""# Written by `kernforge export`.
[build-system]
requires = ["setuptools>=77", "kernforge[build]"]
build-backend = "setuptools.build_meta"

[project]
name = {json.dumps(general.name)}
version = "{general.version}.0.0"
requires-python = ">=3.9"
dependencies = {_list([_framework(manifest), *_named(general.python_depends)])}
{chr(10).join(["", "[project.optional-dependencies]", *optional, ""]) if optional else ""}
[tool.setuptools]
package-dir = {{ "" = {json.dumps(folder)} }}
include-package-data = false

[tool.setuptools.packages.find]
where = [{json.dumps(folder)}]
include = {_list([general.python_name, f"{general.python_name}.*"])}

[tool.setuptools.package-data]
"*" = {_list(data)}
"""


def _framework(manifest: Manifest) -> str:
    """The requirement of a project's framework."""
    framework = manifest.framework
    if isinstance(framework, TvmFfi):
        return "apache-tvm-ffi>=0.1"
    if isinstance(framework, TorchNoarch):
        return "torch>=2.8"
    return f"torch>={framework.minver}" if framework.minver else "torch"


def _named(names: Iterable[str]) -> list[str]:
    return [_DISTRIBUTIONS.get(name, name) for name in names]


def _list(parts: Iterable[str]) -> str:
    return "[" + ", ".join(json.dumps(part) for part in parts) + "]"
