# SPDX-License-Identifier: Apache-2.0
"""The ABI floor: link on any Linux so that the result needs manylinux_2_28 and nothing newer.

The linker does not read the machine's own shared libraries. It reads stubs: libraries without code
that export each symbol of glibc 2.28 and GCC 8 with its version and from its library of that time.
Symbols that newer headers need in addition come from ``compat.cpp`` (those of glibc) and from the
compiler's ``libstdc++.a`` (those of the C++ library), both hidden in the result. Torch's libraries
are stubs with only a soname: torch's symbols stay undefined until the artifact is loaded.

The floor is PEP 600's manylinux_2_28, as in auditwheel's policy file. The symbol lists are
``data/*.txt``, which name their sources: facts of releases, which never change.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from kernforge.binary.elf import Symbol
from kernforge.errors import ToolchainError

POLICY = "manylinux_2_28"
FLOOR = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}
CPUS = ("x86_64", "aarch64")

COMPAT_SOURCE = "compat.cpp"
COMPAT_OBJECT = "compat.o"

_DATA_FILES = ("glibc-2.28.txt", "gcc-8.txt")
_LIBSTDCXX = "libstdc++.so.6"
_LIBC = "libc.so.6"
# In the order of the link line. If two libraries have a symbol (libc forwards some of
# libpthread's), the first one defines it. The dynamic linker's name depends on the CPU, its stub's
# file name not.
_LOADER = "ld-linux.so"
_OPTIONAL = (
    "libm.so.6",
    "libmvec.so.1",
    "libgcc_s.so.1",
    _LOADER,
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libutil.so.1",
    "libresolv.so.2",
)
TVM_FFI = ("libtvm_ffi.so",)
_TORCH = ("libc10.so", "libtorch_cpu.so", "libtorch.so")
CUDA_LIBRARIES = {
    "cuda": (1, 1),
    "nvidia-ml": (1, 1),
    "cublas": (12, 13),
    "cublasLt": (12, 13),
    "cufft": (11, 12),
    "curand": (10, 10),
    "cusolver": (11, 12),
    "cusparse": (12, 12),
    "nvJitLink": (12, 13),
    "nvrtc": (12, 13),
    "cupti": (12, 13),
    "cudnn": (9, 9),
    "nccl": (2, 2),
}
"""Version in the soname of the driver's libraries, and of those of CUDA 12 and 13."""
DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")
_TORCH_HAS = re.compile(
    r"lib(?:torch|c10|shm|tvm_ffi)\w*\.so"
    rf"|lib(?:cudart|{'|'.join(CUDA_LIBRARIES)})\.so\.[0-9.]+"
)
_CUDA_NAMES = ("cuda", "__cuda", "cupti", "nvJitLink", "__nvJitLink")
_TORCH_BACKEND = {"cuda": "cuda", "rocm": "hip", "xpu": "xpu"}

_KINDS = {
    "function": (".text", "%function"),
    "object": (".data", "%object"),
    "tls": ('.section .tbss,"awT",%nobits', "%tls_object"),
}
# Prefixes of symbols without a version that the loading process has: CPython's limited API, torch's
# stable and C interfaces, TVM FFI, OpenMP's runtime (of libtorch_cpu; a second runtime in the
# process would have other threads), and the libraries of libtorch_cuda.
_UNVERSIONED_OWNERS = (
    # libtorch_cpu exports the vector mathematics of SLEEF, which ATen/cpu/vec calls inline.
    *("Py", "_Py", "THP", "aoti_torch_", "torch_", "Sleef_", "TVMFFI", "GOMP_", "omp_"),
    *("cublas", "cudnn", "cufft", "curand", "cusolver", "cusparse", "nccl", "nvrtc"),
)
# C++ names (Itanium ABI, chapter 5.1) that the C++ library defines: in std and its own namespaces,
# global operators new and delete, type information of fundamental types.
_STANDARD = re.compile(
    r"_Z(?:T[VTIS]|GV|GR)?(?:N[rVK]*[RO]?)?(?:S[tabsiod]|9__gnu_cxx|10__cxxabiv1)"
    r"|_Z(?:nw|na|dl|da)[a-zA-Z]"
    r"|_ZT[IS][PK]*(?:[a-z]|D[a-zA-Z])"
)
# ... unless they are templates over torch's types, which torch may instantiate.
_TORCH_TYPES = re.compile(r"N(?:3c10|2at|5torch|6caffe2)")


@dataclass(frozen=True, slots=True)
class StubLibrary:
    """A shared library without code, to link against.

    Attributes:
        soname: name for DT_NEEDED.
        file: file name of the library in the stubs' directory.
        texts: its assembler text and linker version script, by file name in that directory.
    """

    soname: str
    file: str
    texts: Mapping[str, str]


@cache
def system_stubs(cpu: str) -> tuple[StubLibrary, ...]:
    """Stubs of glibc 2.28 and GCC 8 for one CPU, in the order of the link line."""
    if cpu not in CPUS:
        raise ToolchainError(
            f"there is no ABI floor for the CPU {cpu!r}", hint=f"build for one of {', '.join(CPUS)}"
        )
    libraries = _symbols(cpu)
    loader = next(soname for soname in libraries if soname.startswith("ld-linux"))
    sonames = {file: file for file in (_LIBSTDCXX, _LIBC, *_OPTIONAL)} | {_LOADER: loader}
    return tuple(_stub(soname, file, libraries.get(soname, ())) for file, soname in sonames.items())


def system_sonames() -> frozenset[str]:
    """Libraries that every machine at the floor has, of all CPUs."""
    return frozenset(soname for cpu in CPUS for soname in _symbols(cpu))


def empty_stubs(sonames: Iterable[str]) -> tuple[StubLibrary, ...]:
    """Stubs of libraries that a loading process has: a soname without symbols."""
    return tuple(_stub(soname, soname, ()) for soname in sonames)


def torch_sonames(backend: str) -> tuple[str, ...]:
    """Torch's libraries that an extension of one backend depends on, in load order."""
    suffix = _TORCH_BACKEND.get(backend)
    return _TORCH if suffix is None else (*_TORCH, f"libc10_{suffix}.so", f"libtorch_{suffix}.so")


def stubs_script(stubs: Iterable[StubLibrary]) -> str:
    """Shell script that makes the stubs in its directory; its argument is the compiler."""
    return "".join(f'"$1" {shlex.join(_stub_args(stub))}\n' for stub in stubs)


def _stub_args(stub: StubLibrary) -> tuple[str, ...]:
    return (
        *("-shared", "-nostdlib", "-fuse-ld=bfd"),
        *("-Wl,--build-id=none", "-Wl,--hash-style=gnu", "-Wl,-s", f"-Wl,-soname,{stub.soname}"),
        f"-Wl,--version-script=./{stub.file}.map",
        *("-o", f"./{stub.file}"),
        *("-x", "assembler", f"./{stub.file}.s"),
    )


def compat_source() -> str:
    """C++ source of functions that newer headers need and the floor lacks, for COMPAT_SOURCE."""
    return _data(COMPAT_SOURCE)


def compat_argv(cxx: str) -> tuple[str, ...]:
    """Command that compiles COMPAT_SOURCE to COMPAT_OBJECT in its directory."""
    return (
        *(cxx, "-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique"),
        *("-ffunction-sections", "-fdata-sections", "-fno-stack-protector", "-U_FORTIFY_SOURCE"),
        *("-c", f"./{COMPAT_SOURCE}", "-o", f"./{COMPAT_OBJECT}"),
    )


def link_args(
    *,
    stub_dir: str,
    backend: str,
    libstdcxx_archive: bool = True,
    needed: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """Arguments of ``g++`` after the objects and the static CUDA runtime.

    Args:
        stub_dir: directory of the stubs and COMPAT_OBJECT.
        backend: backend such as ``cpu`` or ``cuda``, which decides torch's libraries to depend on.
        libstdcxx_archive: whether the compiler has a ``libstdc++.a``; without one, symbols of a
            newer C++ library stay undefined (see ``unresolvable``).
        needed: sonames to depend on instead of torch's libraries.
    """
    needed = torch_sonames(backend) if needed is None else needed
    archive = ("-l:libstdc++.a",) if libstdcxx_archive else ()
    return (
        # The start files are of the machine's glibc; COMPAT_OBJECT has the part that is needed.
        *("-shared", "-nostdlib", "-fuse-ld=bfd"),
        f"{stub_dir}/{COMPAT_OBJECT}",
        "-Wl,--no-as-needed",
        *(f"{stub_dir}/{soname}" for soname in needed),
        # Always needed: a member of the archive must find the rest of the library in the stub.
        f"{stub_dir}/{_LIBSTDCXX}",
        *archive,
        *("-lgcc", f"{stub_dir}/{_LIBC}", "-Wl,--as-needed"),
        *(f"{stub_dir}/{file}" for file in _OPTIONAL),
        # Hidden: otherwise two artifacts in one process would share the archives' globals.
        "-Wl,--exclude-libs,ALL",
        *("-Wl,--gc-sections", "-Wl,-s", "-Wl,--build-id=none", "-Wl,--hash-style=gnu"),
        *("-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack", "-Wl,-z,separate-code"),
    )


def unresolvable(undefined: Iterable[Symbol]) -> tuple[Symbol, ...]:
    """Undefined symbols that machines at the floor cannot resolve.

    The linker cannot find them, because ``-z defs`` would refuse torch's own symbols. In the linked
    file they have a version above the floor, or no version and a name that is not torch's,
    Python's or of another C++ namespace.
    """
    return tuple(
        symbol
        for symbol in undefined
        if (
            not within_floor(symbol.version)
            if symbol.version
            else not symbol.weak and _is_system(symbol.name)
        )
    )


def is_present(soname: str) -> bool:
    """Whether a machine at the floor with torch has a library; torch requires those of CUDA."""
    of_torch = soname not in DRIVER and _TORCH_HAS.fullmatch(soname)
    return bool(of_torch) or soname in system_sonames()


def is_of_cuda(name: str) -> bool:
    """Whether a C name is one of a CUDA library that a CUDA build of torch has loaded."""
    return name.startswith(_CUDA_NAMES)


def within_floor(version: str) -> bool:
    """Whether machines at the floor provide a symbol version such as ``GLIBC_2.17``."""
    match = re.fullmatch(r"([A-Z]+)_([0-9]{1,9}(?:\.[0-9]{1,9})*)", version)
    if not match or match[1] not in FLOOR:
        return version in {"CXXABI_FLOAT128", "CXXABI_TM_1"}
    return tuple(int(part) for part in match[2].split(".")) <= FLOOR[match[1]]


def _is_system(name: str) -> bool:
    """Whether an undefined symbol without a version belongs to a system library."""
    if name.startswith("_Z"):
        return bool(_STANDARD.match(name)) and not _TORCH_TYPES.search(name)
    return not name.startswith(_UNVERSIONED_OWNERS)


@cache
def _symbols(cpu: str) -> dict[str, tuple[tuple[str, str, str], ...]]:
    """(version, kind, name) of each symbol by soname."""
    symbols: dict[str, list[tuple[str, str, str]]] = {}
    for file in _DATA_FILES:
        section: tuple[str, str, str] | None = None
        for line in _data(file).splitlines():
            if line.startswith("["):
                soname, version, cpus, kind = line.strip("[]").split()
                section = (soname, version, kind) if cpu in cpus.split(",") else None
            elif section and not line.startswith("#"):
                soname, version, kind = section
                symbols.setdefault(soname, []).append((version, kind, line))
    return {soname: tuple(symbols) for soname, symbols in symbols.items()}


def _data(file: str) -> str:
    return (resources.files("kernforge") / "data" / file).read_text(encoding="utf-8")


def _stub(soname: str, file: str, symbols: Iterable[tuple[str, str, str]]) -> StubLibrary:
    by_kind: dict[str, list[str]] = {}
    by_version: dict[str, list[str]] = {}
    for version, kind, name in sorted(symbols):
        by_kind.setdefault(kind, []).append(name)
        by_version.setdefault(version, []).append(name)
    source = []
    for kind, (section, symbol_type) in _KINDS.items():
        names = by_kind.get(kind, ())
        source += [section, *(f".globl {n}\n.type {n},{symbol_type}\n{n}:" for n in names)]
    source += ['.section .note.GNU-stack,"",%progbits', ""]
    script = [
        f"{version} {{ global: {' '.join(f'{name};' for name in names)} }};"
        for version, names in by_version.items()
    ]
    texts = {
        f"{file}.s": "\n".join(source),
        f"{file}.map": "\n".join([*script, "{ local: *; };" if not script else "", ""]),
    }
    return StubLibrary(soname=soname, file=file, texts=texts)
