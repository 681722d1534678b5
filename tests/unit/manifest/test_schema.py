# SPDX-License-Identifier: Apache-2.0
"""The JSON schema accepts the files that the parser accepts."""

import tomllib
from pathlib import Path

import pytest

from kernforge.manifest.model import KERNELS, TABLES, Document, fields
from kernforge.manifest.schema import json_schema

CASES = sorted((Path(__file__).parents[2] / "data" / "manifests").glob("*.toml"))
# Files that the schema need not judge as the parser does: other editions, and spellings of
# versions and git addresses that an editor may complain about or let pass.
BEYOND = {
    "good-edition-4",
    "good-edition-6",
    "bad-edition-5-with-6s-keys",
    "good-spellings",
    "bad-syntax",
}


@pytest.mark.parametrize(
    "path",
    [p for p in CASES if p.stem not in BEYOND and not p.stem.startswith("older-")],
    ids=lambda path: path.stem,
)
def test_the_schema_judges_as_the_parser_does(path):
    validators = pytest.importorskip("jsonschema")
    validator = validators.Draft202012Validator(json_schema())
    data = tomllib.loads(path.read_bytes().decode().removeprefix("\ufeff"))
    assert validator.is_valid(data) == path.stem.startswith("good-")


def test_every_key_has_a_description():
    schema = json_schema()
    tables = [schema, *schema["$defs"].values()]
    assert len(tables) == len(TABLES) + len(KERNELS) + 2
    for table in tables:
        assert table["additionalProperties"] is False
    for kind in [Document, *TABLES.values(), *KERNELS.values()]:
        for key, field in fields(kind).items():
            assert field.description, f"{kind.__name__} {key} has no description"
