# SPDX-License-Identifier: Apache-2.0
"""Variants, the targets of builds, and their names.

The grammar is the hub's:

- ``torch-stable-abi<M><mm>-<backend>-<cpu>-<os>``
- ``torch<M><mm>[-cxx11|-cxx98]-<backend>-<cpu>-<os>``
- ``tvm-ffi<M><mm>-<backend>-<cpu>-<os>``
- ``torch-<backend name>`` for builds without machine code ("noarch")

A backend is ``cpu``, ``metal``, ``neuron``, ``tpu``, or ``cu``, ``rocm``, ``xpu``, ``cann`` with a
version written without a dot. The last digit of a backend is the minor version, the first digit of
torch is the major version, so that ``cu1210`` is 121.0. The constructors refuse a version that its
name cannot express.
"""

from __future__ import annotations

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
_STABLE_PREFIX = "torch-stable-abi"
# The first digit of tvm-ffi is the major version, too.
_COMPILED: dict[Framework, re.Pattern[str]] = {
    "torch-stable-abi": re.compile(r"torch-stable-abi([0-9])([0-9]+)()-(.*)"),
    "tvm-ffi": re.compile(r"tvm-ffi([0-9])([0-9]+)()-(.*)"),
    "torch": re.compile(r"torch([0-9])([0-9]+)(?:-(cxx11|cxx98))?-(.*)"),
}
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
        """Parse a backend such as ``cpu`` or ``cu130``.

        Raises:
            UsageError: the text is not a backend.
        """
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
    def stable_abi(cls, version: Version2, backend: Backend, *, cpu: str, os: str) -> Variant:
        """A build for torch's stable ABI of a version, which runs with it and every newer torch."""
        return _checked(
            cls(framework="torch-stable-abi", version=version, backend=backend, cpu=cpu, os=os)
        )

    @classmethod
    def torch(
        cls, version: Version2, backend: Backend, *, cpu: str, os: str, cxx11: bool | None = None
    ) -> Variant:
        """A build for the full ABI of one torch version; Linux builds have ``cxx11=True``."""
        return _checked(
            cls(framework="torch", version=version, backend=backend, cpu=cpu, os=os, cxx11=cxx11)
        )

    @classmethod
    def tvm_ffi(cls, version: Version2, backend: Backend, *, cpu: str, os: str) -> Variant:
        """A build for the tvm-ffi ABI of a version."""
        return _checked(cls(framework="tvm-ffi", version=version, backend=backend, cpu=cpu, os=os))

    @classmethod
    def noarch(cls, backend: str) -> Variant:
        """A build without machine code; ``universal`` is for every backend, ``npu`` for CANN."""
        return Variant(framework="noarch", backend=Backend(backend))

    @classmethod
    def parse(cls, text: str) -> Variant:
        """Parse a name; leading zeros are dropped, so that only canonical names stay unchanged.

        Raises:
            UsageError: the text is not a variant name.
        """
        for framework, pattern in _COMPILED.items():
            if match := pattern.fullmatch(text):
                return _compiled(framework, match)
        if text == "torch" or (text.startswith("torch-") and not text.startswith(_STABLE_PREFIX)):
            return cls.noarch(text.removeprefix("torch").removeprefix("-"))
        raise UsageError(f"{text!r} is not a variant name", hint=_HINT)

    def __str__(self) -> str:
        if self.version is None:
            return f"torch-{self.backend}"
        tag = "" if self.cxx11 is None else "-cxx11" if self.cxx11 else "-cxx98"
        digits = f"{self.version.major}{self.version.minor}"
        return f"{self.framework}{digits}{tag}-{self.backend}-{self.cpu}-{self.os}"


def _compiled(framework: Framework, match: re.Match[str]) -> Variant:
    """The variant with machine code from the parts of its name."""
    major, minor, tag, rest = match.groups()
    parts = rest.split("-")
    if len(parts) != 3:  # noqa: PLR2004 - backend, CPU, operating system
        raise UsageError(f"{match[0]!r} does not end in -<backend>-<cpu>-<os>", hint=_HINT)
    return Variant(
        framework=framework,
        version=Version2(int(major), int(minor)),
        backend=Backend.parse(parts[0]),
        cpu=parts[1],
        os=parts[2],
        cxx11=tag == "cxx11" if tag else None,
    )


def _checked(variant: Variant) -> Variant:
    """The variant, if parsing its name gives the same variant."""
    try:
        faithful = Variant.parse(str(variant)) == variant
    except UsageError:
        faithful = False
    if not faithful:
        raise UsageError(f"no variant name can express {variant!r}", hint=_HINT)
    return variant
