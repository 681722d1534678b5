# SPDX-License-Identifier: Apache-2.0
"""Write a toolchain lock: ask the user's indexes which wheels a build of this project needs.

A CUDA toolkit's wheels are those that NVIDIA's ``cuda-toolkit`` metapackage of that release pins.
The newest patch release of what is asked for is taken; what a lock already has stays, unless the
caller asks for an upgrade. What the user provides (an installed toolkit, header files) goes before
the index.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from packaging.specifiers import SpecifierSet

from kernforge.artifact.version import Version2
from kernforge.errors import ToolchainError
from kernforge.toolchain import cross, front_end, header_libraries, projects, wheel_pins
from kernforge.toolchain.cross import CrossNeeds
from kernforge.toolchain.index.index import Wheel
from kernforge.toolchain.index.wheels import Wheels
from kernforge.toolchain.local_parts import LocalParts
from kernforge.toolchain.lockfile import (
    Lock,
    LockedCompiler,
    LockedFrontEnd,
    LockedHeaders,
    LockedPython,
    LockedToolkit,
    LockedTorch,
    LockedWheel,
)

_META = "cuda-toolkit"
_NO_PARTS = LocalParts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a build needs.

    Attributes:
        cuda: toolkits, as ``"13.0"``.
        torch: header releases, as ``"2.10"``.
        libraries: whether sources include headers of CUDA's libraries.
        headers: other header libraries, as ``"cutlass_3_6"`` or ``"tvm-ffi-0.1"``.
        python: whether sources include Python's own headers.
        cross: what builds for other processors need in addition, by processor.
    """

    cuda: frozenset[str]
    torch: frozenset[str]
    libraries: bool = False
    headers: frozenset[str] = field(default_factory=frozenset)
    python: bool = False
    cross: Mapping[str, CrossNeeds] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """What it asks for, for a person to read."""
        return (
            *(f"CUDA {version}" for version in sorted(self.cuda)),
            *(f"torch {version}" for version in sorted(self.torch)),
            *sorted(self.headers),
            *(["headers of Python"] if self.python else []),
            *(name for cpu in sorted(self.cross) for name in self.cross[cpu].names(cpu)),
        )


def lacking(needs: Needs, lock: Lock | None, local_parts: LocalParts = _NO_PARTS) -> Needs:
    """What a lock lacks of what a build needs, or has from elsewhere than the user wants."""
    if lock is None:
        return needs
    return Needs(
        cuda=frozenset(v for v in needs.cuda if not _serves(lock, v, local_parts, needs.libraries)),
        torch=frozenset(v for v in needs.torch if not _has_torch(lock, v, local_parts)),
        python=needs.python and lock.python is None,
        libraries=needs.libraries,
        headers=frozenset(
            name
            for name in needs.headers
            if name not in lock.headers
            or (
                name in local_parts.headers
                and local_parts.headers[name].digest != lock.headers[name].digest
            )
        ),
        cross=cross.lacking(needs.cross, lock),
    )


def _has_torch(lock: Lock, version: str, local_parts: LocalParts) -> bool:
    if local_parts.torch is None:
        return version in lock.torch
    there = lock.headers.get(f"torch-{version}")
    return there is not None and there.digest == local_parts.torch.digest


def _serves(lock: Lock, version: str, local_parts: LocalParts, libraries: bool) -> bool:  # noqa: FBT001
    toolkit = lock.cuda.get(version)
    if toolkit is None:
        return False
    if home := local_parts.home_of(version):
        return toolkit.directory == home.digest
    return not (toolkit.wheels and libraries and not toolkit.libraries)


def make(
    needs: Needs,
    wheels: Wheels,
    *,
    cpu: str,
    compiler: LockedCompiler,
    python: LockedPython | None = None,
    local_parts: LocalParts = _NO_PARTS,
    old: Lock | None = None,
    cross_compilers: Mapping[str, LockedCompiler] | None = None,
) -> Lock:
    """Resolve needs to files and hashes; toolkits of an old lock are completed in their release.

    Args:
        cross_compilers: what compiles for each other processor of the needs.

    Raises:
        ToolchainError: nothing has a release that is asked for.
        NetworkError: no index can be reached.
    """
    known = old.cuda if old else {}
    cuda = {
        v: _toolkit(v, wheels, cpu, local_parts, libraries=needs.libraries, old=known.get(v))
        for v in sorted(needs.cuda)
    }
    headers = {name: _headers(name, wheels, cpu, local_parts) for name in sorted(needs.headers)}
    torch = {}
    if lent := local_parts.torch:
        installed = LockedHeaders(release=lent.release, digest=lent.digest)
        headers |= {f"torch-{v}": installed for v in needs.torch}
    else:
        torch = {v: _torch(v, wheels, cpu) for v in sorted(needs.torch)}
    return Lock(
        platform=f"{cpu}-linux",
        compiler=compiler,
        cuda=cuda,
        torch=torch,
        headers=headers,
        python=python,
        cross={
            other: cross.resolve(
                other, wanted, wheels, (cross_compilers or {})[other], {**known, **cuda}
            )
            for other, wanted in sorted(needs.cross.items())
        },
    )


def picked(needs: Needs, known: Lock) -> Lock:
    """The part of a lock that has what is needed; the lock lacks nothing of it."""
    return replace(
        known,
        cuda={version: known.cuda[version] for version in needs.cuda},
        torch={version: known.torch[version] for version in needs.torch if version in known.torch},
        headers={name: known.headers[name] for name in needs.headers},
        cross={
            cpu: replace(
                known.cross[cpu],
                torch={v: known.cross[cpu].torch[v] for v in wanted.torch},
                runtime={v: known.cross[cpu].runtime[v] for v in wanted.cuda},
            )
            for cpu, wanted in needs.cross.items()
        },
    )


def of_indexes(lock: Lock) -> Lock:
    """A lock without what is of this machine: installed toolkits and the user's own headers."""
    return replace(
        lock,
        cuda={version: kit for version, kit in lock.cuda.items() if kit.wheels},
        headers={name: entry for name, entry in lock.headers.items() if entry.wheel},
        python=None,
    )


def _toolkit(
    version: str,
    wheels: Wheels,
    cpu: str,
    local_parts: LocalParts,
    *,
    libraries: bool,
    old: LockedToolkit | None,
) -> LockedToolkit:
    if home := local_parts.home_of(version):
        return LockedToolkit(release=home.release, directory=home.digest)
    kept = old if old and old.wheels else None
    meta = (
        wheel_pins.matching(wheels, _META, SpecifierSet(f"=={kept.release}"), cpu)
        if kept
        else wheel_pins.newest(wheels, _META, version, cpu)
    )
    if Version2.parse(version) in front_end.TOOLKITS:
        return _with_front_end(meta, wheels, cpu, kept, libraries=libraries)
    if kept:
        return replace(kept, libraries=_libraries(wheel_pins.pins(wheels, meta), wheels, cpu))
    return _from_wheels(meta, wheels, cpu, libraries)


def _with_front_end(
    meta: Wheel, wheels: Wheels, cpu: str, kept: LockedToolkit | None, *, libraries: bool
) -> LockedToolkit:
    """A toolkit that takes from a later CUDA what its own wheels lack."""
    pins = wheel_pins.pins(wheels, meta)
    wanted = [name for name in projects.LIBRARIES_12 if libraries and name in pins]
    found = tuple(_locked(name, pins, wheels, cpu) for name in wanted)
    if kept:
        return replace(kept, libraries=found)
    if missing := [name for name in projects.TOOLKIT_12 if name not in pins]:
        raise ToolchainError(
            f"CUDA {meta.version} has no package-index wheels of {', '.join(missing)}",
            hint=front_end.OTHER_TOOLKIT,
        )
    front = wheel_pins.newest(wheels, _META, front_end.FRONT_END_OF, cpu)
    of_front = wheel_pins.pins(wheels, front)
    compiler, headers, optimizer = (
        _locked(name, of_front, wheels, cpu) for name in projects.TOOLKIT[:3]
    )
    last = wheel_pins.newest(wheels, _META, front_end.RUNTIME_OF, cpu)
    runtime = _locked(projects.RUNTIME_12, wheel_pins.pins(wheels, last), wheels, cpu)
    names = wheels.parts(runtime.file, runtime.sha256).names()
    if not any(name.endswith(f"/{front_end.RUNTIME}") for name in names):
        raise ToolchainError(
            f"{runtime.file} holds no {front_end.RUNTIME}", hint=front_end.OTHER_TOOLKIT
        )
    return LockedToolkit(
        release=str(meta.version),
        wheels=tuple(_locked(name, pins, wheels, cpu) for name in projects.TOOLKIT_12),
        libraries=found,
        front_end=LockedFrontEnd(
            release=str(front.version),
            compiler=compiler,
            optimizer=optimizer,
            headers=headers,
            runtime=runtime,
        ),
    )


def _from_wheels(meta: Wheel, wheels: Wheels, cpu: str, libraries: bool) -> LockedToolkit:  # noqa: FBT001
    pins = wheel_pins.pins(wheels, meta)
    missing = [name for name in (*projects.TOOLKIT, *projects.LIBRARIES) if name not in pins]
    if missing:
        raise ToolchainError(
            f"CUDA {meta.version} has no package-index wheels of {', '.join(missing)}",
            hint=f"wheels serve {', '.join(map(str, front_end.TOOLKITS))} and CUDA 13; for another "
            f"one {front_end.OTHER_TOOLKIT}",
        )
    return LockedToolkit(
        release=str(meta.version),
        wheels=tuple(
            wheel_pins.whole(wheel_pins.matching(wheels, name, pins[name], cpu), wheels)
            for name in projects.TOOLKIT
        ),
        libraries=_libraries(pins, wheels, cpu) if libraries else (),
    )


def _libraries(
    pins: Mapping[str, SpecifierSet], wheels: Wheels, cpu: str
) -> tuple[LockedWheel, ...]:
    return tuple(_locked(name, pins, wheels, cpu) for name in projects.LIBRARIES)


def _locked(
    project: str, pins: Mapping[str, SpecifierSet], wheels: Wheels, cpu: str
) -> LockedWheel:
    """The wheel of a project that a release of CUDA pins, to be read by ranges."""
    return wheel_pins.by_record(wheel_pins.matching(wheels, project, pins[project], cpu), wheels)


def _torch(version: str, wheels: Wheels, cpu: str) -> LockedTorch:
    # The wheels without a local version are the CUDA ones: a CPU wheel lacks headers that CUDA
    # sources want. Headers do not differ between Pythons, so any interpreter's wheel will do.
    newest = wheel_pins.newest(wheels, projects.TORCH, version, cpu)
    return LockedTorch(release=str(newest.version), wheel=wheel_pins.by_record(newest, wheels))


def _headers(name: str, wheels: Wheels, cpu: str, local_parts: LocalParts) -> LockedHeaders:
    if local := local_parts.headers.get(name):
        return LockedHeaders(release=local.release, digest=local.digest)
    if name.startswith("tvm-ffi-"):
        wheel = wheel_pins.newest(wheels, projects.TVM_FFI, name.removeprefix("tvm-ffi-"), cpu)
        return LockedHeaders(release=str(wheel.version), wheel=wheel_pins.by_record(wheel, wheels))
    carried = header_libraries.CARRIED.get(name)
    if carried is None:
        raise header_libraries.no_wheel(name)
    # Headers are the same for every processor: the wheel of any will do.
    specifier = SpecifierSet(f"=={carried.version}")
    try:
        wheel = wheel_pins.matching(wheels, carried.project, specifier, "")
    except ToolchainError as error:
        raise header_libraries.no_wheel(name) from error
    return LockedHeaders(release=carried.release, wheel=wheel_pins.by_record(wheel, wheels))
