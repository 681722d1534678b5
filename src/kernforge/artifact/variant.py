# SPDX-License-Identifier: Apache-2.0
"""What one build is for, and its name.

The grammar is the hub's:

- ``torch-stable-abi<M><mm>-<backend>-<cpu>-<os>``
- ``torch<M><mm>[-cxx11|-cxx98]-<backend>-<cpu>-<os>``
- ``tvm-ffi<M><mm>-<backend>-<cpu>-<os>``
- ``torch-<backend name>`` for builds without machine code ("noarch")

A backend is ``cpu``, ``metal``, ``neuron``, ``tpu``, or ``cu``, ``rocm``, ``xpu``, ``cann`` with a
version written without a dot. Of a backend's digits the last is the minor version, of torch's the
first is the major one; so ``cu1210`` reads as 121.0. The constructors refuse what would not be
read back as it was meant.
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
_STABLE = re.compile(r"torch-stable-abi([0-9])([0-9]+)-(.*)")
_TORCH = re.compile(r"torch([0-9])([0-9]+)(?:-(cxx11|cxx98))?-(.*)")
# Of tvm-ffi's digits, too, the first is the major version.
_TVM_FFI = re.compile(r"tvm-ffi([0-9])([0-9]+)-(.*)")
_HINT = "a name looks like torch-stable-abi210-cu130-x86_64-linux, torch213-cxx11-cpu-x86_64-linux"


@dataclass(frozen=True, slots=True)
class Backend:
    """What a build computes on.

    Attributes:
        name: ``cpu``, ``cuda``, ``metal``, ``neuron``, ``rocm``, ``tpu``, ``xpu`` or ``cann``; a
            build without machine code may name anything, such as ``npu`` or ``universal``.
        version: of CUDA, ROCm, oneAPI or CANN; None where the name carries none.
    """

    name: str
    version: Version2 | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``cpu`` or ``cu130``.

        Raises:
            UsageError: it is neither.
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
    """One build target; ``str`` and ``parse`` are each other's inverse.

    Attributes:
        framework: which interface the build uses.
        version: of that interface; None when there is no machine code.
        backend: what it computes on.
        cpu: as in ``x86_64`` or ``aarch64``; empty without machine code.
        os: ``linux``, ``darwin`` or ``windows``; empty without machine code.
        cxx11: the C++ ABI tag of a ``torch`` build; None when the name has none.
    """

    framework: Framework
    version: Version2 | None = None
    backend: Backend
    cpu: str = ""
    os: str = ""
    cxx11: bool | None = None

    @property
    def variant_str(self) -> str:
        """The name, as the hub's client calls it."""
        return str(self)

    @property
    def requirement(self) -> str:
        """What runs it, in the versions that it runs in, as pip takes it."""
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
        """A build on torch's stable ABI of that version, for that torch and every newer one."""
        return _checked(
            cls(framework="torch-stable-abi", version=version, backend=backend, cpu=cpu, os=os)
        )

    @classmethod
    def torch(
        cls, version: Version2, backend: Backend, *, cpu: str, os: str, cxx11: bool | None = None
    ) -> Variant:
        """A build on the full ABI of one torch; Linux builds carry ``cxx11=True``."""
        return _checked(
            cls(framework="torch", version=version, backend=backend, cpu=cpu, os=os, cxx11=cxx11)
        )

    @classmethod
    def tvm_ffi(cls, version: Version2, backend: Backend, *, cpu: str, os: str) -> Variant:
        """A build on the tvm-ffi ABI of that version."""
        return _checked(cls(framework="tvm-ffi", version=version, backend=backend, cpu=cpu, os=os))

    @classmethod
    def noarch(cls, backend: str) -> Variant:
        """A build without machine code; ``universal`` fits every backend, CANN's name is npu."""
        return Variant(framework="noarch", backend=Backend(backend))

    @classmethod
    def parse(cls, text: str) -> Variant:
        """Read a name; leading zeros are dropped, so only canonical names come back unchanged.

        Raises:
            UsageError: it is no variant name.
        """
        if match := _STABLE.fullmatch(text):
            return _arch("torch-stable-abi", text, match[1], match[2], match[3])
        if match := _TVM_FFI.fullmatch(text):
            return _arch("tvm-ffi", text, match[1], match[2], match[3])
        if match := _TORCH.fullmatch(text):
            tag = None if match[3] is None else match[3] == "cxx11"
            return _arch("torch", text, match[1], match[2], match[4], cxx11=tag)
        if text == "torch" or (text.startswith("torch-") and not text.startswith(_STABLE_PREFIX)):
            return cls.noarch(text.removeprefix("torch").removeprefix("-"))
        raise UsageError(f"{text!r} is not a variant name", hint=_HINT)

    def __str__(self) -> str:
        if self.version is None:
            return f"torch-{self.backend}"
        tag = "" if self.cxx11 is None else "-cxx11" if self.cxx11 else "-cxx98"
        digits = f"{self.version.major}{self.version.minor}"
        return f"{self.framework}{digits}{tag}-{self.backend}-{self.cpu}-{self.os}"


def _arch(
    framework: Framework, text: str, major: str, minor: str, rest: str, *, cxx11: bool | None = None
) -> Variant:
    """The variant with machine code that the parts of a name say."""
    parts = rest.split("-")
    if len(parts) != 3:  # noqa: PLR2004 - backend, CPU, operating system
        raise UsageError(f"{text!r} does not end in -<backend>-<cpu>-<os>", hint=_HINT)
    return Variant(
        framework=framework,
        version=Version2(int(major), int(minor)),
        backend=Backend.parse(parts[0]),
        cpu=parts[1],
        os=parts[2],
        cxx11=cxx11,
    )


def _checked(variant: Variant) -> Variant:
    """The variant, if its name read back means the same."""
    try:
        faithful = Variant.parse(str(variant)) == variant
    except UsageError:
        faithful = False
    if not faithful:
        raise UsageError(f"no variant name can say {variant!r}", hint=_HINT)
    return variant
