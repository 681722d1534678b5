# SPDX-License-Identifier: Apache-2.0
"""``[tool.kernels.dependencies]`` of a pyproject.toml: the kernels that an application requires.

A whole number is a major version, as in the ``kernels`` client. Beyond that client's table, a
string bounds the version (PEP 440), and a table names a revision::

    [tool.kernels.dependencies]
    "owner/relu" = 1
    "owner/norm" = ">=1.2,<2"
    "owner/test" = { revision = "main" }
"""

from __future__ import annotations

from typing import Any

from kernforge import untrusted
from kernforge.errors import RequestError, UsageError
from kernforge.registry.names import Request, request

FILE = "pyproject.toml"


def as_text(dependency: Request) -> str:
    """A requirement as a lock records it."""
    return dependency.version or f"revision {dependency.revision}"


def allows(dependency: Request, release: str) -> bool:
    """Whether a release such as ``1.4.2`` satisfies a requirement; false for a revision."""
    if dependency.version is None or dependency.is_branch_of_major:
        return release.partition(".")[0] == dependency.version
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415 - slow

    return release in SpecifierSet(dependency.version)


def load_document(text: str, *, source: str = FILE) -> dict[str, Any]:
    """Parse a pyproject.toml."""
    try:
        return untrusted.parse_toml(text)
    except ValueError as error:
        raise UsageError(f"{source} is not TOML: {error}", hint="fix the file") from None


def read_dependencies(document: dict[str, Any], *, source: str = FILE) -> tuple[Request, ...]:
    """The required kernels of a project, by repo id; none without the table."""
    hint = (
        'write it like "owner/name" = 1, "owner/name" = ">=1.2,<2" or '
        '"owner/name" = { revision = "main" }'
    )
    table: Any = document
    for key in ("tool", "kernels", "dependencies"):
        table = table.get(key, {}) if isinstance(table, dict) else None
    if not isinstance(table, dict):
        raise UsageError(f"{source}: [tool.kernels.dependencies] is not a table", hint=hint)
    dependencies: list[Request] = []
    mistakes: list[str] = []
    for repo_id, wanted in sorted(table.items()):
        try:
            dependencies.append(_read_dependency(repo_id, wanted))
        except RequestError as error:
            mistakes.append(f"{repo_id!r} = {wanted!r}: {error.message}")
    if mistakes:
        listing = "\n  ".join(mistakes)
        raise UsageError(f"{source}, [tool.kernels.dependencies]:\n  {listing}", hint=hint)
    return tuple(dependencies)


def _read_dependency(repo_id: str, wanted: object) -> Request:
    match wanted:
        case {"revision": str(revision), **rest} if not rest:
            return request(repo_id, revision=revision)
        case {"version": version, **rest} if not rest:
            wanted = version
    if isinstance(wanted, bool) or not isinstance(wanted, int | str):
        raise RequestError("it is neither a version nor a revision")
    return request(repo_id, wanted)
