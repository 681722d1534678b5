# SPDX-License-Identifier: Apache-2.0
"""What the user provides to a toolchain in addition to the package index."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from kernforge.artifact.version import Version2
from kernforge.errors import UsageError
from kernforge.system.process import run
from kernforge.toolchain import header_libraries, installed
from kernforge.toolchain.redist import Redist
from kernforge.toolchain.releases import CLANG

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernforge.toolchain.header_libraries import HeaderFiles
    from kernforge.toolchain.index.http import Transport
    from kernforge.toolchain.index.wheels import Progress
    from kernforge.toolchain.installed import CudaHome, TorchHome


CudaCompiler: TypeAlias = Literal["nvcc", "clang"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPartsOptions:
    """Where the parts of a toolchain are that the user provides.

    Attributes:
        cuda_home: directory of an installed toolkit.
        cuda_redist: address of NVIDIA's redistributable manifests; a directory will do.
        depends: path of each header library that a manifest may depend on; the empty name
            stands for every CUTLASS.
        cuda_compiler: what compiles CUDA where the index has no nvcc; empty leaves it to the lock.
        torch_home: directory of an installed torch, whose headers stand in for any release's.
    """

    cuda_home: Path | None = None
    cuda_redist: str | None = None
    depends: Mapping[str, Path] = field(default_factory=dict)
    cuda_compiler: CudaCompiler | Literal[""] = ""
    torch_home: Path | None = None


NO_LOCAL_PARTS = LocalPartsOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalParts:
    """Toolkits and headers that the user provides.

    Attributes:
        redist: an address with NVIDIA's redistributables.
        headers: header libraries by the name in ``depends``.
        cuda_compiler: what the user wants CUDA compiled with where the index has no nvcc.
        torch: an installed torch whose headers stand in for any release's.
    """

    cuda_home: CudaHome | None = None
    redist: Redist | None = None
    headers: Mapping[str, HeaderFiles] = field(default_factory=dict)
    cuda_compiler: CudaCompiler | Literal[""] = ""
    torch: TorchHome | None = None

    def by_clang(self, version: str) -> bool:
        """Whether the user wants clang to compile for this toolkit, as ``"12.8"``."""
        return self.cuda_compiler == "clang" and Version2.parse(version) in CLANG

    def home_of(self, version: str) -> CudaHome | None:
        """The installed toolkit if it is of this version, as ``"12.8"``."""
        home = self.cuda_home
        return home if home and home.version == Version2.parse(version) else None


def find_local_parts(
    options: LocalPartsOptions,
    cutlass: str,
    env: Mapping[str, str],
    *,
    connect: Callable[[], Transport],
    downloads: Path,
    progress: Progress,
) -> LocalParts:
    """Look at what the user names.

    Args:
        cutlass: the CUTLASS that the project depends on; empty without one.
        connect: connects to the network; called at the first use only.
        downloads: directory of unfinished downloads.

    Raises:
        UsageError: something is not there or not what it should be.
    """
    home, redist = options.cuda_home, options.cuda_redist
    if options.cuda_compiler not in {"", *get_args(CudaCompiler)}:
        raise UsageError(
            f"KERNFORGE_CUDA_COMPILER is {options.cuda_compiler!r}",
            hint=f"it may be {' or '.join(get_args(CudaCompiler))}",
        )
    if options.cuda_compiler == "clang" and (home or redist):
        raise UsageError(
            f"clang and {'an installed toolkit' if home else 'archives of a toolkit'} are both "
            "named to compile CUDA",
            hint="keep one of --cuda-compiler clang, --cuda-home and --cuda-redist, and look for "
            "KERNFORGE_CUDA_COMPILER, KERNFORGE_CUDA_HOME and KERNFORGE_CUDA_REDIST",
        )
    path = (options.depends.get(cutlass) or options.depends.get("")) if cutlass else None
    return LocalParts(
        cuda_home=installed.identify_cuda(home, env, run) if home else None,
        redist=Redist(_address(redist), connect, downloads, progress) if redist else None,
        headers={cutlass: header_libraries.read(path)} if path else {},
        cuda_compiler=options.cuda_compiler,
        torch=installed.identify_torch(options.torch_home) if options.torch_home else None,
    )


def _address(text: str) -> str:
    return text if "://" in text else Path(text).resolve().as_uri()
