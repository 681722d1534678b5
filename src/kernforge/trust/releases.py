# SPDX-License-Identifier: Apache-2.0
"""The signed list of a kernel's releases: which documents belong to which version, and until when.

A signature of ``metadata.json`` says who made a build, and neither its full version, nor the owner
under whose name it is published, nor whether there is a newer one. A second document says that for
all releases of a kernel, and several can sign it. It lies at the top of the branch ``BRANCH``::

    releases.json             {"type": "kernforge-releases", "format": 1, "repo-id": "acme/toy",
                               "number": 7, "issued": "2026-01-02T03:04:05Z",
                               "expires": "2026-02-01T03:04:05Z",
                               "releases": {"1.2.3": {"<variant>": "<SHA-256 of metadata.json>"}}}
    releases.signatures.json  [<Sigstore bundle over the bytes of releases.json>, ...]

``number`` grows with each list, as the version of TUF's roles does: who saw one takes no older one.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kernforge import documents
from kernforge.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BRANCH = "kernforge-releases"
FILE = "releases.json"
SIGNATURES = "releases.signatures.json"

_TYPE = "kernforge-releases"
_FORMAT = 1
_MOST_SIGNATURES = 64
_SHA256 = re.compile(r"[0-9a-f]{64}")
_VERSION = re.compile(r"(?:0|[1-9][0-9]*)(?:\.(?:0|[1-9][0-9]*)){2}")
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_HINT = "its publisher makes it again: kernforge trust releases"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a caller asked for.

    Attributes:
        major: the one major version that it allows; None where several may.
        specifier: the versions that it allows, as PEP 440 has it; None for any.
        newest: whether the newest of these was asked for; a commit and a lock name their own.
    """

    major: int | None = None
    specifier: str | None = None
    newest: bool = False


ANYTHING = Asked()


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedList:
    """The two files of a list, as they lie in a registry."""

    document: bytes
    signatures: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Releases:
    """The list; ``to_json`` is the inverse of ``from_json``.

    Attributes:
        number: of this list, larger than that of each list before it.
        expires: until when it counts as fresh.
        documents: hex SHA-256 of ``metadata.json`` by variant, by version such as ``1.2.3``.
    """

    repo_id: str
    number: int
    issued: datetime
    expires: datetime
    documents: Mapping[str, Mapping[str, str]]

    @classmethod
    def from_json(cls, data: bytes) -> Releases:
        """Read a list whose signature was verified.

        Raises:
            IntegrityError: it is not one.
        """
        try:
            table = documents.parse_json(data)
            if table["type"] != _TYPE or table["format"] != _FORMAT:
                raise IntegrityError(
                    f"{FILE} has type {table['type']!r} and format {table['format']!r}; this "
                    f"kernforge reads {_TYPE!r} {_FORMAT}",
                    hint="pip install --upgrade kernforge",
                )
            number = table["number"]
            if type(number) is not int or number < 1:
                raise ValueError(f"number is {number!r}")  # noqa: TRY301 - one way out
            return cls(
                repo_id=_text(table["repo-id"]),
                number=number,
                issued=_time(table["issued"]),
                expires=_time(table["expires"]),
                documents={
                    _matching(_VERSION, version): {
                        _text(name): _matching(_SHA256, digest) for name, digest in variants.items()
                    }
                    for version, variants in table["releases"].items()
                },
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"{type(error).__name__} {error}"
            raise IntegrityError(f"{FILE} cannot be read: {reason}", hint=_HINT) from None

    def to_json(self) -> bytes:
        """The bytes that are signed."""
        document = {
            "type": _TYPE,
            "format": _FORMAT,
            "repo-id": self.repo_id,
            "number": self.number,
            "issued": self.issued.astimezone(UTC).strftime(_TIME),
            "expires": self.expires.astimezone(UTC).strftime(_TIME),
            "releases": {
                version: dict(sorted(self.documents[version].items()))
                for version in sorted(self.documents, key=_order)
            },
        }
        return json.dumps(document, indent=1).encode()

    def versions_of(self, document: str) -> tuple[str, ...]:
        """The releases that have a ``metadata.json`` of this hex SHA-256, oldest first."""
        named = (v for v, variants in self.documents.items() if document in variants.values())
        return tuple(sorted(named, key=_order))

    def allowed(self, specifier: str | None) -> tuple[str, ...]:
        """The releases that a PEP 440 specifier allows, oldest first; all where it is None."""
        known = sorted(self.documents, key=_order)
        if specifier is None:
            return tuple(known)
        from packaging.specifiers import SpecifierSet  # noqa: PLC0415 - slow

        allowed = SpecifierSet(specifier)
        return tuple(version for version in known if version in allowed)


def read_signatures(data: bytes) -> list[bytes]:
    """The bundles in the file of signatures.

    Raises:
        IntegrityError: it is not such a file.
    """
    try:
        bundles = documents.parse_json(data)
        if not isinstance(bundles, list) or len(bundles) > _MOST_SIGNATURES:
            raise TypeError("it is not a list of signatures")  # noqa: TRY301 - one way out
    except (ValueError, TypeError) as error:
        raise IntegrityError(f"{SIGNATURES} cannot be read: {error}", hint=_HINT) from None
    return [json.dumps(bundle).encode() for bundle in bundles]


def write_signatures(bundles: Sequence[bytes]) -> bytes:
    """The file of signatures; ``read_signatures`` is its inverse."""
    return json.dumps([json.loads(bundle) for bundle in bundles], indent=1).encode()


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _time(value: object) -> datetime:
    return datetime.strptime(_text(value), _TIME).replace(tzinfo=UTC)


def _matching(pattern: re.Pattern[str], value: object) -> str:
    if not pattern.fullmatch(_text(value)):
        raise ValueError(f"{value!r} is not as expected")
    return str(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value
