# SPDX-License-Identifier: Apache-2.0
"""The JSON schema of build.toml for editors, made from the types.

Taplo and Even Better TOML complete and check a file that begins with
``#:schema build.schema.json``. The schema is of editions 5 and 6 (JSON Schema draft 2020-12). It
accepts every file of them that ``document.parse`` accepts, except unusual spellings of a version,
such as ``" 12.8 "``, and sections of a language that is not compiled here.
"""

from __future__ import annotations

from typing import Any

from kernforge.manifest.editions import LANGUAGES
from kernforge.manifest.model import KERNELS, Document

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The JSON schema of a build.toml of edition 5 or 6, as plain data."""
    schema = Document.model_json_schema(by_alias=True)
    for language, backend in LANGUAGES.items():
        section = schema["$defs"][KERNELS[backend].__name__]
        section["properties"]["language"] = {"const": language}
        section["required"].remove("backend")
        section["oneOf"] = [{"required": ["backend"]}, {"required": ["language"]}]
    tidy: dict[str, Any] = as_toml(schema)
    return {"$schema": _DIALECT, **tidy}


def as_toml(node: Any) -> Any:
    """Remove the parts of a schema that hold only for Python.

    TOML has no null: a key is present or absent. Titles repeat the keys with capitals.
    """
    if isinstance(node, list):
        return [as_toml(item) for item in node]
    if not isinstance(node, dict):
        return node
    schema = {key: as_toml(value) for key, value in node.items() if not _is_noise(key, value)}
    options = [option for option in schema.pop("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        return {**options[0], **schema}
    return {**schema, "anyOf": options} if options else schema


def _is_noise(key: str, value: object) -> bool:
    return (key == "default" and value is None) or (key == "title" and value != "build.toml")
