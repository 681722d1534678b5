# SPDX-License-Identifier: Apache-2.0
"""Read what built variants offer, for the comparison of versions, without importing them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kernforge.artifact.metadata import FILE, Metadata
from kernforge.artifact.variant import Variant
from kernforge.errors import IntegrityError
from kernforge.publish.api_diff import Offer
from kernforge.registry.base import Registry
from kernforge.source import op_schema, python_api
from kernforge.source.python_api import ApiEntry


def offer(directory: Path, metadata: Metadata) -> Offer:
    """What the variant in a directory offers.

    Raises:
        CheckError: a module of the variant cannot be parsed.
    """
    sources = {
        path.relative_to(directory).as_posix(): path.read_text(errors="replace")
        for path in sorted(directory.rglob("*.py"))
    }
    return Offer(
        name=directory.name,
        backend=metadata.backend,
        archs=metadata.archs,
        api=python_api.read_package(sources),
        ops=_operators(directory.name, metadata),
        python_depends=metadata.python_depends,
    )


def _operators(name: str, metadata: Metadata) -> Mapping[str, ApiEntry] | None:
    recorded = metadata.provenance.kernforge.get("ops") if metadata.provenance else None
    if recorded is None:
        return {} if Variant.parse(name).is_noarch else None
    if not isinstance(recorded, list) or not all(isinstance(text, str) for text in recorded):
        raise IntegrityError(
            f"{name}/{FILE}: 'ops' is not a list of operator schemas", hint="build the kernel again"
        )
    return op_schema.read_operators(recorded)


def published(registry: Registry, repo_id: str, commit: str) -> tuple[Offer, ...]:
    """What every variant of a published version offers, sorted by name."""
    return tuple(
        offer(
            registry.fetch(repo_id, commit, name),
            Metadata.from_json(
                registry.metadata(repo_id, commit, name), source=f"{repo_id}/build/{name}/{FILE}"
            ),
        )
        for name in registry.variants(repo_id, commit)
    )
