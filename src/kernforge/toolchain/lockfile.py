# SPDX-License-Identifier: Apache-2.0
"""kernforge.lock: exactly which compilers and headers a build used.

It names files and hashes, never a host: the index is the user's own. A wheel that is read by
ranges is pinned by the hash of its RECORD, against which every file of it is verified; one that is
read whole, by its own hash. The document is JSON with sorted keys, so that a change shows in a
diff as what it is.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from kernforge.artifact.version import Version2
from kernforge.errors import ToolchainError
from kernforge.system import digest, untrusted

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_VERSION = re.compile(r"(?:[0-9]{1,9}\.[0-9]{1,9})?")

FILE_NAME = "kernforge.lock"
VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LockedWheel:
    """One wheel; ``record`` is the hash of its RECORD if it is read by ranges, else empty."""

    file: str
    sha256: str
    record: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedFrontEnd:
    """The parts that a CUDA without nvcc takes from others, each read by ranges from a wheel.

    Attributes:
        release: full version of the CUDA whose front end compiles, as ``"13.0.3"``.
        compiler: for nvcc, ``cudafe++`` and ``fatbinary``.
        optimizer: for ``cicc``.
        headers: for the header that the front end's host code includes.
        runtime: for the static runtime library, which not every release's wheel has.
    """

    release: str
    compiler: LockedWheel
    optimizer: LockedWheel
    headers: LockedWheel
    runtime: LockedWheel

    @property
    def wheels(self) -> tuple[LockedWheel, ...]:
        """All of its wheels."""
        return (self.compiler, self.optimizer, self.headers, self.runtime)


@dataclass(frozen=True, slots=True, order=True)
class Tree:
    """A directory of compilers or headers that builds read.

    Attributes:
        kind: ``cuda``, ``cuda-libraries``, ``cudart``, ``torch``, ``tvm-ffi``, ``python``, ``cxx``
            or the name of a CUTLASS, as ``cutlass_3_6``.
        version: of the release, as ``"13.0"``; empty where there is only one.
        cpu: another processor than the building machine's, for which it is.
    """

    kind: str
    version: str = ""
    cpu: str = ""

    @classmethod
    def of(cls, kind: str, version: Version2, cpu: str = "") -> Tree:
        """The tree of a release."""
        return Tree(kind, str(version), cpu)

    @property
    def name(self) -> str:
        """Its name in locks and in arguments, as ``aarch64-torch-2.10``."""
        return "-".join(filter(None, (self.cpu, self.kind, self.version)))

    def at(self, path: str = "") -> str:
        """A path in it as an argv writes it, which becomes a real one when an action runs."""
        return f"%{{{self.name}}}/{path}" if path else f"%{{{self.name}}}"

    def __str__(self) -> str:
        """What it is, for a person to read."""
        words = _WORDS.get(self.kind, self.kind)
        where = f" for {self.cpu}" if self.cpu else ""
        return f"{words} {self.version}".rstrip() + where


CXX = Tree("cxx").at()
"""The building machine's C++ compiler, as an argv writes it."""
THREADS = "%{threads}"
"""How many threads an action may use, as an argv writes it; not a tree."""
HERE = "%{here}"
"""The directory in which an action runs, as an argv writes it; not a tree."""
_WORDS = {
    "cuda": "CUDA",
    "cudart": "CUDA",
    "cuda-libraries": "libraries of CUDA",
    "cxx": "compiler",
    "python": "headers of Python",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedTree(Tree):
    """A tree as a lock pins it: made of wheels, or what the user has on the machine.

    Attributes:
        release: its full version, as ``"13.0.3"``; empty where it is not known.
        wheels: of what it is made.
        digest: hex digest of what the user has, in the place of wheels.
        front_end: what a later CUDA gives; then ``wheels`` hold the rest of the toolkit.
    """

    release: str = ""
    wheels: tuple[LockedWheel, ...] = ()
    digest: str = ""
    front_end: LockedFrontEnd | None = None

    @property
    def every_wheel(self) -> tuple[LockedWheel, ...]:
        """Its wheels, and those of its front end."""
        return (*self.wheels, *(self.front_end.wheels if self.front_end else ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedCompiler:
    """The host's C++ compiler: not shipped, only recognised.

    Attributes:
        identity: first line of its ``--version``.
        target: its ``-dumpmachine``.
        parts: hex digest of each part that can change what it makes: its programs, the libraries
            that it links, the system's headers. Empty in a lock from before this was recorded.
    """

    identity: str
    target: str
    parts: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Key of it: two compilers that could make different bytes have different ones."""
        return digest.key("compiler", of=[self.identity, self.target], parts=self.parts)

    def difference(self, other: LockedCompiler) -> str:
        """In words what ``other`` has that this one has not; empty when they serve alike."""
        if (self.identity, self.target) != (other.identity, other.target):
            return f"{self.identity} ({self.target}) is wanted; here is {other.identity}"
        if not self.parts or not other.parts:
            return ""
        names = {*self.parts, *other.parts}
        changed = sorted(n for n in names if self.parts.get(n) != other.parts.get(n))
        return f"{self.identity}: {', '.join(changed)} differ here" if changed else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """A toolchain lock.

    Attributes:
        platform: the building machine's kind, as ``"x86_64-linux"``.
        compilers: by the names of their trees, as ``cxx`` and ``aarch64-cxx``.
    """

    platform: str
    compilers: Mapping[str, LockedCompiler] = field(default_factory=dict)
    trees: Mapping[str, LockedTree] = field(default_factory=dict)

    def to_json(self) -> str:
        """Text of the lock file."""
        document = {
            "lock-version": VERSION,
            "platform": self.platform,
            "compilers": {name: asdict(compiler) for name, compiler in self.compilers.items()},
            "trees": {
                name: {key: value for key, value in asdict(tree).items() if value}
                for name, tree in self.trees.items()
            },
        }
        return json.dumps(document, indent=2, sort_keys=True) + "\n"

    def tree(self, name: str) -> LockedTree:
        """The tree of this name."""
        if name not in self.trees:
            raise ToolchainError(
                f"the toolchain lock has no {_WORDS.get(name, name)}",
                hint="run `kernforge lock`, or build without --locked",
            )
        return self.trees[name]

    def toolkit(self, version: Version2 | None) -> LockedTree:
        """The toolkit of a CUDA version."""
        return self.tree(Tree("cuda", str(version)).name)

    def versions(self, kind: str, cpu: str = "") -> tuple[str, ...]:
        """Versions of its trees of a kind."""
        return tuple(t.version for t in self.trees.values() if (t.kind, t.cpu) == (kind, cpu))

    def having(self, *trees: LockedTree) -> Lock:
        """Return this lock with these trees in addition, or in the place of those it has."""
        return replace(self, trees={**self.trees, **{tree.name: tree for tree in trees}})

    def merged(self, other: Lock) -> Lock:
        """Return this lock with what ``other`` has more or newer."""
        return Lock(
            platform=other.platform,
            compilers={**self.compilers, **other.compilers},
            trees={**self.trees, **other.trees},
        )

    def part(self, names: Collection[str]) -> Lock:
        """The part of it that builds which read these trees need, whatever else it has."""
        return replace(
            self,
            compilers={name: c for name, c in self.compilers.items() if name in names},
            trees={name: tree for name, tree in self.trees.items() if name in names},
        )


@functools.lru_cache(maxsize=8)
def from_json(text: str, *, source: str = FILE_NAME) -> Lock:
    """Parse a lock file."""
    try:
        data = untrusted.parse_json(text)
        version = data.pop("lock-version")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise _damaged(source, str(error)) from error
    if version != VERSION:
        raise ToolchainError(
            f"{source} has lock-version {version!r}; this kernforge reads {VERSION}",
            hint="upgrade kernforge, or write the lock again with `kernforge lock`",
        )
    try:
        lock: Lock = _adapter().validate_python(data)
    except ValueError as error:
        raise _damaged(source, " ".join(str(error).split())) from error
    for name, tree in lock.trees.items():
        if name != tree.name or not _VERSION.fullmatch(tree.version):
            raise _damaged(source, f"{name[:80]!r} is not the name of a tree such as torch-2.10")
    return lock


@functools.cache
def _adapter() -> TypeAdapter[Lock]:
    # A lock that is made of values needs none of it.
    from pydantic import TypeAdapter  # noqa: PLC0415

    return TypeAdapter(Lock)


def _damaged(source: str, reason: str) -> ToolchainError:
    return ToolchainError(
        f"{source} is not a toolchain lock: {reason}",
        hint="restore it from version control, or delete it and run `kernforge lock`",
    )
