# SPDX-License-Identifier: Apache-2.0
"""Types of the values in build.toml: backends, versions, git addresses, lists.

Source of the format: the ``build.toml`` of Hugging Face's kernel-builder as ``kernels`` 0.17.2
reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    PlainValidator,
    Strict,
    StringConstraints,
    Tag,
    WithJsonSchema,
)

from kernforge.artifact.version import Version2

Backend: TypeAlias = Literal["cann", "cpu", "cuda", "metal", "neuron", "rocm", "tpu", "xpu"]
Dependency: TypeAlias = Literal[
    "cutlass_2_10",
    "cutlass_3_5",
    "cutlass_3_6",
    "cutlass_3_8",
    "cutlass_3_9",
    "cutlass_4_0",
    "cutlass_4_4",
    "cutlass_4_5",
    "sycl_tla",
    "metal-cpp",
    "torch",
]
Path: TypeAlias = tuple[str | int, ...]
"""The keys and list indices that lead to a value of the file."""

# Words in parentheses are not TOML keys: they name a branch of a union in pydantic's errors.
VERSION_TAG = "(version)"
TABLE_TAG = "(table)"

_GIT_URL = re.compile(r"(?:https?|git|ssh|git\+(?:ssh|https?))://[^\s/].*", re.IGNORECASE)
_SCP_URL = re.compile(r"[^\s:]+:(?!/).+")


def _version(value: object) -> Version2:
    if isinstance(value, str):
        return Version2.parse(value)
    raise ValueError('expected a version in quotes, as in "12.8"')


def _git_url(value: str) -> str:
    if not _GIT_URL.fullmatch(value) and not _SCP_URL.fullmatch(value):
        raise ValueError("expected a git address: https://..., ssh://... or host:path")
    return value


def _as_list_if_text(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _stable_abi_kind(value: object) -> str:
    return TABLE_TAG if isinstance(value, dict) else VERSION_TAG


# A TOML list becomes a Python list, which strict mode does not accept for a tuple.
Strings: TypeAlias = Annotated[tuple[str, ...], Strict(strict=False)]
VersionText: TypeAlias = Annotated[
    Version2,
    PlainValidator(_version),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]+\.[0-9]+$"}),
]
GitUrl: TypeAlias = Annotated[str, AfterValidator(_git_url)]
GitUrls: TypeAlias = Annotated[
    tuple[GitUrl, ...],
    Strict(strict=False),
    BeforeValidator(_as_list_if_text),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
StableAbi: TypeAlias = Annotated[
    Annotated[VersionText, Tag(VERSION_TAG)]
    | Annotated[Mapping[Backend, VersionText], Tag(TABLE_TAG)],
    Discriminator(_stable_abi_kind),
]

Name: TypeAlias = Annotated[str, StringConstraints(pattern="^[a-z][-a-z0-9]*[a-z0-9]$")]
