# SPDX-License-Identifier: Apache-2.0
"""Keys of the store, SHA-256 over labelled, length-prefixed fields; and the digests of files.

A key must hold everything that can change a result and nothing else. ``SCHEMA`` is part of every
key; raise it when the meaning of any field changes. Length prefixes and type tags make the
encoding injective: two different values never give the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Union

SCHEMA = 1

# Union and not |: the type names itself.
Value = Union[str, bytes, int, None, Sequence["Value"], Mapping[str, "Value"]]  # noqa: UP007


def key(kind: str, **fields: Value) -> str:
    """Hex key of 64 characters for a thing of this kind with these fields.

    Args:
        kind: what the key names, as in ``"compile"``; keys of two kinds never meet.
        fields: text, bytes, whole numbers, None, and sequences and mappings of them.
    """
    return hashlib.sha256(_encode({"kind": kind, "schema": SCHEMA, "fields": fields})).hexdigest()


def sha256(data: bytes | str) -> str:
    """Hex SHA-256 of bytes or of UTF-8 text, in which surrogates stand for bytes that are none."""
    raw = data.encode(errors="surrogateescape") if isinstance(data, str) else data
    return hashlib.sha256(raw).hexdigest()


def git_blob(content: Path | bytes) -> str:
    """Git's hex SHA-1 of a file: of ``blob``, a space, the size, a zero byte, the content."""
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    hasher = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    if isinstance(content, bytes):
        hasher.update(content)
        return hasher.hexdigest()
    with content.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            hasher.update(chunk)
    return hasher.hexdigest()


def _encode(value: Value) -> bytes:
    match value:
        case None:
            return _field(b"n", b"")
        case bool():
            return _field(b"t", b"1" if value else b"0")
        case int():
            return _field(b"i", str(value).encode())
        case str():
            return _field(b"s", value.encode())
        case bytes():
            return _field(b"b", value)
        case Mapping():
            return _field(b"m", b"".join(_encode(k) + _encode(value[k]) for k in sorted(value)))
        case Sequence():
            return _field(b"l", b"".join(_encode(item) for item in value))
        case _:
            raise TypeError(f"a key cannot hold a {type(value).__name__}")


def _field(tag: bytes, payload: bytes) -> bytes:
    return tag + str(len(payload)).encode() + b":" + payload
