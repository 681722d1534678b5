# SPDX-License-Identifier: Apache-2.0
"""Write a toolchain lock: ask the user's indexes which wheels a build of this project needs.

A CUDA toolkit's wheels are those that NVIDIA's ``cuda-toolkit`` metapackage of that release pins.
The newest patch release of what is asked for is taken; what a lock already has stays, unless the
caller asks for an upgrade. What the user brings (an installed toolkit, NVIDIA's archives, header
files) goes before the index.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

from kernforge import clangkit, depends, wheelpick
from kernforge.errors import ToolchainError
from kernforge.lockfile import Lock, LockedHeaders, LockedToolkit, LockedTorch
from kernforge.own import Own

if TYPE_CHECKING:
    from kernforge.lockfile import LockedCompiler
    from kernforge.wheels import Wheels

# The wheels that together are a compiler: nvcc and its parts, the runtime, the C++ core libraries.
TOOLKIT = (
    "nvidia-cuda-nvcc",
    "nvidia-cuda-crt",
    "nvidia-nvvm",
    "nvidia-cuda-cccl",
    "nvidia-cuda-runtime",
)
# What ATen's CUDA headers and kernels include; only their headers are read.
LIBRARIES = (
    *("nvidia-cublas", "nvidia-cusolver", "nvidia-cusparse", "nvidia-curand", "nvidia-cufft"),
    *("nvidia-cuda-nvrtc", "nvidia-nvtx", "nvidia-cuda-profiler-api"),
)
_TVM_FFI = "apache-tvm-ffi"
_OLDEST_WHEELS = 13


_NOTHING = Own()


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a build needs.

    Attributes:
        cuda: toolkits, as ``"13.0"``.
        torch: header releases, as ``"2.10"``.
        libraries: whether sources include headers of CUDA's libraries.
        headers: other header libraries, as ``"cutlass_3_6"`` or ``"tvm-ffi-0.1"``.
    """

    cuda: frozenset[str]
    torch: frozenset[str]
    libraries: bool = False
    headers: frozenset[str] = field(default_factory=frozenset)

    @property
    def names(self) -> tuple[str, ...]:
        """What it asks for, for a person to read."""
        return (
            *(f"CUDA {version}" for version in sorted(self.cuda)),
            *(f"torch {version}" for version in sorted(self.torch)),
            *sorted(self.headers),
        )


def lacking(needs: Needs, lock: Lock | None, own: Own = _NOTHING) -> Needs:
    """What a lock does not have of what a build needs, or has from elsewhere than the user wants.

    Args:
        needs: what is wanted.
        lock: what there is.
        own: what the user brings.
    """
    if lock is None:
        return needs
    return Needs(
        cuda=frozenset(v for v in needs.cuda if not _serves(lock, v, own, needs.libraries)),
        torch=needs.torch - set(lock.torch),
        libraries=needs.libraries,
        headers=frozenset(
            name
            for name in needs.headers
            if name not in lock.headers
            or (name in own.headers and own.headers[name].digest != lock.headers[name].digest)
        ),
    )


def _serves(lock: Lock, version: str, own: Own, libraries: bool) -> bool:  # noqa: FBT001
    toolkit = lock.cuda.get(version)
    if toolkit is None:
        return False
    if home := own.home_of(version):
        return toolkit.directory == home.digest
    if own.cuda_compiler and (toolkit.clang is not None) != own.by_clang(version):
        return False
    return not (toolkit.wheels and libraries and not toolkit.libraries)


def make(
    needs: Needs, wheels: Wheels, *, cpu: str, compiler: LockedCompiler, own: Own = _NOTHING
) -> Lock:
    """Resolve needs to files and hashes.

    Args:
        needs: what is wanted.
        wheels: the user's indexes.
        cpu: the building machine's processor, as ``"x86_64"``.
        compiler: the host compiler that is there.
        own: what the user brings.

    Raises:
        ToolchainError: nothing has a release that is asked for.
        NetworkError: no index can be reached.
    """
    return Lock(
        platform=f"{cpu}-linux",
        compiler=compiler,
        cuda={v: _toolkit(v, wheels, cpu, needs.libraries, own) for v in sorted(needs.cuda)},
        torch={v: _torch(v, wheels, cpu) for v in sorted(needs.torch)},
        headers={name: _headers(name, wheels, cpu, own) for name in sorted(needs.headers)},
    )


def _toolkit(
    version: str,
    wheels: Wheels,
    cpu: str,
    libraries: bool,  # noqa: FBT001
    own: Own,
) -> LockedToolkit:
    if home := own.home_of(version):
        return LockedToolkit(release=home.release, directory=home.digest)
    major, minor = map(int, version.split("."))
    if own.redist and major < _OLDEST_WHEELS:
        return own.redist.resolve((major, minor), cpu)
    if own.by_clang(version):
        return clangkit.resolve(version, wheels, cpu, LIBRARIES if libraries else ())
    return _from_wheels(version, wheels, cpu, libraries)


def _from_wheels(version: str, wheels: Wheels, cpu: str, libraries: bool) -> LockedToolkit:  # noqa: FBT001
    meta = wheelpick.newest(wheels, "cuda-toolkit", version, cpu)
    pins = wheelpick.pins(wheels, meta)
    missing = [name for name in TOOLKIT if name not in pins]
    if missing:
        raise ToolchainError(
            f"CUDA {meta.version} has no package-index wheels of {', '.join(missing)}",
            hint="wheels carry a whole compiler from CUDA 13.0 on; for an older one name a toolkit "
            "with --cuda-home, NVIDIA's redistributables with --cuda-redist, or --cuda-compiler clang",
        )
    return LockedToolkit(
        release=str(meta.version),
        wheels=tuple(
            wheelpick.whole(wheelpick.matching(wheels, name, pins[name], cpu), wheels)
            for name in TOOLKIT
        ),
        libraries=tuple(
            wheelpick.by_record(wheelpick.matching(wheels, name, pins[name], cpu), wheels)
            for name in LIBRARIES
            if libraries and name in pins
        ),
    )


def _torch(version: str, wheels: Wheels, cpu: str) -> LockedTorch:
    # The wheels without a local version are the CUDA ones: a CPU wheel lacks headers that CUDA
    # sources want. Headers do not differ between Pythons, so any interpreter's wheel will do.
    newest = wheelpick.newest(wheels, "torch", version, cpu)
    return LockedTorch(release=str(newest.version), wheel=wheelpick.by_record(newest, wheels))


def _headers(name: str, wheels: Wheels, cpu: str, own: Own) -> LockedHeaders:
    if brought := own.headers.get(name):
        return LockedHeaders(release=brought.release, digest=brought.digest)
    if name.startswith("tvm-ffi-"):
        wheel = wheelpick.newest(wheels, _TVM_FFI, name.removeprefix("tvm-ffi-"), cpu)
        return LockedHeaders(release=str(wheel.version), wheel=wheelpick.by_record(wheel, wheels))
    release, carried = depends.RELEASES[name]
    if carried is None:
        raise depends.no_wheel(name)
    wheel = wheelpick.matching(wheels, depends.PROJECT, SpecifierSet(f"=={carried}"), cpu)
    return LockedHeaders(release=release, wheel=wheelpick.by_record(wheel, wheels))
