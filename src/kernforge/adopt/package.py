# SPDX-License-Identifier: Apache-2.0
"""The files of the new project that are not sources: build.toml, the Python package and tests."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import tomlkit

from kernforge.adopt.bindings import Operator
from kernforge.manifest import document
from kernforge.source import op_schema
from kernforge.source.python_api import Parameter

_WIDTH = 100
_PYTHON = {
    "Tensor": "torch.Tensor",
    "ScalarType": "torch.dtype",
    "Device": "torch.device",
    "Scalar": "float",
    "SymInt": "int",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "()": "None",
}


def manifest(
    name: str,
    license: str,  # noqa: A002 - the word of build.toml
    binding: Sequence[str],
    sections: Mapping[str, Mapping[str, Any]],
) -> str:
    """Text of build.toml, edition 5.

    Args:
        name: of the kernel.
        license: an SPDX expression.
        binding: sources of ``[torch]``.
        sections: the ``[kernel.*]`` tables.

    Raises:
        ManifestError: the text is not a valid manifest.
    """
    general = {
        "name": name,
        "version": 1,
        "edition": 5,
        "license": license,
        "backends": sorted({section["backend"] for section in sections.values()}),
    }
    tables = {"general": general, "torch": {"src": list(binding)}, "kernel": sections}
    listed = tomlkit.item(tables)
    for table in listed["kernel"].values():
        for value in table.values():
            if isinstance(value, tomlkit.items.Array) and len(value.as_string()) > _WIDTH - 20:
                value.multiline(multiline=True)
    text = tomlkit.dumps(listed)
    document.parse(text)
    return text


def python_files(
    package: str, groups: Mapping[str, Sequence[Operator]], origin: str
) -> dict[str, str]:
    """The Python package: path below ``torch-ext`` to text.

    Args:
        package: its name.
        groups: the operators of each module, by the module's last name; the functions of a single
            module are those of the package itself.
        origin: what the kernel was made from, for the docstring.
    """
    first = f'"""{package}: the operators of {origin}."""'
    if len(groups) == 1:
        (operators,) = groups.values()
        return {f"{package}/__init__.py": _module(first, operators)}
    names = sorted(groups)
    lines = [first, "", "from __future__ import annotations", ""]
    lines += [f"from . import {', '.join(names)}", "", f"__all__ = {json.dumps(names)}", ""]
    modules = {name: _module(f'"""The operators of {name}."""', groups[name]) for name in names}
    files = {f"{package}/{name}.py": text for name, text in modules.items()}
    return {**files, f"{package}/__init__.py": "\n".join(lines)}


def _module(docstring: str, operators: Sequence[Operator]) -> str:
    functions = [_function(operator) for operator in operators]
    lines = [docstring, "", "from __future__ import annotations", ""]
    lines += ["import torch", ""] if any("torch." in function for function in functions) else []
    lines += ["from ._ops import ops", ""]
    lines.append(f"__all__ = {json.dumps(sorted(operator.name for operator in operators))}")
    for function in functions:
        lines += ["", "", function]
    return "\n".join([*lines, ""])


def _function(operator: Operator) -> str:
    """The Python function that calls an operator."""
    (entry,) = op_schema.read_operators([operator.schema]).values()
    taken = passed = "*args, **kwargs"
    returns = "object"
    if entry.parameters is not None and all(p.passed == "either way" for p in entry.parameters):
        passed = ", ".join(each.name for each in entry.parameters)
        taken = ", ".join(map(_parameter, entry.parameters))
        returns = _python(entry.returns)
    doc = operator.doc.strip().replace("\\", "\\\\").replace('"""', "'''")
    op = re.match(r"\w+", operator.schema)
    call = f"ops.{op[0] if op else ''}({passed})"
    body = textwrap.indent(f'"""{doc}"""\nreturn {call}', "    ")
    return f"def {operator.name}({taken}) -> {returns}:\n{body}"


def _parameter(parameter: Parameter) -> str:
    default = "" if parameter.default is None else f" = {parameter.default}"
    return f"{parameter.name}: {_python(parameter.type)}{default}"


def _python(schema: str) -> str:
    """A type of a schema in Python's words."""
    plain = re.sub(r"\([a-z]!?\)|!", "", schema).strip()
    if plain in _PYTHON:
        return _PYTHON[plain]
    if plain.startswith("(") and plain.endswith(")"):
        return f"tuple[{', '.join(_python(part) for part in plain[1:-1].split(','))}]"
    if plain.endswith("?"):
        return f"{_python(plain[:-1])} | None"
    if match := re.fullmatch(r"(.*)\[\d*\]", plain):
        return f"list[{_python(match[1])}]"
    return "object"


def tests(schemas: Mapping[str, str]) -> str:
    """Text of the project's tests: each operator is there, with its schema.

    Args:
        schemas: by the dotted name of the Python function.
    """
    return _TESTS.format(schemas=json.dumps(schemas, indent=4))


_TESTS = '''"""The operators are there.

Compare their results with a reference by kernforge.testing.op_tests.
"""

from __future__ import annotations

import operator

import pytest
import torch

SCHEMAS = {schemas}


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_function_and_its_operator_are_there(kernel, name):
    assert callable(operator.attrgetter(name)(kernel))
    schema = SCHEMAS[name]
    registered = operator.attrgetter(schema.partition("(")[0])(kernel._ops.ops)
    if "(" in schema:
        overload = getattr(registered, "default", registered)
        namespace = overload._schema.name.partition("::")[0]
        assert str(overload._schema) == str(torch._C.parse_schema(f"{{namespace}}::{{schema}}"))
'''
