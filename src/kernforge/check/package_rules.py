# SPDX-License-Identifier: Apache-2.0
"""Rules for the files of a variant: its layout, and the operators that its Python registers."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

from kernforge.artifact.integrity import is_bytecode
from kernforge.artifact.metadata import Metadata
from kernforge.artifact.variant import Variant
from kernforge.check.finding import Finding
from kernforge.errors import CheckError
from kernforge.system import confined

# torch.library's decorators whose first argument is the operator's qualified name.
_REGISTRATIONS = {
    *("custom_op", "register_fake", "register_kernel"),
    *("register_torch_dispatch", "register_vmap", "triton_op"),
}
_PREFIX = "add_op_namespace_prefix"
# Variant names and metadata spell one backend differently; "universal" fits all of them.
_METADATA_BACKEND = {"npu": "cann"}


def layout(
    variant: Variant, metadata: Metadata, files: Collection[str], *, where: str
) -> Iterator[Finding]:
    """Find missing and excess files, and a name that contradicts the metadata.

    Args:
        files: paths of all files, relative to the variant, with ``/``, bytecode included.
    """
    for required in ("__init__.py", "_ops.py"):
        if required not in files:
            yield Finding("layout", where, f"{required} is missing", "build the variant again")
    nested = metadata.python_name
    if any(path == nested or path.startswith(f"{nested}/") for path in files):
        yield Finding(
            "layout",
            f"{where}/{nested}",
            f"there is a {nested} inside the package {nested}: loaders of old builds import it "
            "in place of the package",
            f"rename {nested} in torch-ext/{nested}/",
        )
    bytecode = sorted(filter(is_bytecode, files))
    if bytecode:
        yield Finding(
            "layout",
            f"{where}/{bytecode[0]}",
            f"{len(bytecode)} bytecode file(s) in the variant, which no digest covers",
            "remove every __pycache__ and *.pyc; build again",
        )
    backend = _METADATA_BACKEND.get(variant.backend.name, variant.backend.name)
    if backend not in {metadata.backend, "universal"}:
        yield Finding(
            "layout",
            f"{where}/metadata.json",
            f"the directory is a build for {backend}, its metadata says {metadata.backend}",
            "rename the directory or build the variant again",
        )
    extensions = sorted(path for path in files if path.endswith(".so") and "/" not in path)
    suffix = ".so" if variant.framework == "tvm-ffi" else ".abi3.so"
    expected = [] if variant.is_noarch else [f"{metadata.id}{suffix}"]  # _ops.py imports it
    if extensions != expected:
        yield Finding(
            "layout",
            where,
            f"it has the extension modules {', '.join(extensions) or 'none'}; "
            f"{variant} needs {', '.join(expected) or 'none'}",
            "build the variant again into an empty directory",
        )


def registrations(sources: Mapping[str, str], *, where: str) -> Iterator[Finding]:
    """Find top-level definitions that register an operator under a fixed namespace.

    kernel-builder refuses the same: two versions of a kernel in one process would register one
    operator twice, and the second import fails.

    Args:
        sources: the text of each Python file, by its path in the variant.
    """
    try:
        found = confined.call(fixed_registrations, dict(sources), "the Python of the package")
    except CheckError as error:
        yield Finding("ops", where, error.message, error.hint)
        return
    for path, line, text in found:
        if not line:
            hint = "fix the file; importing the kernel fails"
            yield Finding("ops", f"{where}/{path}", f"it is not Python: {text}", hint)
            continue
        yield Finding(
            "ops",
            f"{where}/{path}:{line}",
            f"{text} is registered with Torch's library without {_PREFIX}: a second "
            "version of the kernel in one process would register it again",
            f'write @...({_PREFIX}("{text}"), ...); from ._ops import {_PREFIX}',
        )


def fixed_registrations(sources: Mapping[str, str]) -> list[tuple[str, int, str]]:
    """The path, line and name of each such definition; the line is 0 if a file is not Python."""
    found = []
    for path, text in sources.items():
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError) as error:
            found.append((path, 0, str(error)))
            continue
        found += [
            (path, node.lineno, node.name)
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and any(map(_has_fixed_name, node.decorator_list))
        ]
    return found


def _has_fixed_name(decorator: ast.expr) -> bool:
    """Whether a decorator registers an operator under a name without the namespace."""
    if not isinstance(decorator, ast.Call) or not decorator.args:
        return False
    return _function(decorator) in _REGISTRATIONS and _function(decorator.args[0]) != _PREFIX


def _function(node: ast.expr) -> str:
    """Last part of the name of a called function; empty for anything else."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name
        case _:
            return ""
