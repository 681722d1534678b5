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
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from kernforge import untrusted
from kernforge.artifact.version import Version2
from kernforge.errors import ToolchainError
from kernforge.system import digest
from kernforge.toolchain import front_end

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_VERSION = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}")

FILE_NAME = "kernforge.lock"
VERSION = 1


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedToolkit:
    """A CUDA toolkit: from wheels, or a directory on the user's machine.

    Attributes:
        release: its full version, as ``"13.0.3"``.
        wheels: compilers, runtime and headers.
        libraries: wheels of which only the headers are read, for sources that include headers of
            CUDA's libraries.
        directory: hex digest of what a directory that the user names says of itself.
        front_end: what a later CUDA gives; then ``wheels`` are read by ranges and hold the rest.
            None where all is of one CUDA.
    """

    release: str
    wheels: tuple[LockedWheel, ...] = ()
    libraries: tuple[LockedWheel, ...] = ()
    directory: str = ""
    front_end: LockedFrontEnd | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedHeaders:
    """The headers of a library: from a wheel, or from files that the user names.

    Attributes:
        release: its version; empty where it is not known.
        digest: hex digest of the user's header files and their names, in the place of a wheel.
    """

    release: str
    wheel: LockedWheel | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedTorch:
    """The headers of one torch release."""

    release: str
    wheel: LockedWheel


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
        if not self.identity:  # of a variant that was made by another compiler
            return ""
        if (self.identity, self.target) != (other.identity, other.target):
            return f"{self.identity} ({self.target}) is wanted; here is {other.identity}"
        if not self.parts or not other.parts:
            return ""
        names = {*self.parts, *other.parts}
        changed = sorted(n for n in names if self.parts.get(n) != other.parts.get(n))
        return f"{self.identity}: {', '.join(changed)} differ here" if changed else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedCross:
    """What a build for another processor needs in the place of the building machine's.

    Attributes:
        compiler: the C++ compiler that makes its machine code.
        torch: header releases of that processor's wheels by ``"major.minor"``.
        runtime: wheel with the static CUDA runtime by toolkit.
    """

    compiler: LockedCompiler
    torch: Mapping[str, LockedTorch] = field(default_factory=dict)
    runtime: Mapping[str, LockedWheel] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedPython:
    """Python's own headers: not shipped, only recognised.

    Attributes:
        release: the version of the Python that they belong to.
        headers: hex digest of their names and contents.
    """

    release: str
    headers: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """A toolchain lock.

    Attributes:
        platform: the building machine's kind, as ``"x86_64-linux"``.
        cuda: toolkits by ``"major.minor"``.
        torch: header releases by ``"major.minor"``.
        headers: other libraries' headers by the name of their tree, as ``"cutlass_3_6"``.
        python: Python's headers, if a source includes them.
        cross: what builds for other processors need, by processor.
    """

    platform: str
    compiler: LockedCompiler
    cuda: Mapping[str, LockedToolkit] = field(default_factory=dict)
    torch: Mapping[str, LockedTorch] = field(default_factory=dict)
    headers: Mapping[str, LockedHeaders] = field(default_factory=dict)
    python: LockedPython | None = None
    cross: Mapping[str, LockedCross] = field(default_factory=dict)

    def to_json(self) -> str:
        """Text of the lock file."""
        document = {"lock-version": VERSION, **asdict(self)}
        for toolkit in document["cuda"].values():
            if toolkit["front_end"] is None:  # locks and statements from before stay as they are
                del toolkit["front_end"]
        if not self.cross:  # a lock for one processor stays as it was before there were others
            del document["cross"]
        return json.dumps(document, indent=2, sort_keys=True) + "\n"

    def check_versions(self) -> None:
        """Raise ``ValueError`` where a toolkit or a torch is not named by its version."""
        tables = (
            self.cuda,
            self.torch,
            *(t for c in self.cross.values() for t in (c.torch, c.runtime)),
        )
        for name in (name for table in tables for name in table):
            if not _VERSION.fullmatch(name):
                raise ValueError(f"{name[:80]!r} is not a version such as 13.0")

    def merged(self, other: Lock) -> Lock:
        """Return this lock with what ``other`` has more or newer."""
        return replace(
            other,
            cuda={**self.cuda, **other.cuda},
            torch={**self.torch, **other.torch},
            headers={**self.headers, **other.headers},
            python=other.python or self.python,
            cross={
                **self.cross,
                **{cpu: _merged(self.cross.get(cpu), new) for cpu, new in other.cross.items()},
            },
        )


def from_json(text: str, *, source: str = FILE_NAME) -> Lock:
    """Parse a lock file.

    Raises:
        ToolchainError: it is not one, or of a version that this kernforge does not know.
    """
    try:
        data = untrusted.parse_json(text)
        version = data.pop("lock-version")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise _damaged(source, str(error)) from error
    if version != VERSION:
        raise ToolchainError(
            f"{source} has lock-version {version!r}; this kernforge reads {VERSION}",
            hint="upgrade kernforge, or write the lock again with `kernforge lock-toolchain`",
        )
    try:
        lock: Lock = _adapter().validate_python(data)
        lock.check_versions()
    except ValueError as error:  # also pydantic's
        raise _damaged(source, " ".join(str(error).split())) from error
    return lock


@functools.cache
def _adapter() -> TypeAdapter[Lock]:
    # Whoever makes a lock of values does without it.
    from pydantic import TypeAdapter  # noqa: PLC0415

    return TypeAdapter(Lock)


def on_machine(
    lock: Lock,
    compiler: LockedCompiler,
    python: LockedPython | None,
    cross: Mapping[str, LockedCompiler],
) -> Lock:
    """Return the lock as it is on a machine with these compilers and these headers of Python."""
    here = {cpu: replace(lock.cross[cpu], compiler=found) for cpu, found in cross.items()}
    return replace(
        lock, compiler=compiler, python=python or lock.python, cross={**lock.cross, **here}
    )


def toolkit(lock: Lock, version: Version2) -> LockedToolkit:
    """The lock's toolkit of a CUDA version.

    Raises:
        ToolchainError: it has none.
    """
    name = str(version)
    if name not in lock.cuda:
        raise _not_locked(f"CUDA {name}")
    return lock.cuda[name]


def part(lock: Lock, roots: Collection[str]) -> Lock:
    """The part of a lock that builds which read these trees need, whatever else it has."""

    def read(kind: str, name: str) -> bool:
        return any(root == name or f"{root}-".startswith(f"{kind}-{name}-") for root in roots)

    kept: dict[str, Any] = {}
    for field_ in fields(lock):
        entries = getattr(lock, field_.name)
        if isinstance(entries, Mapping):
            kept[field_.name] = {n: e for n, e in entries.items() if read(field_.name, n)}
    kept["cross"] = {
        cpu: LockedCross(
            compiler=entry.compiler,
            torch={n: e for n, e in entry.torch.items() if f"{cpu}-torch-{n}" in roots},
            runtime={n: e for n, e in entry.runtime.items() if f"{cpu}-cudart-{n}" in roots},
        )
        for cpu, entry in lock.cross.items()
        if f"{cpu}-cxx" in roots
    }
    if kept["cross"] and "cxx" not in roots:
        kept["compiler"] = LockedCompiler(identity="", target="")
    return replace(lock, python=lock.python if "python" in roots else None, **kept)


def toolkit_key(toolkit: LockedToolkit) -> str:
    """Key of a toolkit's compilers, runtime and headers in the store."""
    if toolkit.directory:
        return digest.key("cuda-directory", digest=toolkit.directory)
    if toolkit.front_end:
        return front_end.key(toolkit)
    return digest.key("cuda-toolkit", layout=1, wheels=[w.sha256 for w in sorted(toolkit.wheels)])


def headers_key(headers: LockedHeaders) -> str:
    """Key of a library's headers in the store."""
    if headers.wheel:
        return wheel_headers_key(headers.wheel)
    return digest.key("header-files", digest=headers.digest)


def runtime_key(wheel: LockedWheel) -> str:
    """Key of the static CUDA runtime of one range-read wheel in the store."""
    return digest.key("wheel-cudart", layout=1, record=wheel.record)


def wheel_headers_key(wheel: LockedWheel) -> str:
    """Key of the headers of one range-read wheel in the store."""
    return digest.key("wheel-headers", layout=1, record=wheel.record)


def tree_key(maker: str, content: str) -> str:
    """Key of a tree in the store, by who makes it of a wheel with this content.

    Different makers take different members of one wheel, so that each has keys of its own.
    """
    return digest.key("headers-of-wheel", maker=maker, content=content)


def identity(root: str, lock: Lock) -> str:
    """What a tree of the toolchain is, whatever its path; ``tree_names`` makes the names.

    Raises:
        ToolchainError: the lock does not have it.
    """
    kind, _, rest = root.partition("-")
    if kind in lock.cross:
        return _cross_identity(rest, lock.cross[kind], kind)
    if kind == "cxx":
        return lock.compiler.key
    if kind == "python":
        if lock.python is None:
            raise _not_locked("headers of Python")
        return lock.python.headers
    if kind == "torch" and root not in lock.headers:
        if rest not in lock.torch:
            raise _not_locked(f"torch {rest}")
        return wheel_headers_key(lock.torch[rest].wheel)
    if kind == "cuda":
        version, _, library = rest.partition("-")
        kit = toolkit(lock, Version2.parse(version))
        if not library:
            return toolkit_key(kit)
        (wheel,) = [w for w in kit.libraries if w.file.partition("-")[0] == library]
        return wheel_headers_key(wheel)
    if root not in lock.headers:
        raise _not_locked(root)
    return headers_key(lock.headers[root])


def _cross_identity(root: str, cross: LockedCross, cpu: str) -> str:
    """What a tree for another processor is."""
    kind, _, version = root.partition("-")
    if kind == "cxx":
        return cross.compiler.key
    if kind == "torch" and version in cross.torch:
        return wheel_headers_key(cross.torch[version].wheel)
    if kind == "cudart" and version in cross.runtime:
        return runtime_key(cross.runtime[version])
    raise _not_locked(f"{kind} {version} for {cpu}")


def _merged(old: LockedCross | None, new: LockedCross) -> LockedCross:
    if old is None:
        return new
    return replace(new, torch={**old.torch, **new.torch}, runtime={**old.runtime, **new.runtime})


def _not_locked(what: str) -> ToolchainError:
    return ToolchainError(
        f"the toolchain lock has no {what}",
        hint="run `kernforge lock-toolchain`, or build without --locked",
    )


def _damaged(source: str, reason: str) -> ToolchainError:
    return ToolchainError(
        f"{source} is not a toolchain lock: {reason}",
        hint="restore it from version control, or delete it and run `kernforge lock-toolchain`",
    )
