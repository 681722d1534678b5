# SPDX-License-Identifier: Apache-2.0
"""What this machine compiles with for its own torch: the compiler, torch's headers, a CUDA toolkit.

The toolkit is the installed one (``CUDA_HOME``, ``CUDA_PATH``, the nvcc on the PATH,
``/usr/local/cuda``) if its major version is torch's, else that of torch's CUDA from wheels.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.artifact.version import Version2
from kernforge.binary import abi_floor
from kernforge.build.workspace import this_cpu
from kernforge.errors import ManifestError, ToolchainError, UsageError
from kernforge.jit.plan import PRECOMPILED, TORCH, Machine
from kernforge.store.local import Store
from kernforge.system import extras, files
from kernforge.system.machine import cores
from kernforge.system.paths import home
from kernforge.system.process import run
from kernforge.toolchain import (
    cuda_arch,
    host_compiler,
    installed,
    lockfile,
    resolver,
    tree_names,
)
from kernforge.toolchain.index.index import Index
from kernforge.toolchain.index.wheels import Wheels
from kernforge.toolchain.lockfile import Lock, LockedHeaders, LockedToolkit
from kernforge.toolchain.provision import Toolchains

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernforge.toolchain.index.wheels import Progress
    from kernforge.toolchain.lockfile import LockedPython

_DEFAULT_CUDA = "13.0"
_PLAIN_SONAME = 12  # the runtime's soname has the minor version before
_ENV = (
    *("CXX", "PATH", "CUDA_HOME", "CUDA_PATH", "TORCH_CUDA_ARCH_LIST", "KERNFORGE_HOME"),
    *("PIP_INDEX_URL", "PIP_CONFIG_FILE", "KERNFORGE_JIT_SLIM"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """A machine and where its parts lie.

    Attributes:
        machine: what planning takes.
        store: where results are kept.
        roots: real path of each tree and program by name.
    """

    machine: Machine
    store: Store
    roots: Mapping[str, str]

    @property
    def lock(self) -> Lock:
        """The identities of what is compiled with."""
        return self.machine.lock


def environment() -> tuple[str | None, ...]:
    """The variables that decide what is found."""
    return tuple(os.environ.get(name) for name in _ENV)


def look(
    progress: Progress, *, cuda: bool, libraries: bool, python: bool, device: bool = True
) -> Shop:
    """Find what sources of this kind need; asked once for each kind.

    Args:
        progress: is told of downloads.
        cuda: whether a CUDA toolkit is needed.
        device: whether there is device code, and no flag says what to compile it for.
        libraries: whether sources may read headers of CUDA's libraries.
        python: whether sources may read Python's headers.

    Raises:
        ToolchainError: a compiler, a toolkit or Python's headers are missing.
        UsageError: torch is not installed, or there is no GPU and ``TORCH_CUDA_ARCH_LIST`` does not
            say what to compile for.
    """
    key = (environment(), cuda, libraries and cuda, python, device and cuda)
    found = _looked.get(key)
    if found is None:
        found = _looked[key] = _look(
            progress, cuda=cuda, libraries=libraries, python=python, device=device
        )
    return found


_looked: dict[tuple[object, ...], Shop] = {}


def _look(progress: Progress, *, cuda: bool, libraries: bool, python: bool, device: bool) -> Shop:
    torch = import_torch()
    store = Store(home() / "store")
    compiler_here = host_compiler.find(os.environ, run)
    top = Path(torch.__file__).resolve().parent
    roots = {"cxx": compiler_here.path, TORCH: str(top)}
    here: LockedPython | None = None
    if python:
        here, roots["python"] = installed.identify_python(), str(installed.python_headers())
    nothing = store.root / "nothing"
    files.make_dir(nothing)
    roots[PRECOMPILED] = str(nothing)
    found = Lock(
        platform=f"{this_cpu()}-linux",
        compiler=host_compiler.locked(compiler_here, run, store.root / "compilers"),
        headers={
            TORCH: LockedHeaders(
                release=torch.__version__,
                digest=installed.torch_key(
                    top,
                    torch.__version__,
                    torch.version.git_version or "",
                    store.root / "compilers",
                ),
            ),
            # A compiled header changes no result: it is what its text is.
            PRECOMPILED: LockedHeaders(release="", digest="none"),
        },
        python=here,
    )
    version: Version2 | None = None
    archs: tuple[str, ...] = ()
    if cuda:
        version, found, more = _with_cuda(torch, found, store, progress, libraries=libraries)
        roots |= more
        if device:
            archs = tuple(part for one in _archs(torch) for part in one.gencode())
    machine = Machine(
        torch=Version2.leading(torch.__version__) or Version2(0, 0),
        sonames=_sonames(top / "lib", cuda=cuda),
        cuda=version,
        archs=archs,
        lock=found,
        cpu=this_cpu(),
        runtime=_runtime(torch, version),
    )
    return Shop(machine=machine, store=store, roots=roots)


def import_torch() -> Any:
    """The installed torch.

    Raises:
        MissingPackageError: there is none.
        UsageError: it cannot be imported.
    """
    try:
        import torch  # noqa: PLC0415 - seconds, and only who compiles against it needs it
    except ModuleNotFoundError as error:
        if error.name == "torch" and (told := extras.missing(error, "kernforge's JIT")):
            raise told from None
        raise UsageError(
            f"torch cannot be imported: {error}", hint="install it anew: pip install torch"
        ) from error
    except ImportError as error:
        raise UsageError(
            f"torch cannot be imported: {error}", hint="install it: pip install torch"
        ) from error
    return torch


def _with_cuda(
    torch: Any, found: Lock, store: Store, progress: Progress, *, libraries: bool
) -> tuple[Version2, Lock, dict[str, str]]:
    wanted = torch.version.cuda
    path = installed.find_cuda(os.environ)
    if path is not None:
        there = installed.identify_cuda(path, run)
        if wanted is None or there.version.major == Version2.parse(wanted).major:
            kit = LockedToolkit(release=there.release, directory=there.digest)
            name = str(there.version)
            new = replace(found, cuda={name: kit})
            return there.version, new, {tree_names.cuda_root(there.version): str(there.path)}
        if os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH"):
            raise ToolchainError(
                f"{path} is CUDA {there.release}, and torch is built for CUDA {wanted}",
                hint="name a toolkit of that major version, or none: then it comes from wheels",
            )
    name = wanted or _DEFAULT_CUDA
    return _from_wheels(name, found, store, progress, libraries=libraries)


def _from_wheels(
    name: str, found: Lock, store: Store, progress: Progress, *, libraries: bool
) -> tuple[Version2, Lock, dict[str, str]]:
    wheels = Wheels(functools.cache(Index.from_environment), store.root / "downloads", progress)
    kept = home() / "jit" / f"cuda-{name}.lock"
    old = lockfile.from_json(kept.read_text(), source=str(kept)) if kept.is_file() else None
    needs = resolver.Needs(cuda=frozenset({name}), torch=frozenset(), libraries=libraries)
    missing = resolver.lacking(needs, old)
    if old is None or missing.names:
        made = resolver.make(missing, wheels, cpu=this_cpu(), compiler=found.compiler, old=old)
        old = old.merged(made) if old else made
        files.write_atomic(kept, old.to_json())
    kit, version = old.cuda[name], Version2.parse(name)
    trees = Toolchains(store, wheels)
    roots = {tree_names.cuda_root(version): str(trees.toolkit(kit))}
    if libraries:
        for wheel in kit.libraries:
            root = tree_names.library_root(version, wheel.file.partition("-")[0])
            roots[root] = str(trees.library_headers(wheel))
    kit = kit if libraries else replace(kit, libraries=())
    return version, replace(found, cuda={name: kit}), roots


def jobs() -> int:
    """How many actions run at once: ``MAX_JOBS``, as for torch's loader, else one for each core.

    Raises:
        UsageError: it is no number.
    """
    given = os.environ.get("MAX_JOBS", "").strip()
    if given and not given.isdecimal():
        raise UsageError(
            f"MAX_JOBS is {given!r}", hint="a number of compilers at once, or nothing: one per core"
        )
    return int(given or 0) or cores()


def _archs(torch: Any) -> tuple[cuda_arch.Arch, ...]:
    """What ``TORCH_CUDA_ARCH_LIST`` names, else the GPUs that this process sees."""
    named = os.environ.get("TORCH_CUDA_ARCH_LIST", "").strip()
    if named and named != "native":
        try:
            return cuda_arch.listed(named)
        except ManifestError as error:
            raise UsageError(error.message, hint=error.hint) from error
    count = torch.cuda.device_count()
    if not count:
        raise UsageError(
            "there is no GPU here that says what to compile for",
            hint="name its compute capability in TORCH_CUDA_ARCH_LIST, as 9.0",
        )
    found = {torch.cuda.get_device_capability(number) for number in range(count)}
    return tuple(cuda_arch.Arch(major, minor) for major, minor in sorted(found))


def _sonames(directory: Path, *, cuda: bool) -> tuple[str, ...]:
    """Torch's libraries that a module may need, in load order."""
    named = (*abi_floor.torch_sonames("cuda" if cuda else "cpu"), "libtorch_python.so")
    return tuple(name for name in dict.fromkeys(named) if (directory / name).is_file())


def _runtime(torch: Any, cuda: Version2 | None) -> str:
    """Soname of the CUDA runtime that torch depends on, if it has all that the toolkit may call."""
    if cuda is None or torch.version.cuda is None or cuda.major < _PLAIN_SONAME:
        return ""
    there = Version2.parse(torch.version.cuda)
    return f"libcudart.so.{cuda.major}" if there.major == cuda.major and there >= cuda else ""
