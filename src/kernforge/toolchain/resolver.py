# SPDX-License-Identifier: Apache-2.0
"""Write a toolchain lock: ask the user's indexes which wheels a build of this project needs.

A CUDA toolkit's wheels are those that NVIDIA's ``cuda-toolkit`` metapackage of that release pins.
The newest patch release of what is asked for is taken; what a lock already has stays, unless the
caller asks for an upgrade. What the user provides (an installed toolkit, header files) goes before
the index.
"""

from __future__ import annotations

import enum
import functools
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from packaging.metadata import parse_email
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from kernforge.artifact.version import Version2
from kernforge.errors import IntegrityError, NetworkError, ToolchainError, UnavailableError
from kernforge.system import files, untrusted
from kernforge.system.digest import sha256
from kernforge.toolchain import front_end, header_libraries, lockfile, projects, used
from kernforge.toolchain.index.index import Distribution
from kernforge.toolchain.index.remote_zip import LocalWheel
from kernforge.toolchain.index.wheels import Wheels
from kernforge.toolchain.local_parts import LocalParts
from kernforge.toolchain.lockfile import (
    Lock,
    LockedCompiler,
    LockedFrontEnd,
    LockedTree,
    LockedWheel,
    Tree,
)

_META = "cuda-toolkit"
_REMEMBERED = "toolchain.lock"
_SHOWN = 8
_NO_PARTS = LocalParts()
_OLDEST_OWN_RUNTIME = 13


def lacking(
    wanted: Iterable[Tree], lock: Lock | None, local_parts: LocalParts = _NO_PARTS
) -> frozenset[Tree]:
    """What a lock lacks of what a build needs, or has from elsewhere than the user wants."""
    return frozenset(t for t in wanted if lock is None or not _serves(lock, t, local_parts))


def _serves(lock: Lock, tree: Tree, local_parts: LocalParts) -> bool:
    known = lock.trees.get(tree.name)
    if known is None:
        return _in_toolkit(tree, local_parts) or tree.name in lock.compilers
    if tree.kind == "python":  # it is looked at anew for each build
        return True
    if here := local_parts.of(tree):
        return known.digest == here.locked.digest
    return tree.kind != "torch" or not known.digest


def _in_toolkit(tree: Tree, local_parts: LocalParts) -> bool:
    """Whether a tree is the libraries of an installed toolkit, which has their headers."""
    cuda = tree.kind == "cuda-libraries" and local_parts.of(Tree("cuda", tree.version))
    return bool(cuda)


def make(
    wanted: Iterable[Tree],
    wheels: Wheels,
    *,
    cpu: str,
    compilers: Mapping[str, LockedCompiler],
    local_parts: LocalParts = _NO_PARTS,
    old: Lock | None = None,
) -> Lock:
    """Resolve trees to files and hashes; toolkits of an old lock are completed in their release.

    Args:
        compilers: of this machine, by the names of their trees.
    """
    resolver = _Resolver(wheels, cpu, local_parts, old)
    # The runtime for another processor follows the toolkit.
    ordered = sorted(tree for tree in wanted if tree.name not in compilers)
    for tree in ordered:
        resolver.add(tree)
    return Lock(platform=f"{cpu}-linux", compilers=compilers, trees=resolver.made)


def remember(home: Path, lock: Lock) -> None:
    """Add what came from the indexes to the lock that kernforge keeps for itself."""
    known = remembered(home, lock.platform)
    both = known.merged(lock) if known else lock
    fetched = {name: tree for name, tree in both.trees.items() if tree.wheels}
    fetched_lock = replace(both, trees=fetched, compilers={})
    files.write_atomic(home / _REMEMBERED, fetched_lock.to_json(), durable=False)


def remembered(home: Path, platform: str) -> Lock | None:
    """The lock that kernforge keeps for itself, so that nothing is asked for twice.

    None where there is none for this kind of machine that can be read.
    """
    try:
        lock = lockfile.from_json((home / _REMEMBERED).read_text())
    except (OSError, ValueError, ToolchainError):  # damaged, or of another version
        return None
    return lock if lock.platform == platform else None


class Policy(enum.Enum):
    """Where trees come from that the user does not have."""

    NEWEST = "the indexes; where they cannot give them, earlier builds"
    RENEWED = "the indexes alone"
    KNOWN = "earlier builds; what they lack, the indexes"
    USED = "the last build; nothing is fetched"


def provide(
    wanted: Iterable[Tree],
    wheels: Wheels,
    policy: Policy,
    *,
    home: Path,
    cpu: str,
    compilers: Mapping[str, LockedCompiler],
    local_parts: LocalParts = _NO_PARTS,
    old: Lock | None = None,
) -> Lock:
    """Lock trees: what the user has as it is here, the others as the policy says.

    Args:
        compilers: of this machine, by the names of their trees.
        old: its toolkits are completed in their releases.
    """
    wanted = tuple(wanted)
    own = [t for t in wanted if local_parts.of(t) or _in_toolkit(t, local_parts)]
    others = [tree for tree in wanted if tree not in own and tree.name not in compilers]
    known = Lock(platform=f"{cpu}-linux")
    if policy is Policy.USED:
        # A tree that no plan has used is in no key.
        bare = (LockedTree(kind=tree.kind, version=tree.version) for tree in others)
        known = known.having(*bare).merged(used.read(home) or known)
    elif others:
        known = remembered(home, known.platform) or known
    missing = lacking(others, known)
    asked = {Policy.USED: (), Policy.KNOWN: missing}.get(policy, others)
    make_lock = functools.partial(
        make,
        wheels=wheels,
        cpu=cpu,
        compilers=compilers,
        local_parts=local_parts,
        old=known if policy is Policy.KNOWN else old,
    )
    try:
        made = make_lock([*own, *asked])
    except (NetworkError, ToolchainError) as error:
        if policy is not Policy.NEWEST or missing:
            raise
        wheels.progress.note(f"{error.message}: the toolchain of earlier builds is locked")
        made, asked = make_lock(own), ()
    if asked:
        remember(home, made)
    return known.part({tree.name for tree in others}).merged(made)


class _Resolver:
    """Finds the wheels of trees, one after the other."""

    def __init__(self, wheels: Wheels, cpu: str, local_parts: LocalParts, old: Lock | None) -> None:
        self._wheels, self._cpu, self._local_parts = wheels, cpu, local_parts
        self._old = old.trees if old else {}
        self._release = functools.cache(self._find_release)
        self.made: dict[str, LockedTree] = {}

    def add(self, tree: Tree) -> None:
        """Resolve a tree."""
        if _in_toolkit(tree, self._local_parts):
            return
        here = self._local_parts.of(tree)
        self.made[tree.name] = here.locked if here else self._from_wheels(tree)

    def _from_wheels(self, tree: Tree) -> LockedTree:
        match tree.kind:
            case "cuda" | "cuda-libraries":
                return self._toolkit(tree)
            case "cudart":
                return self._runtime(tree)
            case "torch":
                # The wheels without a local version are the CUDA ones: a CPU wheel lacks headers
                # that CUDA sources want. Headers do not differ between Pythons, so any
                # interpreter's wheel will do.
                return self._newest(tree, projects.TORCH, f"{tree.version}.*")
            case "tvm-ffi":
                return self._newest(tree, projects.TVM_FFI, f"{tree.version}.*")
            case _:
                return self._cutlass(tree)

    def _newest(self, tree: Tree, project: str, version: str) -> LockedTree:
        """The tree of the newest wheel of a version, which is read by ranges."""
        # CUTLASS is the same for every processor: the wheel of any will do.
        cpu = "" if project in projects.CUTLASS else tree.cpu or self._cpu
        wheel = matching(self._wheels, project, SpecifierSet(f"=={version}"), cpu)
        return _locked(tree, str(wheel.version), by_record(wheel, self._wheels))

    def _cutlass(self, tree: Tree) -> LockedTree:
        carried = header_libraries.CARRIED.get(tree.name)
        if carried is None:
            raise header_libraries.no_wheel(tree.name)
        try:
            locked = self._newest(tree, carried.project, carried.version)
        except ToolchainError as error:
            raise header_libraries.no_wheel(tree.name) from error
        return replace(locked, release=carried.release)

    def _toolkit(self, tree: Tree) -> LockedTree:
        """The toolkit of a CUDA release, or the headers of its libraries."""
        meta, pins = self._release(tree.version)
        adapts = Version2.parse(tree.version) in front_end.TOOLKITS
        if tree.kind == "cuda-libraries":
            names = [name for name in projects.LIBRARIES_12 if name in pins]
            wheels = self._pinned(tree.version, names if adapts else projects.LIBRARIES)
        elif adapts:
            wheels = self._pinned(tree.version, projects.TOOLKIT_12)
        else:
            wheels = self._pinned(tree.version, projects.TOOLKIT, whole=True)
        locked = _locked(tree, str(meta.version), *wheels)
        is_toolkit = adapts and tree.kind == "cuda"
        return replace(locked, front_end=self._front_end()) if is_toolkit else locked

    def _front_end(self) -> LockedFrontEnd:
        """What CUDA 12's own wheels lack, of a later CUDA."""
        version = front_end.FRONT_END_OF
        compiler, headers, optimizer = self._pinned(version, projects.TOOLKIT[:3])
        (runtime,) = self._pinned(front_end.RUNTIME_OF, [projects.RUNTIME_12])
        names = self._wheels.parts(runtime.file, runtime.sha256).names()
        if not any(name.endswith(f"/{front_end.RUNTIME}") for name in names):
            raise ToolchainError(
                f"{runtime.file} holds no {front_end.RUNTIME}", hint=front_end.OTHER_TOOLKIT
            )
        return LockedFrontEnd(
            release=str(self._release(version)[0].version),
            compiler=compiler,
            optimizer=optimizer,
            headers=headers,
            runtime=runtime,
        )

    def _find_release(self, version: str) -> tuple[Distribution, Mapping[str, SpecifierSet]]:
        """NVIDIA's metapackage of a CUDA, and what it pins; an old lock's release stays."""
        locked = self._old.get(Tree("cuda", version).name)
        release = locked.release if locked and locked.wheels else f"{version}.*"
        meta = matching(self._wheels, _META, SpecifierSet(f"=={release}"), self._cpu)
        return meta, requirements(self._wheels.whole(meta.file, meta.sha256))

    def _pinned(
        self, version: str, names: Iterable[str], *, whole: bool = False
    ) -> tuple[LockedWheel, ...]:
        """The wheels of projects that a release of CUDA pins, to be read by ranges or whole."""
        meta, pins = self._release(version)
        if missing := [name for name in names if name not in pins]:
            raise UnavailableError(
                f"CUDA {meta.version} has no package-index wheels of {', '.join(missing)}",
                hint=f"wheels serve {', '.join(map(str, front_end.TOOLKITS))} and CUDA 13; for "
                f"another one {front_end.OTHER_TOOLKIT}",
            )
        pin = as_a_whole if whole else by_record
        wheels = (matching(self._wheels, n, pins[n], self._cpu) for n in names)
        return tuple(pin(wheel, self._wheels) for wheel in wheels)

    def _runtime(self, tree: Tree) -> LockedTree:
        """The static runtime for another processor, in the release of the toolkit that is used."""
        old = Version2.parse(tree.version).major < _OLDEST_OWN_RUNTIME
        project = projects.RUNTIME_12 if old else projects.RUNTIME
        name = Tree("cuda", tree.version).name
        toolkit = self.made.get(name) or self._old.get(name)
        start = f"{project.replace('-', '_')}-"
        files = [wheel.file for wheel in toolkit.every_wheel] if toolkit else []
        # Of CUDA 12 only the last series has the library in its wheels.
        series = front_end.RUNTIME_OF if old else tree.version
        own = [file for file in files if file.startswith(start) and (not old or series in file)]
        return self._newest(tree, project, own[0].split("-")[1] if own else f"{series}.*")


def _locked(tree: Tree, release: str, *wheels: LockedWheel) -> LockedTree:
    return LockedTree(
        kind=tree.kind, version=tree.version, cpu=tree.cpu, release=release, wheels=wheels
    )


# -- wheels of the index -------------------------------------------------------------------


def matching(wheels: Wheels, project: str, specifier: SpecifierSet, cpu: str) -> Distribution:
    """Newest wheel of a project that a specifier admits, of no local version."""
    listed = wheels.index.wheels(project)
    candidates = [
        wheel
        for wheel in listed
        if wheel.version in specifier and wheel.version.local is None and _runs_on(wheel, cpu)
    ]
    if not candidates:
        there = sorted({wheel.version.release[:2] for wheel in listed})[-_SHOWN:]
        newest = ", ".join(".".join(map(str, release)) for release in there)
        raise UnavailableError(
            f"no configured package index has {project}{specifier} for {cpu} Linux",
            hint=f"it has {newest}: ask for another version" if newest else "check pip's index-url",
        )
    best = max((wheel.version, wheel.build) for wheel in candidates)
    of_best = (wheel for wheel in candidates if (wheel.version, wheel.build) == best)
    return min(of_best, key=lambda wheel: wheel.file)


def _runs_on(wheel: Distribution, cpu: str) -> bool:
    platforms = {tag.platform for tag in wheel.tags}
    return any(p == "any" or (p.startswith("manylinux") and p.endswith(cpu)) for p in platforms)


def requirements(wheel: LocalWheel) -> dict[str, SpecifierSet]:
    """What a wheel's METADATA requires, by project."""
    with untrusted.foreign_parser(
        lambda reason: IntegrityError(
            f"{wheel.name} has no METADATA that can be read: {reason}", hint="use another index"
        )
    ):
        (name,) = [n for n in wheel.names() if n.endswith(".dist-info/METADATA")]
        ((_, document),) = wheel.fetch([name])
        raw, _ = parse_email(document)
        required: Iterable[Requirement] = map(Requirement, raw.get("requires_dist", []))
        return {canonicalize_name(r.name): r.specifier for r in required}


def as_a_whole(wheel: Distribution, wheels: Wheels) -> LockedWheel:
    """Pin a wheel by its SHA-256, for which all of it is read where the index does not give it."""
    if wheel.sha256:
        return LockedWheel(file=wheel.file, sha256=wheel.sha256)
    wheels.progress.note(f"the index gives no SHA-256 of {wheel.file}: reading the whole wheel")
    hashed = hashlib.sha256()
    with wheels.index.transport.body(wheel.url) as body:
        for chunk in body.chunks:
            hashed.update(chunk)
    return LockedWheel(file=wheel.file, sha256=hashed.hexdigest())


def by_record(wheel: Distribution, wheels: Wheels) -> LockedWheel:
    """Pin a wheel that will be read by ranges, by its SHA-256 and that of its RECORD."""
    pinned = as_a_whole(wheel, wheels)
    record = wheels.parts(pinned.file, pinned.sha256).record()
    return replace(pinned, record=sha256(record))
