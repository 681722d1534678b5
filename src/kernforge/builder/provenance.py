# SPDX-License-Identifier: Apache-2.0
"""Provenance of a variant: a SLSA v1 statement with all inputs of a rebuild.

``provenance.intoto.json`` is next to ``metadata.json``, whose digest covers it; the statement's
subjects are the variant's other files. It holds no time, host, user or path, so that the same
build writes the same statement anywhere.

Formats: in-toto Statement v1 and SLSA Provenance v1 (slsa.dev/spec/v1.0/provenance).
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from kernforge.artifact.metadata import GitState
from kernforge.builder.results import ActionRecord
from kernforge.errors import IntegrityError
from kernforge.system import digest, untrusted
from kernforge.toolchain import lockfile
from kernforge.toolchain.lockfile import Lock, LockedWheel

if TYPE_CHECKING:
    from pydantic import TypeAdapter

FILE = "provenance.intoto.json"
_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://slsa.dev/provenance/v1"
_BUILD_TYPE = "urn:kernforge:build:1"
_BUILDER = "urn:kernforge:builder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Sources of a build.

    Attributes:
        sources: digest of the sources that go into any variant.
        git: commit and whether tracked files differed from it; None outside a checkout.
        folder: the project's path in its checkout, with ``/``; empty at the top.
    """

    sources: str
    version: str
    url: str | None = None
    git: GitState | None = None
    folder: str = ""


NO_LOCK = Lock(platform="")
"""The lock of a variant without machine code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Provenance of a variant.

    Attributes:
        lock: the part of the toolchain that this variant used.
        subjects: base64 SHA-256 of each of its other files, by path.
    """

    variant: str
    origin: Origin
    lock: Lock
    actions: tuple[ActionRecord, ...]
    subjects: Mapping[str, str] = field(default_factory=dict)

    @property
    def sandbox(self) -> dict[str, str]:
        """Isolation of its actions; the same on every machine with a sandbox."""
        if not all(action.isolated for action in self.actions):
            return {"isolation": "none", "network": "the machine's", "files": "all"}
        return {
            "isolation": "namespaces",
            "network": "none",
            "files": "the action's inputs; the locked toolchain and the system's /usr, read-only",
        }


def state(variant: str, origin: Origin, lock: Lock, actions: tuple[ActionRecord, ...]) -> Statement:
    """The statement of a variant that these actions made.

    One without machine code is the same whatever toolchain is there.
    """
    used = lock.part({name for action in actions for name in action.trees}) if actions else NO_LOCK
    return Statement(variant=variant, origin=origin, lock=used, actions=actions)


def facts(statement: Statement) -> dict[str, str]:
    """Summary for ``provenance.kernforge`` in ``metadata.json``."""
    origin = statement.origin
    summary = {"variant": statement.variant, "version": origin.version, "sources": origin.sources}
    if statement.actions:
        lock = statement.lock
        summary["lock"] = digest.sha256(lock.to_json())
        summary["compiler"] = ", ".join(compiler.identity for compiler in lock.compilers.values())
        if front := {tree.front_end.release for tree in lock.trees.values() if tree.front_end}:
            summary["cuda-compiler"] = f"front end of CUDA {', '.join(sorted(front))}"
    return summary


def write(statement: Statement) -> str:
    """Text of a variant's statement."""
    actions = statement.actions
    internal: dict[str, Any] = {
        "sandbox": statement.sandbox,
        "actions": [asdict(action) for action in actions],
    }
    for action in internal["actions"]:
        del action["isolated"]  # the sandbox says it of all
    if actions:
        internal["lock"] = json.loads(statement.lock.to_json())
    predicate = {
        "buildDefinition": {
            "buildType": _BUILD_TYPE,
            "externalParameters": {
                "source": asdict(statement.origin),
                "variant": statement.variant,
            },
            "internalParameters": internal,
            "resolvedDependencies": _dependencies(statement),
        },
        "runDetails": {
            "builder": {"id": _BUILDER, "version": {"kernforge": statement.origin.version}},
            "metadata": {},
        },
    }
    document = {
        "_type": _STATEMENT,
        "subject": [
            {"name": path, "digest": {"sha256": base64.b64decode(encoded).hex()}}
            for path, encoded in sorted(statement.subjects.items())
        ],
        "predicateType": _PREDICATE,
        "predicate": predicate,
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def read(text: str, *, source: str = FILE) -> Statement:
    """Parse a statement."""
    try:
        document = untrusted.parse_json(text)
        definition = document["predicate"]["buildDefinition"]
        if definition["buildType"] != _BUILD_TYPE:
            raise _invalid(source, f"its build type is {definition['buildType']!r}")
        external, internal = definition["externalParameters"], definition["internalParameters"]
        isolated, lock = internal["sandbox"]["isolation"] != "none", NO_LOCK
        if "lock" in internal:
            lock = lockfile.from_json(json.dumps(internal["lock"]), source=source)
        listed = {each["name"]: each["digest"]["sha256"] for each in document["subject"]}
        read: Statement = _adapter().validate_python(
            {
                "variant": external["variant"],
                "origin": external["source"],
                "lock": lock,
                "actions": [{**action, "isolated": isolated} for action in internal["actions"]],
                "subjects": {
                    path: base64.b64encode(bytes.fromhex(hexadecimal)).decode()
                    for path, hexadecimal in listed.items()
                },
            }
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # also pydantic's
        raise _invalid(source, f"{type(error).__name__} {error}") from error
    return read


@functools.cache
def _adapter() -> TypeAdapter[Statement]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - only a reader needs it

    return TypeAdapter(Statement)


def _dependencies(statement: Statement) -> list[dict[str, Any]]:
    origin, lock = statement.origin, statement.lock
    entries: list[dict[str, Any]] = []
    if origin.git:
        commit = {"gitCommit": origin.git.commit}
        entries.append({"name": "source", "uri": origin.url, "digest": commit})
    entries += [
        {
            "name": "host compiler" if name == "cxx" else f"compiler {name}",
            "annotations": asdict(used),
            "digest": {"sha256": used.key},
        }
        for name, used in lock.compilers.items()
    ]
    trees = lock.trees.values()
    entries += [
        {
            "name": str(tree),
            "annotations": {"release": tree.release},
            "digest": {"sha256": tree.digest},
        }
        for tree in trees
        if tree.digest
    ]
    entries += map(_fetched, sorted({wheel for tree in trees for wheel in tree.every_wheel}))
    return [{k: v for k, v in entry.items() if v is not None} for entry in entries]


def _fetched(wheel: LockedWheel) -> dict[str, Any]:
    """A wheel that some tree of a lock is made of."""
    name, version = wheel.file.split("-")[:2]
    dependency = {
        "name": wheel.file,
        "digest": {"sha256": wheel.sha256},
        "uri": f"pkg:pypi/{name.replace('_', '-').lower()}@{version}?file_name={wheel.file}",
    }
    if wheel.record:
        # A wheel that is read by ranges is checked against its RECORD; its hash is the index's
        # claim.
        return {**dependency, "annotations": {"record": wheel.record}}
    return dependency


def _invalid(source: str, reason: str) -> IntegrityError:
    return IntegrityError(
        f"{source} is no provenance statement of kernforge: {reason}",
        hint="build the kernel again with this kernforge",
    )
