# SPDX-License-Identifier: Apache-2.0
"""The reference page of build.toml, made from the types of its tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kernforge.manifest.model import KERNELS, TABLES, KernelDependency, Table, fields

if TYPE_CHECKING:
    from collections.abc import Iterator

_INTRODUCTION = """\
# build.toml

One table `[general]`, exactly one of `[torch]`, `[torch-noarch]` and `[tvm-ffi]`, and a table
`[kernel.<name>]` for each group of files to compile, under names of your choice. In edition 6, a
section may have the key `language`, as `"cpp-cuda"`, instead of `backend`, as `"cuda"`. Unknown
keys are refused. A version has two numbers, as in `"12.8"`. Paths are relative to the directory of
the file.
"""


def page() -> str:
    """The reference page: a Markdown table of keys for each table of the file."""
    sections: dict[str, type[Table]] = {f"`[{name}]`": kind for name, kind in TABLES.items()}
    sections |= {f'`[kernel.<name>]`, `backend = "{key}"`': kind for key, kind in KERNELS.items()}
    sections["An item of `kernel-depends`"] = KernelDependency
    lines = [line for title, kind in sections.items() for line in _section(title, kind)]
    return "\n".join([_INTRODUCTION, *lines])


def _section(title: str, kind: type[Table]) -> Iterator[str]:
    properties = kind.model_json_schema(by_alias=True)["properties"]
    yield f"## {title}\n"
    yield f"{kind.__doc__}\n"
    yield "| key | type | default | meaning |"
    yield "|---|---|---|---|"
    for key, field in fields(kind).items():
        field_schema = _without_null(properties[key])
        default = "required" if field.is_required() else _default(field_schema)
        yield f"| `{key}` | {_type(field_schema)} | {default} | {field.description} |"
    yield ""


def _without_null(node: dict[str, Any]) -> dict[str, Any]:
    """A schema without null, which TOML has not: a key is present or absent."""
    options = [option for option in node.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        node = {**{key: value for key, value in node.items() if key != "anyOf"}, **options[0]}
    return {key: value for key, value in node.items() if key != "default" or value is not None}


def _default(field: dict[str, Any]) -> str:
    return f"`{json.dumps(field['default'])}`" if field.get("default") else ""


def _type(field: dict[str, Any]) -> str:
    """Description of a property's type."""
    if "$ref" in field:
        return "table"
    if "oneOf" in field or "anyOf" in field:
        options = field.get("oneOf") or field["anyOf"]
        return " or ".join(_type(option) for option in options)
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return f"one of {', '.join(f'`{value}`' for value in field['enum'])}"
    if field["type"] == "array":
        item = _type(field["items"])
        return f"list, each {item}" if item.startswith("one of") else f"list of {item}s"
    if field["type"] == "object":
        return "table of backend to version"
    return "version" if field.get("pattern", "").startswith("^[0-9]") else str(field["type"])
