# SPDX-License-Identifier: Apache-2.0
"""Names of kernels, of their versions and of commits, as in every registry."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from kernforge.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

Version3: TypeAlias = tuple[int, int, int]
"""Major, minor and patch of a published version."""

SOURCE = "source"
"""The directory of a commit with the project that its variants were built from."""

BENCHMARKS = "benchmarks"
"""The directory of a commit with the scripts that measure its variants."""

COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
SHA256 = re.compile(r"[0-9a-f]{64}")
REF = re.compile(r"(?!.*(?:^|/)\.)[A-Za-z0-9._/+-]+")

_REPO_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*")
_TAG = re.compile(r"v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")
_BRANCH = re.compile(r"v(0|[1-9][0-9]*)")


def is_repo_id(text: str) -> bool:
    """Whether a text is ``owner/name`` and cannot name something outside of a registry."""
    return bool(_REPO_ID.fullmatch(text)) and "--" not in text and ".." not in text


def check_repo_id(repo_id: str) -> str:
    """Return the repo id if it is one.

    Raises:
        RequestError: it is not, see ``is_repo_id``.
    """
    if not is_repo_id(repo_id):
        raise RequestError(f"{repo_id!r} is not a repo id", hint="write it like owner/name")
    return repo_id


def versions(ref_names: Iterable[str]) -> dict[Version3, str]:
    """The published versions among references with the tag of each, oldest first."""
    matches = ((_TAG.fullmatch(name), name) for name in ref_names)
    tags = {(int(m[1]), int(m[2]), int(m[3])): name for m, name in matches if m}
    return dict(sorted(tags.items()))


def majors(ref_names: Iterable[str]) -> tuple[int, ...]:
    """The major versions that have a branch, ascending."""
    return tuple(sorted(int(m[1]) for name in ref_names if (m := _BRANCH.fullmatch(name))))


def dotted(version: Version3) -> str:
    """A version as text, as in ``1.2.3``."""
    return ".".join(map(str, version))


def tag_of(version: Version3) -> str:
    """The tag of a version, as in ``v1.2.3``."""
    return f"v{dotted(version)}"
