# SPDX-License-Identifier: Apache-2.0
"""The JSON schema of build.toml for editors, and its reference page, both made from the types.

Taplo and Even Better TOML complete and check a file that begins with
``#:schema build.schema.json``. The schema is of editions 5 and 6 (JSON Schema draft 2020-12). It
accepts every file of them that ``document.parse`` accepts, except unusual spellings of a version,
such as ``" 12.8 "``, and sections of a language that is not compiled here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kernforge.manifest.editions import LANGUAGES
from kernforge.manifest.model import KERNELS, TABLES, Document, KernelDependency, Table, fields

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_INTRODUCTION = """\
# build.toml

One table `[general]`, exactly one of `[torch]`, `[torch-noarch]` and `[tvm-ffi]`, and a table
`[kernel.<name>]` for each group of files to compile, under names of your choice. In edition 6, a
section may have the key `language`, as `"cpp-cuda"`, instead of `backend`, as `"cuda"`. Unknown
keys are refused. A version has two numbers, as in `"12.8"`. Paths are relative to the directory of
the file.
"""


def json_schema() -> dict[str, Any]:
    """The JSON schema of a build.toml of edition 5 or 6, as plain data."""
    schema = Document.model_json_schema(by_alias=True)
    for language, backend in LANGUAGES.items():
        section = schema["$defs"][KERNELS[backend].__name__]
        section["properties"]["language"] = {"const": language}
        section["required"].remove("backend")
        section["oneOf"] = [{"required": ["backend"]}, {"required": ["language"]}]
    tidy: dict[str, Any] = _as_toml(schema)
    return {"$schema": _DIALECT, **tidy}


def reference_markdown() -> str:
    """The reference page: a Markdown table of keys for each table of the file."""
    sections: dict[str, type[Table]] = {f"`[{name}]`": kind for name, kind in TABLES.items()}
    sections |= {f'`[kernel.<name>]`, `backend = "{key}"`': kind for key, kind in KERNELS.items()}
    sections["An item of `kernel-depends`"] = KernelDependency
    lines = [line for title, kind in sections.items() for line in _section(title, kind)]
    return "\n".join([_INTRODUCTION, *lines])


def _as_toml(node: Any) -> Any:
    """Remove the parts of a schema that hold only for Python.

    TOML has no null: a key is present or absent. Titles repeat the keys with capitals.
    """
    if isinstance(node, list):
        return [_as_toml(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: _as_toml(value) for key, value in node.items() if not _is_noise(key, value)}
    options = [option for option in kept.pop("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        return {**options[0], **kept}
    return {**kept, "anyOf": options} if options else kept


def _is_noise(key: str, value: object) -> bool:
    return (key == "default" and value is None) or (key == "title" and value != "build.toml")


def _section(title: str, kind: type[Table]) -> Iterator[str]:
    schema = _as_toml(kind.model_json_schema(by_alias=True))
    yield f"## {title}\n"
    yield f"{kind.__doc__}\n"
    yield "| key | type | default | meaning |"
    yield "|---|---|---|---|"
    for key, field in fields(kind).items():
        field_schema = schema["properties"][key]
        default = "required" if field.is_required() else _default(field_schema)
        yield f"| `{key}` | {_type(field_schema)} | {default} | {field.description} |"
    yield ""


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
