# SPDX-License-Identifier: Apache-2.0
"""The files of the new project that are not sources: build.toml, the Python package and tests."""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.manifest import document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernforge.adopt.bindings import Operator, OperatorArgument

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A ``[kernel.*]`` table of build.toml."""

    name: str
    backend: str
    depends: tuple[str, ...]
    src: tuple[str, ...]
    include: tuple[str, ...] = ()
    cxx_flags: tuple[str, ...] = ()
    cuda_flags: tuple[str, ...] = ()


def manifest(name: str, license: str, binding: Sequence[str], sections: Sequence[Section]) -> str:  # noqa: A002
    """Text of build.toml, edition 5.

    Args:
        name: of the kernel.
        license: an SPDX expression.
        binding: sources of ``[torch]``.
        sections: the kernel sections.

    Raises:
        ManifestError: the text is not a valid manifest.
    """
    backends = [b for b in ("cpu", "cuda") if any(s.backend == b for s in sections)]
    lines = [
        "[general]",
        f'name = "{name}"',
        "version = 1",
        "edition = 5",
        f'license = "{license}"',
        f"backends = {_array(backends)}",
        "",
        "[torch]",
        f"src = {_array(binding)}",
    ]
    for section in sections:
        lines += ["", f"[kernel.{section.name}]", f'backend = "{section.backend}"']
        lines += [f"depends = {_array(section.depends)}", f"src = {_array(section.src)}"]
        for key in ("include", "cxx_flags", "cuda_flags"):
            values = getattr(section, key)
            if values and (key != "cuda_flags" or section.backend == "cuda"):
                lines.append(f"{key.replace('_', '-')} = {_array(values)}")
    text = "\n".join([*lines, ""])
    document.parse(text)
    return text


def _array(values: Sequence[str]) -> str:
    inside = ", ".join(json.dumps(value) for value in values)
    if len(inside) <= _WIDTH - 20:
        return f"[{inside}]"
    return "[\n" + "".join(f"  {json.dumps(value)},\n" for value in values) + "]"


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
    files = {
        f"{package}/{name}.py": _module(f'"""The operators of {name}."""', groups[name])
        for name in names
    }
    imports = f"from . import {', '.join(names)}"
    if len(imports) > _WIDTH:
        imports = "from . import (\n" + "".join(f"    {name},\n" for name in names) + ")"
    listed = ", ".join(f'"{name}"' for name in names)
    files[f"{package}/__init__.py"] = "\n".join(
        [
            first,
            "",
            "from __future__ import annotations",
            "",
            imports,
            "",
            f"__all__ = [{listed}]",
            "",
        ]
    )
    return files


def _module(docstring: str, operators: Sequence[Operator]) -> str:
    uses_torch = any("torch." in _signature(operator) for operator in operators)
    names = ", ".join(f'"{name}"' for name in sorted(operator.name for operator in operators))
    lines = [docstring, "", "from __future__ import annotations", ""]
    lines += ["import torch", ""] if uses_torch else []
    lines += ["from ._ops import ops", "", f"__all__ = [{names}]"]
    for operator in operators:
        lines += ["", "", *_function(operator)]
    return "\n".join([*lines, ""])


def _signature(operator: Operator) -> str:
    if operator.arguments is None:
        return f"def {operator.name}(*args):"
    given = [_parameter(argument) for argument in operator.arguments]
    whole = f"def {operator.name}({', '.join(given)}) -> {_python(operator.returns)}:"
    if len(whole) <= _WIDTH:
        return whole
    inside = "".join(f"    {parameter},\n" for parameter in given)
    return f"def {operator.name}(\n{inside}) -> {_python(operator.returns)}:"


def _function(operator: Operator) -> list[str]:
    doc = operator.doc.strip().replace("\\", "\\\\").replace('"""', "'''")
    doc = doc or f"The operator {operator.op}, bound at {operator.path}:{operator.line}."
    doc = doc if doc.endswith((".", "!", "?")) else f"{doc}."
    wrapped = textwrap.wrap(doc, _WIDTH - 10) if "\n" not in doc else doc.splitlines()
    text = "\n    ".join(wrapped)
    closing = '"""' if len(wrapped) == 1 else '\n    """'
    passed = (
        "*args" if operator.arguments is None else ", ".join(a.name for a in operator.arguments)
    )
    call = f"    return ops.{operator.op.partition('.')[0]}({passed})"
    return [_signature(operator), f'    """{text}{closing}', call]


def _parameter(argument: OperatorArgument) -> str:
    default = "" if argument.default is None else f" = {_python_default(argument.default)}"
    return f"{argument.name}: {_python(argument.type)}{default}"


def _python_default(text: str) -> str:
    return f"{text}0" if re.fullmatch(r"-?\d+\.", text) else text


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


def tests(groups: Mapping[str, Sequence[Operator]]) -> str:
    """Text of the project's tests: each operator is there, with its schema."""
    single = len(groups) == 1
    schemas = [
        f'    "{operator.name if single else f"{group}.{operator.name}"}": '
        f"{json.dumps(operator.schema)},"
        for group, operators in groups.items()
        for operator in operators
    ]
    return _TESTS.format(schemas="\n".join(schemas))


_TESTS = '''"""The operators are there.

Compare their results with a reference by kernforge.testing.op_tests.
"""

from __future__ import annotations

import operator

import pytest
import torch

SCHEMAS = {{
{schemas}
}}


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_function_and_its_operator_are_there(kernel, name):
    assert callable(operator.attrgetter(name)(kernel))
    schema = SCHEMAS[name]
    registered = operator.attrgetter(schema.partition("(")[0])(kernel._ops.ops)
    if "(" in schema:
        is_overload = isinstance(registered, torch._ops.OpOverload)
        overload = registered if is_overload else registered.default
        namespace = overload._schema.name.partition("::")[0]
        assert str(overload._schema) == str(torch._C.parse_schema(f"{{namespace}}::{{schema}}"))
'''
