# SPDX-License-Identifier: Apache-2.0
"""Names of kernels, versions, references and commits, and the request for one of them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kernforge.errors import RequestError

Version3: TypeAlias = tuple[int, int, int]
"""Major, minor and patch of a published version."""

SOURCE = "source"
"""The directory of a commit with the project that its variants were built from."""

BENCHMARKS = "benchmarks"
"""The directory of a commit with the scripts that measure its variants."""

COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
SHA256 = re.compile(r"[0-9a-f]{64}")

# Parts between slashes: none is empty, begins with a dot or with the prefix of unfinished files.
_REF = re.compile(r"(?:(?!\.|tmp-)[A-Za-z0-9._+-]+/)*(?!\.|tmp-)[A-Za-z0-9._+-]+")
LONGEST_REF = 200

_REPO_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*")
_TAG = re.compile(r"v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")
_BRANCH = re.compile(r"v(0|[1-9][0-9]*)")
_NUMBERS = re.compile(r"v?([0-9]+)((?:\.[0-9]+)*)")
# A major version, or a specifier whose bounds allow one only.
_ONE_MAJOR = re.compile(r"(?:==|~=)?(\d+)(?:\.[\d.*]+)?")
_MAJOR_REF = re.compile(r"v(\d+)(?:\..*)?")


def is_repo_id(text: str) -> bool:
    """Whether a text is ``owner/name`` without path traversal."""
    return bool(_REPO_ID.fullmatch(text)) and "--" not in text and ".." not in text


def check_repo_id(repo_id: str) -> str:
    """Return the repo id if it is valid."""
    if not is_repo_id(repo_id):
        raise RequestError(f"{repo_id!r} is not a repo id", hint="write it like owner/name")
    return repo_id


def directory_name(repo_id: str) -> str:
    """The name of a kernel's directory in a registry."""
    return f"kernels--{check_repo_id(repo_id).replace('/', '--')}"


def repo_ids(directories: Iterable[str]) -> tuple[str, ...]:
    """The kernels of a registry's directories, sorted; other directories are left out."""
    kernels = (name.removeprefix("kernels--") for name in directories if name[:9] == "kernels--")
    return tuple(sorted(filter(is_repo_id, (name.replace("--", "/") for name in kernels))))


def is_ref(text: str) -> bool:
    """Whether a text can name a branch, a tag or a commit in every registry."""
    return len(text) <= LONGEST_REF and bool(_REF.fullmatch(text))


def check_revision(text: str) -> str:
    """Return the name of a branch, tag or commit, if it is valid.

    Registries use it as the path of a file, so every untrusted name goes through here.
    """
    if not is_ref(text):
        raise RequestError(
            f"{text[:LONGEST_REF]!r} is not the name of a branch, a tag or a commit",
            hint="write letters, digits and . _ + - with single slashes between, as in v1.2.3 or "
            "team/dev; no part may begin with a dot or tmp-",
        )
    return text


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a kernel, by version or by revision.

    The door makes it; the registry, the trust policy (which compares the answer with it), the
    loader's cache and the messages take it.

    Attributes:
        version: a major version (``"1"``), or a PEP 440 specifier (``"==1.2.*"``).
        revision: a branch, tag or commit, where no version is given.
    """

    repo_id: str
    version: str | None = None
    revision: str | None = None

    @property
    def major(self) -> int | None:
        """The one major version that satisfies it; None if several do."""
        if self.version is not None:
            match = _ONE_MAJOR.fullmatch(self.version)
        else:
            match = _MAJOR_REF.fullmatch(self.revision or "")
        return int(match[1]) if match else None

    @property
    def is_branch_of_major(self) -> bool:
        """Whether it is for a whole major version, which has a branch of its own."""
        return self.version is not None and self.version.isdecimal()

    def __str__(self) -> str:
        return f"version {self.version}" if self.revision is None else f"revision {self.revision!r}"


@functools.lru_cache(maxsize=256, typed=True)
def request(repo_id: str, version: int | str | None = None, revision: str | None = None) -> Request:
    """Make a request of a version or a revision, of exactly one.

    Args:
        version: a major version, as ``1``, ``"1"`` or ``"v1"``; ``"1.2"`` for the newest ``1.2.*``;
            ``"1.2.3"`` exactly; or a PEP 440 specifier such as ``"~=1.2"``.
    """
    if (version is None) == (revision is None):
        given = f"{version!r} and {revision!r} are two"
        given = "none was given" if version is None else given
        raise RequestError(
            f"One of version and revision must be specified for {repo_id}; {given}",
            hint="pass version=<major> for a stable interface, or revision=<branch, tag or commit>",
        )
    check_repo_id(repo_id)
    if revision is not None:
        return Request(repo_id, revision=check_revision(revision))
    return Request(repo_id, version=specifier(str(version).strip()))


def specifier(text: str) -> str:
    """A version as a user writes it, as a major version or a PEP 440 specifier."""
    if numbers := _NUMBERS.fullmatch(text):
        if not numbers[2]:
            return str(int(numbers[1]))
        dots = numbers[2].count(".")
        return f"=={numbers[1]}{numbers[2]}{'.*' if dots == 1 else ''}"
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415 - slow

    try:
        canonical = str(SpecifierSet(text))
    except InvalidSpecifier:
        canonical = ""
    if canonical:
        return canonical
    raise RequestError(
        f"{text!r} is not a version",
        hint='write a major version like 1, or a range like "~=1.2" or ">=1.1,<2"',
    )


def versions(ref_names: Iterable[str]) -> dict[Version3, str]:
    """The published versions among references with the tag of each, oldest first."""
    matches = ((_TAG.fullmatch(name), name) for name in ref_names)
    tags = {(int(m[1]), int(m[2]), int(m[3])): name for m, name in matches if m}
    return dict(sorted(tags.items()))


def branches(refs: Mapping[str, str]) -> dict[str, str]:
    """The commits of ``v<major>`` and ``main``: they follow from the tags."""
    found = {}
    for (major, _, _), tag in versions(refs).items():
        found[f"v{major}"] = found["main"] = refs[tag]
    return found


def majors(ref_names: Iterable[str]) -> tuple[int, ...]:
    """The major versions that have a branch, ascending."""
    return tuple(sorted(int(m[1]) for name in ref_names if (m := _BRANCH.fullmatch(name))))


def dotted(version: Version3) -> str:
    """A version as text, as in ``1.2.3``."""
    return ".".join(map(str, version))


def tag_of(version: Version3) -> str:
    """The tag of a version, as in ``v1.2.3``."""
    return f"v{dotted(version)}"
