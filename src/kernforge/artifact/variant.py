# SPDX-License-Identifier: Apache-2.0
"""Variants, the targets of builds, and their names.

The grammar is the hub's:

- ``torch-stable-abi<M><mm>-<backend>-<cpu>-<os>``
- ``torch<M><mm>[-cxx11|-cxx98]-<backend>-<cpu>-<os>``
- ``tvm-ffi<M><mm>-<backend>-<cpu>-<os>``
- ``torch-<backend name>`` for builds without machine code ("noarch")

A backend is ``cpu``, ``metal``, ``neuron``, ``tpu``, or ``cu``, ``rocm``, ``xpu``, ``cann`` with a
version written without a dot. The last digit of a backend is the minor version, the first digit of
torch is the major version, so that ``cu1210`` is 121.0.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

from kernforge.artifact.version import Version2
from kernforge.errors import UsageError

Framework: TypeAlias = Literal["torch-stable-abi", "torch", "tvm-ffi", "noarch"]

UNVERSIONED = frozenset({"cpu", "metal", "neuron", "tpu"})
_PREFIX_OF = {"cuda": "cu", "rocm": "rocm", "xpu": "xpu", "cann": "cann"}
_NAME_OF = {prefix: name for name, prefix in _PREFIX_OF.items()}
_VERSIONED = re.compile(r"(cu|rocm|xpu|cann)([0-9]+)([0-9])")
_LARGEST_DIGIT = 9
_STABLE_PREFIX = "torch-stable-abi"
# The first digit of tvm-ffi is the major version, too.
_COMPILED = re.compile(
    r"(torch-stable-abi|torch|tvm-ffi)([0-9])([0-9]+)(?:-(cxx11|cxx98))?-([^-]*)-([^-]*)-([^-]*)"
)
_HINT = (
    "write a name like torch-stable-abi210-cu130-x86_64-linux or torch213-cxx11-cpu-x86_64-linux"
)


@dataclass(frozen=True, slots=True)
class Backend:
    """The backend of a build.

    Attributes:
        name: ``cpu``, ``cuda``, ``metal``, ``neuron``, ``rocm``, ``tpu``, ``xpu`` or ``cann``; a
            build without machine code may have any name, such as ``npu`` or ``universal``.
        version: version of CUDA, ROCm, oneAPI or CANN; None if the name has none.
    """

    name: str
    version: Version2 | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a backend such as ``cpu`` or ``cu130``."""
        if text in UNVERSIONED:
            return cls(text)
        if match := _VERSIONED.fullmatch(text):
            return cls(_NAME_OF[match[1]], Version2(int(match[2]), int(match[3])))
        raise UsageError(
            f"{text!r} is not a backend",
            hint=f"write {', '.join(sorted(UNVERSIONED))}, or a version like cu130, rocm72, "
            "xpu20253, cann82",
        )

    def __str__(self) -> str:
        if self.version is None:
            return self.name
        return f"{_PREFIX_OF.get(self.name, self.name)}{self.version.major}{self.version.minor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One build target; ``str`` and ``parse`` are inverse to each other.

    Attributes:
        framework: interface that the build uses.
        version: version of the interface; None without machine code.
        cpu: architecture of the CPU, such as ``x86_64`` or ``aarch64``; empty without machine code.
        os: ``linux``, ``darwin`` or ``windows``; empty without machine code.
        cxx11: the C++ ABI tag of a ``torch`` build; None if the name has none.
    """

    framework: Framework
    version: Version2 | None = None
    backend: Backend
    cpu: str = ""
    os: str = ""
    cxx11: bool | None = None

    def __post_init__(self) -> None:
        if self.is_noarch:
            return
        number, backend = self.version, self.backend
        if backend.name in _PREFIX_OF:
            fits = backend.version is not None and backend.version.minor <= _LARGEST_DIGIT
        else:
            fits = backend.version is None
        if number is None or number.major > _LARGEST_DIGIT or not fits:
            raise UsageError(f"no variant name can express {self!r}", hint=_HINT)

    @property
    def variant_str(self) -> str:
        """The name; an attribute of the hub's client."""
        return str(self)

    @property
    def requirement(self) -> str:
        """The package that the build runs with, as a requirement for pip."""
        if self.version is None:
            return "torch"
        text = str(self.version)
        if self.framework == "torch-stable-abi":
            return f"torch>={text}"
        package = "apache-tvm-ffi" if self.framework == "tvm-ffi" else "torch"
        return f"{package}=={text}.*"

    @property
    def is_noarch(self) -> bool:
        """Whether the build has no machine code."""
        return self.framework == "noarch"

    @classmethod
    def noarch(cls, backend: str) -> Variant:
        """A build without machine code; ``universal`` is for every backend, ``npu`` for CANN."""
        return Variant(framework="noarch", backend=Backend(backend))

    @classmethod
    @functools.lru_cache(maxsize=1024)
    def parse(cls, text: str) -> Variant:
        """Parse a name; leading zeros are dropped, so that only canonical names stay unchanged.

        Raises:
            UsageError: the text is not a variant name.
        """
        if (match := _COMPILED.fullmatch(text)) and (match[1] == "torch" or not match[4]):
            framework, major, minor, tag, backend, cpu, os = match.groups()
            return Variant(
                framework=framework,  # type: ignore[arg-type]  # one of the pattern's
                version=Version2(int(major), int(minor)),
                backend=Backend.parse(backend),
                cpu=cpu,
                os=os,
                cxx11=tag == "cxx11" if tag else None,
            )
        if text == "torch" or (text.startswith("torch-") and not text.startswith(_STABLE_PREFIX)):
            return cls.noarch(text.removeprefix("torch").removeprefix("-"))
        raise UsageError(f"{text!r} is not a variant name", hint=_HINT)

    def __str__(self) -> str:
        if self.version is None:
            return f"torch-{self.backend}"
        tag = "" if self.cxx11 is None else "-cxx11" if self.cxx11 else "-cxx98"
        digits = f"{self.version.major}{self.version.minor}"
        return f"{self.framework}{digits}{tag}-{self.backend}-{self.cpu}-{self.os}"
