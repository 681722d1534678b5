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

from dataclasses import dataclass
from typing import Any

from kernforge import untrusted
from kernforge.errors import RequestError, UsageError
from kernforge.registry import names
from kernforge.registry.names import is_repo_id

FILE = "pyproject.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """A required kernel: exactly one of version, bounds and revision is given.

    Attributes:
        repo_id: ``owner/name``.
        version: a major version.
        bounds: a PEP 440 specifier.
        revision: a branch, tag or commit.
    """

    repo_id: str
    version: int | None = None
    bounds: str | None = None
    revision: str | None = None

    @property
    def asked(self) -> str:
        """The requirement, as a lock records it."""
        if self.revision is not None:
            return f"revision {self.revision}"
        return str(self.version) if self.bounds is None else self.bounds

    def allows(self, release: str) -> bool:
        """Whether a release such as ``1.4.2`` satisfies the requirement."""
        from packaging.specifiers import SpecifierSet  # noqa: PLC0415 - slow

        if self.bounds is not None:
            return release in SpecifierSet(self.bounds)
        return self.version is not None and release.partition(".")[0] == str(self.version)


def load_document(text: str, *, source: str = FILE) -> dict[str, Any]:
    """Parse a pyproject.toml.

    Raises:
        UsageError: it is not TOML.
    """
    try:
        return untrusted.parse_toml(text)
    except ValueError as error:
        raise UsageError(f"{source} is not TOML: {error}", hint="fix the file") from None


def read_dependencies(document: dict[str, Any], *, source: str = FILE) -> tuple[Dependency, ...]:
    """Every kernel that a project asks for, by repo id; none without the table.

    Raises:
        UsageError: entries cannot be read; the message has all of them.
    """
    table: Any = document
    for key in ("tool", "kernels", "dependencies"):
        table = table.get(key, {}) if isinstance(table, dict) else None
    if not isinstance(table, dict):
        raise UsageError(f"{source}: [tool.kernels.dependencies] is not a table", hint=_HINT)
    dependencies: list[Dependency] = []
    mistakes: list[str] = []
    for repo_id, asked in sorted(table.items()):
        problem = "" if is_repo_id(repo_id) else "is not owner/name"
        dependency, reason = _read_dependency(repo_id, asked)
        problem = problem or reason
        if problem or dependency is None:
            mistakes.append(f"{repo_id!r} {problem}")
        else:
            dependencies.append(dependency)
    if mistakes:
        listing = "\n  ".join(mistakes)
        raise UsageError(f"{source}, [tool.kernels.dependencies]:\n  {listing}", hint=_HINT)
    return tuple(dependencies)


_HINT = (
    'write it like "owner/name" = 1, "owner/name" = ">=1.2,<2" or '
    '"owner/name" = { revision = "main" }'
)


def _read_dependency(repo_id: str, asked: object) -> tuple[Dependency | None, str]:
    """The dependency, or what is wrong with it."""
    match asked:
        case bool():
            pass
        case int():
            if asked >= 0:
                return Dependency(repo_id=repo_id, version=asked), ""
        case str():
            return _read_bounds(repo_id, asked)
        case {"revision": str(revision), **rest} if names.is_ref(revision) and not rest:
            return Dependency(repo_id=repo_id, revision=revision), ""
        case {"version": (int() | str()) as version, **rest} if not rest:
            return _read_dependency(repo_id, version)
    return None, f"is {asked!r}, neither a version nor a revision"


def _read_bounds(repo_id: str, text: str) -> tuple[Dependency | None, str]:
    if not text.strip():
        return None, "is empty"
    try:
        bounds = names.specifier(text)
    except RequestError:
        return None, f"is {text!r}, which is not a version specifier"
    if bounds.isdecimal():
        return Dependency(repo_id=repo_id, version=int(bounds)), ""
    return Dependency(repo_id=repo_id, bounds=bounds), ""
