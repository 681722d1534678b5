# SPDX-License-Identifier: Apache-2.0
"""What is installed on this machine and not fetched: a CUDA toolkit, torch's and Python's headers.

Each is identified by its content, or by the names and sizes of its files where reading all of them
would take longer than the build.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import platform
import re
import sysconfig
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernforge.artifact.version import Version2
from kernforge.errors import ToolchainError, UsageError
from kernforge.store.local import Store
from kernforge.system import digest, files
from kernforge.system.process import Runner
from kernforge.toolchain import host_compiler
from kernforge.toolchain.lockfile import LockedTree

_RELEASE = re.compile(r"release (\d+)\.(\d+), V([\d.]+)")
# The first two are those of torch's loader, and of kernforge.load.
_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "KERNFORGE_CUDA_HOME")
# The parts of a toolkit: where NVIDIA's installer, the wheels and conda have them, and a file.
_LAYOUT = {
    "bin": (("bin",), "nvcc"),
    "include": (("include", "targets/*/include"), "cuda_runtime.h"),
    "lib64": (("lib64", "lib", "targets/*/lib"), "libcudart_static.a"),
    "nvvm": (("nvvm",), ""),
}
# What of a part in a directory that it shares with other packages, as in conda, belongs to it.
_OWN = {
    "bin": {"nvcc", "cudafe++", "ptxas", "fatbinary", "nvlink", "cicc", "nvcc.profile"},
    "lib64": {"libcudart_static.a", "libcudadevrt.a"},
}
_TORCH_VERSION = re.compile(r"^__version__ = ['\"]([^'\"]+)['\"]", re.MULTILINE)

_TORCH_CUDA = re.compile(r"^cuda\b[^=\n]*= ['\"]([^'\"]+)['\"]", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTree:
    """A tree that the user has, in the place of wheels.

    Attributes:
        locked: it as a lock records it; its version is empty where it stands for any release's.
        parts: where a toolkit's ``bin``, ``include``, ``lib64`` and ``nvvm`` are, if not all below
            ``path`` by these names: conda and the wheels have other layouts.
        files: of a header library, content by path below ``include``.
        library_path: the ``LD_LIBRARY_PATH`` without which a toolkit does not run.
    """

    locked: LockedTree
    path: Path
    parts: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    library_path: str = ""

    @property
    def version(self) -> Version2:
        """Version of a toolkit."""
        return Version2.parse(self.locked.version)

    def directory(self, store: Store) -> Path:
        """Its directory; of a toolkit in parts, one with links to them."""
        if not self.parts:
            return self.path

        def fill(tree: Path) -> None:
            for name, target in self.parts.items():
                files.symlink(target, tree / name)

        key = digest.key("cuda-parts", parts=self.parts)
        return store.tree("toolchains", key, fill, shared=False)


def _parts(toolkit: Path) -> dict[str, str]:
    """Directory of each part of a toolkit that is there."""
    parts = {}
    for part, (patterns, file) in _LAYOUT.items():
        places = (place for pattern in patterns for place in sorted(toolkit.glob(pattern)))
        if place := next((str(place) for place in places if (place / file).exists()), ""):
            parts[part] = place
    return parts


def _missing(parts: Collection[str]) -> list[str]:
    """Files of a toolkit that it lacks."""
    needed = {part: file for part, (_, file) in _LAYOUT.items() if file and part not in parts}
    return [f"{part}/{file}" for part, file in needed.items()]


def find_cuda(env: Mapping[str, str]) -> Path | None:
    """Directory of the CUDA toolkit that this environment names or has in the usual directory."""
    for name in _VARIABLES[:2]:
        if value := env.get(name, "").strip():
            return Path(value)
    for directory in env.get("PATH", "").split(os.pathsep):
        nvcc = Path(directory) / "nvcc"
        if directory and os.access(nvcc, os.X_OK):
            toolkit = nvcc.resolve().parent.parent
            if not _missing(_parts(toolkit)):
                return toolkit
    usual = Path("/usr/local/cuda")
    return None if _missing(_parts(usual)) else usual


def identify_cuda(path: Path, env: Mapping[str, str], runner: Runner) -> LocalTree:
    """Say which toolkit is in a directory."""
    named = [f"{n}={env[n]}" for n in _VARIABLES if Path(env.get(n, "").strip() or "/") == path]
    path = path.resolve()
    parts = _parts(path)
    if missing := _missing(parts):
        raise UsageError(
            f"{[*named, path][0]} is not a CUDA toolkit: there is no {', '.join(missing)}",
            hint="name the directory that holds bin/nvcc, include and lib64, or unset the "
            "variable: wheels of the package index then bring the toolkit",
        )
    usual = all(Path(place) == path / part for part, place in parts.items())
    done, library_path = host_compiler.ask_version(f"{path}/bin/nvcc", env, runner)
    printed = done.stdout
    match = _RELEASE.search(printed)
    if match is None:
        raise UsageError(
            f"{path}/bin/nvcc does not say its version: {' '.join(printed.split())[:200]!r}",
            hint="run it with --version by hand",
        )
    version = path / "version.json"
    text = version.read_text(errors="replace") if version.is_file() else ""
    stated = ""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        stated = str(json.loads(text)["cuda"]["version"])
    sizes = _sizes(path, parts, follow=True) if usual else _own_sizes(parts)
    locked = LockedTree(
        kind="cuda",
        version=f"{int(match[1])}.{int(match[2])}",
        release=stated or match[3],
        digest=digest.key("cuda-home", nvcc=printed, stated=text, files=sizes),
    )
    return LocalTree(
        locked=locked, path=path, parts={} if usual else parts, library_path=library_path
    )


def _own_sizes(parts: Mapping[str, str]) -> dict[str, int]:
    """Sizes of a toolkit's files in directories that it shares with other packages."""
    return {
        f"{part}/{name}": size
        for part, place in parts.items()
        for name, size in _sizes(Path(place), (".",), follow=True).items()
        if part not in _OWN or name in _OWN[part]
    }


def identify_torch(path: Path, records: Path) -> LocalTree:
    """Say which torch is in the directory of a package.

    Its 10,000 headers are looked at once: the digest is recorded until ``version.py`` changes.
    """
    stated = path / "version.py"
    text = stated.read_text() if stated.is_file() else ""
    match = _TORCH_VERSION.search(text)
    if match is None or not (path / "include" / "torch").is_dir():
        raise UsageError(
            f"{path} holds no torch with its headers",
            hint="install torch from its own wheel",
        )

    def sized() -> tuple[dict[str, str], list[Path]]:
        # The file has the version, and the commit of the sources.
        key = digest.key("torch-home", version=text, sizes=_sizes(path, ("include",)))
        return {"headers": key}, [stated]

    record = records / f"torch-{digest.key('torch', of=str(path))[:24]}.note"
    identity = host_compiler.recorded(record, sized)
    locked = LockedTree(kind="torch", release=match[1], digest=identity["headers"])
    return LocalTree(locked=locked, path=path)


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchHere:
    """The torch that this Python would import.

    Attributes:
        cuda: the CUDA that it is built for; None for a build without CUDA.
        release: its full version, as ``"2.11.0+cu130"``.
    """

    version: Version2
    cuda: Version2 | None
    release: str = ""


def torch_here() -> TorchHere | None:
    """The torch that this Python would import, read from its files; None if there is none."""
    spec = None
    with contextlib.suppress(ValueError):  # a module that a program made has no spec
        spec = importlib.util.find_spec("torch")
    packages = (spec.submodule_search_locations or ()) if spec else ()
    return next(filter(None, (read_torch(Path(package)) for package in packages)), None)


def read_torch(package: Path) -> TorchHere | None:
    """The torch in the directory of a package, read from its files; None if there is none."""
    text = ""
    with contextlib.suppress(OSError):
        text = (package / "version.py").read_text(encoding="utf-8")
    stated, cuda = _TORCH_VERSION.search(text), _TORCH_CUDA.search(text)
    version = Version2.leading(stated[1]) if stated else None
    if stated is None or version is None:
        return None
    built_for = Version2.leading(cuda[1]) if cuda else None
    return TorchHere(version=version, cuda=built_for, release=stated[1])


def python_headers() -> Path:
    """Directory of Python's own headers."""
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").is_file():
        raise ToolchainError(
            f"a source includes Python's headers, and {include}/Python.h is not there",
            hint="install them (Debian, Ubuntu: python3-dev; Fedora: python3-devel), or keep the "
            "binding to torch's stable ABI, which does not need them",
        )
    return include


@functools.cache
def identify_python() -> LockedTree:
    """Python's own headers as a lock records them."""
    return identify_headers(python_headers(), platform.python_version())


@functools.cache
def identify_headers(top: Path, release: str) -> LockedTree:
    """The headers of a Python as a lock records them."""
    headers = {str(path.relative_to(top)): path for path in top.rglob("*") if path.is_file()}
    # Debian's pyconfig.h only includes another one, among the system's headers.
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    apart = top.parent / multiarch / top.name / "pyconfig.h"
    if multiarch and apart.is_file():
        headers[f"{multiarch}/pyconfig.h"] = apart
    contents = {name: files.sha256_file(path) for name, path in headers.items()}
    return LockedTree(
        kind="python", release=release, digest=digest.key("python-headers", files=contents)
    )


def _sizes(root: Path, parts: Iterable[str], *, follow: bool = False) -> dict[str, int]:
    """Size of each file below some directories of ``root``, by its path from there."""
    sizes = {}
    for part in parts:
        for directory, _, names in os.walk(root / part, followlinks=follow):
            for name in names:
                path = f"{directory}/{name}"
                with contextlib.suppress(OSError):  # a link to nothing
                    sizes[path.removeprefix(f"{root}/")] = os.stat(path).st_size  # noqa: PTH116
    return sizes
