# SPDX-License-Identifier: Apache-2.0
"""Adopt a project: read its extensions, translate its sources, write a kernel project.

The old project is not changed. Untranslated code is copied, with a remark on its file and line.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit

from kernforge.adopt import program
from kernforge.adopt.bindings import Operator, Source, with_c_linkage
from kernforge.adopt.program import Program, Remark
from kernforge.errors import UsageError
from kernforge.extension.device import split
from kernforge.manifest import document
from kernforge.manifest.editions import UNKNOWN_LICENSE
from kernforge.project import scaffold
from kernforge.project.units import HEADER_SUFFIXES
from kernforge.source import op_schema
from kernforge.source.cpp_text import CUDA_SUFFIXES
from kernforge.source.python_api import Parameter
from kernforge.system import untrusted_tree
from kernforge.system.files import make_dir, publish_tree, staging

_BINDING = "torch-ext/torch_binding.cpp"
_BINDING_TEXT = """// The module of the build; its operators are registered where they are defined.

#include "registration.h"

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
_WIDTH = 100
_MODULE = '''"""{title}"""

from ._ops import ops

__all__ = {names}


{functions}
'''
_TESTS = '''"""The functions are there.

Compare their results with a reference by kernforge.testing.op_tests.
"""

from __future__ import annotations

import operator

import pytest


@pytest.mark.parametrize("name", {names})
def test_function_exists(kernel, name):
    assert callable(operator.attrgetter(name)(kernel))
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """Result of an adoption.

    Attributes:
        dest: the new project.
        files: its files.
        operators: schemas of its operators by module and function, as in ``relu.forward``.
        remarks: by file and line.
    """

    dest: Path
    files: tuple[Path, ...]
    operators: Mapping[str, str]
    remarks: tuple[Remark, ...]


def adopt(
    source: Path,
    *,
    dest: Path | None = None,
    name: str = "",
    license: str = "",  # noqa: A002 - the word that build.toml uses
) -> Adoption:
    """Write a kernel project with the operators of another project.

    Args:
        source: a directory with a setup.py, or a script that calls ``load`` or ``load_inline``. It
            is not changed; a copy of its setup.py is run up to ``setup()``, in the sandbox.
        dest: directory of the new project, which must not exist or must be empty; by default the
            kernel's name in the current directory.
        name: of the kernel; by default that of the distribution or module.
        license: an SPDX expression; by default what the setup.py says, or else ``unknown``.

    Raises:
        UsageError: there is nothing to adopt, the name is not usable, or something is at ``dest``.
    """
    with staging(dest.absolute().parent if dest else Path.cwd()) as stage:
        old = program.read(source, stage)
        kernel = name or old.kernel_name
        dest = dest or Path(kernel)
        stated = old.license if scaffold.is_license(old.license) else ""
        chosen = license or stated or UNKNOWN_LICENSE
        scaffold.check_project(kernel, license=chosen)
        scaffold.check_free(dest)
        if chosen == UNKNOWN_LICENSE:
            text = f'build.toml says license = "{chosen}", as the old project names none: '
            old.remark(f"{text}write its own", "check")
        texts, groups = _translate(old)
        python_name = kernel.replace("-", "_")
        python = _python_package(python_name, groups, old.file)
        schemas = {
            (each.name if len(groups) == 1 else f"{group}.{each.name}"): each.schema
            for group, operators in groups.items()
            for each in operators
        }
        contents = {
            **texts,
            _BINDING: _BINDING_TEXT,
            "build.toml": _manifest(kernel, chosen, _sections(old)),
            **{f"torch-ext/{file}": text for file, text in python.items()},
            f"tests/test_{python_name}.py": _TESTS.format(names=json.dumps([*schemas])),
            ".gitignore": "build/\n__pycache__/\n*.pyc\n.pytest_cache/\n",
        }
        tree = stage / "project"
        make_dir(tree)
        for file, text in contents.items():
            untrusted_tree.write(tree, file, text)
        if not publish_tree(tree, dest):
            raise scaffold.occupied(dest)
    return Adoption(
        dest=dest,
        files=tuple(dest / file for file in sorted(contents)),
        operators=schemas,
        remarks=tuple(sorted({*old.remarks})),
    )


def _translate(old: Program) -> tuple[dict[str, str], dict[str, list[Operator]]]:
    """Translated sources and headers, and the operators of each group of modules."""
    texts: dict[str, str] = {}
    groups: dict[str, list[Operator]] = {}
    names = sorted({module.group for module in old.modules})
    for group in names:
        modules = [module for module in old.modules if module.group == group]
        read = {path: old.get(path) for m in modules for path in old.files(m.sources, m.include)}
        cuda = [text for path, text in read.items() if path.endswith(CUDA_SUFFIXES)]
        for path in sorted({*read} - {*texts}):
            backends = sorted({m.backend.upper() for m in modules if path in m.sources})
            text, linked = with_c_linkage(read[path], cuda)
            for name, line in linked.items():
                remark = f'extern "C" added to the declaration of {name}, as in its definition'
                old.remarks.append(Remark(path, line, remark, "changed"))
            source = Source(
                path=path,
                text=text,
                texts=read.values(),
                keys=tuple(backends),
                prefix=f"{group}_" if len(names) > 1 else "",
                remarks=old.remarks,
            )
            source.translate()
            texts[path] = source.text
            if source.operators:
                groups.setdefault(group, []).extend(source.operators)
        if group not in groups:
            old.remark(f"{modules[0].name} has no operator that can be translated")
    if not groups:
        listed = "\n".join(map(str, sorted({*old.remarks})))
        raise UsageError(
            f"no operator of {', '.join(module.name for module in old.modules)} can be "
            f"translated:\n{listed}",
            hint="start with `kernforge new --here`, and register the functions with TORCH_LIBRARY",
        )
    return texts, groups


def _sections(old: Program) -> dict[str, dict[str, Any]]:
    """The ``[kernel.*]`` tables of build.toml."""
    sections: dict[str, dict[str, Any]] = {}
    for module in old.modules:
        read = old.files(module.sources, module.include)
        headers = sorted(path for path in read if path.endswith(HEADER_SUFFIXES))
        src = [*module.sources, *headers]
        raw = all(split.is_raw(old.get(path)) for path in src)
        table = {
            "backend": module.backend,
            "depends": [] if raw else ["torch"],
            "src": src,
            "include": list(module.include),
            "cxx-flags": list(module.cxx_flags),
            "cuda-flags": list(module.cuda_flags) if module.backend == "cuda" else [],
        }
        name = f"{module.group}_{module.backend}"
        name = f"{name}_{len(sections) + 1}" if name in sections else name
        sections[name] = {key: value for key, value in table.items() if value or key == "depends"}
    return sections


# -- files that are not sources --


def _manifest(
    name: str,
    license: str,  # noqa: A002 - the word of build.toml
    sections: Mapping[str, Mapping[str, Any]],
) -> str:
    """Text of build.toml, edition 5.

    Args:
        sections: the ``[kernel.*]`` tables.
    """
    general = {
        "name": name,
        "version": 1,
        "edition": 5,
        "license": license,
        "backends": sorted({section["backend"] for section in sections.values()}),
    }
    tables = {"general": general, "torch": {"src": [_BINDING]}, "kernel": sections}
    item = tomlkit.item(tables)
    for table in item["kernel"].values():
        for value in table.values():
            if isinstance(value, tomlkit.items.Array) and len(value.as_string()) > _WIDTH - 20:
                value.multiline(multiline=True)
    text = tomlkit.dumps(item)
    document.parse(text)
    return text


def _python_package(
    name: str, groups: Mapping[str, Sequence[Operator]], origin: str
) -> dict[str, str]:
    """Files of the Python package, by path; each of several groups is a submodule.

    Args:
        origin: file that the kernel was made from.
    """
    title, names = f"{name}: the operators of {origin}.", sorted(groups)
    if len(names) == 1:
        return {f"{name}/__init__.py": _module(title, groups[names[0]])}
    modules = {f"{name}/{n}.py": _module(f"The operators of {n}.", groups[n]) for n in names}
    lines = (f'"""{title}"""', "", f"from . import {', '.join(names)}", "")
    return modules | {
        f"{name}/__init__.py": "\n".join((*lines, f"__all__ = {json.dumps(names)}\n"))
    }


def _module(title: str, operators: Sequence[Operator]) -> str:
    names = json.dumps(sorted(operator.name for operator in operators))
    functions = "\n\n\n".join(map(_function, operators))
    return _MODULE.format(title=title, names=names, functions=functions)


def _function(operator: Operator) -> str:
    """The Python function that calls an operator."""
    (entry,) = op_schema.read_operators([operator.schema]).values()
    taken = passed = "*args, **kwargs"
    if entry.parameters is not None and all(p.passed == "either way" for p in entry.parameters):
        passed = ", ".join(each.name for each in entry.parameters)
        taken = ", ".join(map(_parameter, entry.parameters))
    doc = operator.doc.strip().replace("\\", "\\\\").replace('"""', "'''")
    op = re.match(r"\w+", operator.schema)
    call = f"ops.{op[0] if op else ''}({passed})"
    body = textwrap.indent(f'"""{doc}"""\nreturn {call}', "    ")
    return f"def {operator.name}({taken}):\n{body}"


def _parameter(parameter: Parameter) -> str:
    return parameter.name + ("" if parameter.default is None else f"={parameter.default}")
