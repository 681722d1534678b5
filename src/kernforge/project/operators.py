# SPDX-License-Identifier: Apache-2.0
"""``kernforge new --op``: one more operator in a project, with its source, binding and test.

The new files are in ``templates/op``. Two files that are there get lines: build.toml names the new
sources, where no pattern in it does, and the package's ``__init__.py`` imports the function.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tomlkit

from kernforge.errors import UsageError
from kernforge.manifest import document as manifests
from kernforge.manifest import sources
from kernforge.manifest.fields import Backend
from kernforge.manifest.model import Torch
from kernforge.project import scaffold
from kernforge.project.api import Project
from kernforge.system.files import write_atomic

_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*[a-z0-9]")
_STABLE_SINCE = (2, 10)
_LISTED = re.compile(r"^(__all__ = )(\[[\w\s\"',]*\]|\([\w\s\"',]*\))", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """Files of a new operator."""

    name: str
    written: tuple[Path, ...]
    changed: tuple[Path, ...]


def add_operator(project: Project, name: str) -> Added:
    """Add an operator; nothing is written on a conflict.

    Args:
        project: with a binding on torch's stable ABI.
        name: of the operator and of its Python function; dashes become underscores.

    Raises:
        UsageError: the name cannot be used, a file of the operator is there already, or the project
            has another kind of binding.
    """
    op = name.replace("-", "_")
    manifest = project.manifest
    _check_name(name, op, package=manifest.general.python_name)
    backends = [backend for backend in scaffold.BACKENDS if backend in manifest.general.backends]
    _check_binding(project, backends)
    words = {
        "__OP__": op,
        "__PYTHON_NAME__": manifest.general.python_name,
        "__LICENSE__": manifest.general.license,
    }
    parts = ("op/common", *(["op/cuda"] if "cuda" in backends else []))
    files = scaffold.render(parts, words=words)
    if there := [path for path in files if (project.root / path).exists()]:
        raise UsageError(
            f"{project.root / there[0]} exists already",
            hint="choose another name for the operator, or remove the file",
        )
    document = project.root / scaffold.MANIFEST
    package = project.root / f"torch-ext/{manifest.general.python_name}/__init__.py"
    changes = {
        document: _with_sources(project, op, files),
        package: _with_import(package, op),
    }
    filled = scaffold.add_files(files, project.root)
    for path, text in changes.items():
        if text != path.read_text(encoding="utf-8"):
            write_atomic(path, text)
    return Added(name=op, written=filled.written, changed=tuple(changes))


def _check_name(name: str, op: str, *, package: str) -> None:
    if not _IDENTIFIER.fullmatch(op):
        raise UsageError(
            f"{name!r} is not a name for an operator",
            hint="a name has lower-case letters, digits and dashes or underscores, at least two of "
            "them, and begins with a letter",
        )
    scaffold.check_function(op)
    if op == package:
        raise UsageError(
            f"{op} is the name of the package and of its first operator",
            hint="choose another name for the operator",
        )


def _check_binding(project: Project, backends: list[Backend]) -> None:
    framework = project.manifest.framework
    path = project.root / scaffold.MANIFEST
    if not isinstance(framework, Torch):
        raise UsageError(
            f"{path} has no [torch] table, so there is no binding that an operator could join",
            hint="add-op writes CUDA and C++ operators of torch",
        )
    versions = [framework.stable_abi_for(backend) for backend in backends]
    if not backends or any(version is None or version < _STABLE_SINCE for version in versions):
        raise UsageError(
            f"{path}: add-op writes a binding on torch's stable ABI, and this project does not use "
            "the one of torch 2.10 for its CPU and CUDA variants",
            hint='set stable-abi = "2.10" in [torch] if its other bindings use the stable ABI too; '
            "otherwise write the operator beside the others",
        )


def _with_sources(project: Project, op: str, files: Mapping[str, str]) -> str:
    """Add the new sources to build.toml, unless a pattern matches them."""
    text = project.manifest_text
    manifest = sources.expanded(manifests.parse(text), {*project.files, *files})
    binding, device = f"torch-ext/{op}_binding.cpp", f"{op}.cu"
    if isinstance(manifest.framework, Torch) and binding not in manifest.framework.src:
        document = tomlkit.parse(text)
        document["torch"]["src"].append(binding)
        text = tomlkit.dumps(document)
    cuda = {path for section in manifest.sections("cuda").values() for path in section.src}
    if device in files and device not in cuda:
        lines = [f"[kernel.{op}_cuda]", 'backend = "cuda"', "depends = []", f'src = ["{device}"]']
        text = "\n".join([text.rstrip("\n"), "", *lines, ""])
    manifests.parse(text)
    return text


def _with_import(path: Path, op: str) -> str:
    """Add the import of the new function to the package, and its name to ``__all__``."""
    if not path.is_file():
        raise UsageError(f"there is no {path}", hint="the package of the kernel must be there")
    text = path.read_text(encoding="utf-8")
    try:
        tree = ast.parse(text, filename=str(path))
    except SyntaxError as error:
        raise UsageError(f"{path}:{error.lineno}: not Python: {error.msg}") from error
    taken = {getattr(node, "name", "") for node in tree.body}
    taken |= {a.asname or a.name for node in tree.body for a in getattr(node, "names", ())}
    if op in taken:
        raise UsageError(f"{path} has the name {op} already", hint="choose another name")
    imports = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    own = [n for n in imports if isinstance(n, ast.ImportFrom) and n.level and n.module]
    later = [n for n in own if (n.module or "") >= f"_{op}"]
    before = [n for n in imports if n not in later]
    lines = text.splitlines(keepends=True)
    lines.insert(before[-1].end_lineno or 0 if before else 0, f"from ._{op} import {op}\n")

    def listed(match: re.Match[str]) -> str:
        names = sorted({*ast.literal_eval(match[2]), op})
        return match[1] + "[" + ", ".join(f'"{name}"' for name in names) + "]"

    return _LISTED.sub(listed, "".join(lines), count=1)
