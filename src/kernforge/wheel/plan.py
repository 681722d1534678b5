# SPDX-License-Identifier: Apache-2.0
"""The name, tags and requirements of a variant's wheel.

A wheel's tags can express Python, its ABI, the operating system and the CPU; ``Requires-Dist`` can
express the torch version. Neither can express CPU or CUDA, or distinguish two builds of one
version: if a kernel has several variants for one machine, the local version does, such as
``1.2.0+torchabi2.10.cu130``. It depends on all variants of the version, not on the selected ones,
so that a variant's wheel always has the same name.

Formats: the packaging user guide's "Binary distribution format", "Core metadata" 2.4, "Platform
compatibility tags" and "Version specifiers" (local versions are compared segment by segment,
numbers as numbers: hence ``2.10`` and not ``210``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.utils import InvalidName, canonicalize_name
from packaging.version import InvalidVersion, Version

from kernforge.artifact.metadata import Metadata, python_depends
from kernforge.artifact.variant import Variant
from kernforge.artifact.version import Version2
from kernforge.binary import elf
from kernforge.check.abi_rules import wheel_platform
from kernforge.errors import CheckError, UsageError

LEAST_PYTHON = Version2(3, 9)
"""The oldest Python of every hub build: no extension needs a newer limited API."""

# A build for torch's stable ABI sorts last, so that installers try it first: it works with every
# newer torch.
_LABEL_OF = {"torch": "torch", "torch-stable-abi": "torchabi", "tvm-ffi": "tvmffi"}
_FULL_API = re.compile(r"\.(?:cpython-|cp)3([0-9]+)-")
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n+", re.DOTALL)

Tag: TypeAlias = tuple[str, str, str]
"""Python, ABI and platform, such as ``("cp39", "abi3", "manylinux_2_28_x86_64")``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A shared library of a variant.

    Attributes:
        path: path in the variant, with ``/``.
        python: the oldest Python version that has all Python functions that the library calls;
            None if it calls none.
        outside: Python functions that the library calls and that no limited API has.
        platform: the oldest platform that the library loads on, as auditwheel finds it from the
            symbol versions; plain ``linux`` if it needs more than manylinux and torch have.
        lacking: what it needs beyond them; empty for nothing.
    """

    path: str
    python: Version2 | None = None
    outside: tuple[str, ...] = ()
    platform: str = ""
    lacking: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelPlan:
    """The plan of one wheel.

    Attributes:
        requires: the ``Requires-Dist`` lines.
        notes: why the platform is not a manylinux one.
    """

    distribution: str
    version: str
    tag: Tag
    module: str
    requires: tuple[str, ...]
    metadata: str
    licences: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        """Distribution and version in the spelling of file names."""
        return f"{canonicalize_name(self.distribution).replace('-', '_')}-{self.version}"

    @property
    def file(self) -> str:
        """The wheel's file name."""
        return f"{self.stem}-{'-'.join(self.tag)}.whl"


def plan(
    variant: Variant,
    metadata: Metadata,
    libraries: Sequence[Library],
    *,
    version: str,
    siblings: Collection[Variant],
    name: str | None = None,
    card: str = "",
    licences: Mapping[str, bytes],
) -> WheelPlan:
    """Plan the wheel of one variant.

    Args:
        version: version of the kernel, without a local part.
        siblings: all variants of this version, with the variant itself.
    """
    if metadata.kernel_depends:
        needed = ", ".join(depend.repo_id for depend in metadata.kernel_depends)
        raise UsageError(
            f"{metadata.name} depends on other kernels ({needed}), which need the kernel loader; "
            "a wheel is imported without the loader",
            hint="load the kernel with get_kernel",
        )
    distribution = name or metadata.name
    try:
        canonicalize_name(distribution, validate=True)
    except InvalidName as error:
        raise UsageError(str(error), hint="write a name like acme-img2gray") from error
    full = _version(version, local_version(variant) if needs_label(siblings) else "")
    requires = requirements(variant, metadata)
    platforms = {library.platform for library in libraries if library.platform}
    fields = [
        ("Metadata-Version", "2.4"),
        ("Name", distribution),
        ("Version", full),
        ("Summary", f"The {metadata.name} kernel for {metadata.backend}"),
        _licence(metadata.license),
        *(("License-File", each) for each in licences),
        *_urls(metadata),
        ("Requires-Python", f">={LEAST_PYTHON}"),
        *(("Requires-Dist", line) for line in requires),
        ("Description-Content-Type", "text/markdown"),
    ]
    headers = "".join(f"{key}: {_one_line(value)}\n" for key, value in fields)
    text = _FRONT_MATTER.sub("", card).strip() or f"# {metadata.name}"
    return WheelPlan(
        distribution=distribution,
        version=full,
        tag=(*_python(libraries), newest_platform(platforms) if platforms else "any"),
        module=metadata.python_name,
        requires=requires,
        metadata=f"{headers}\n{text}\n",
        licences=licences,
        notes=notes(libraries),
    )


def needs_label(variants: Collection[Variant]) -> bool:
    """Whether tags alone cannot distinguish these variants of one version."""
    machines = {(variant.cpu, variant.os) for variant in variants}
    any_machine = any(variant.is_noarch for variant in variants)
    return len(machines) < len(variants) or (any_machine and len(variants) > 1)


def pinned(plan: WheelPlan, variant: Variant) -> str:
    """The requirement of another variant's wheel of the same version: ``toy==1.2.0+cpu``."""
    public, label, _ = plan.version.partition("+")
    local = _version(public, local_version(variant)) if label else public
    return f"{plan.distribution}=={local}"


def local_version(variant: Variant) -> str:
    """The part that distinguishes variants for the same machine, such as ``torchabi2.10.cu130``."""
    if variant.version is None:
        return re.sub(r"[^a-z0-9]+", ".", str(variant.backend).lower())
    interface = f"{_LABEL_OF[variant.framework]}{variant.version}"
    old = ".cxx98" if variant.cxx11 is False else ""
    return f"{interface}{old}.{variant.backend}"


def requirements(variant: Variant, metadata: Metadata) -> tuple[str, ...]:
    """The ``Requires-Dist`` lines."""
    packages = python_depends(metadata.backend)
    for name in metadata.python_depends:
        if name not in packages:
            raise CheckError(
                f"{metadata.name} depends on the Python package {name!r}, which a kernel for "
                f"{metadata.backend} may not depend on",
                hint=f"use only {', '.join(packages)}; a newer kernforge may allow more",
            )
    own = re.split(r"[^A-Za-z0-9._-]", variant.requirement)[0]
    depends = {packages[name].package for name in metadata.python_depends}
    return (variant.requirement, *sorted(depends - {own}))


def _python(libraries: Sequence[Library]) -> tuple[str, str]:
    """Python and ABI tag for all libraries."""
    for library in libraries:
        if not library.outside:
            continue
        if match := _FULL_API.search(library.path):
            return f"cp3{match[1]}", f"cp3{match[1]}"
        raise CheckError(
            f"{library.path} calls {', '.join(library.outside)}, which no limited API of Python "
            "has, and its file name does not name a Python version",
            hint="build it with the limited API: bind with TORCH_LIBRARY, not with pybind11",
        )
    needed = [library.python for library in libraries if library.python is not None]
    if not needed:
        return "py3", "none"
    major, minor = max(LEAST_PYTHON, *needed)
    return f"cp{major}{minor}", "abi3"


def newest_platform(platforms: Collection[str]) -> str:
    """The newest of several platforms, which all libraries run on; plain ``linux`` is the last."""

    def newness(platform: str) -> tuple[int, ...]:
        match = re.match(r"manylinux_([0-9]+)_([0-9]+)_", platform)
        return (0, int(match[1]), int(match[2])) if match else (1,)

    return max(platforms, key=newness)


def _version(text: str, label: str) -> str:
    """A version of this kernel with its local part."""
    try:
        version = Version(text)
    except InvalidVersion:
        version = None
    if version is None or version.local:
        raise UsageError(
            f"{text!r} is not a valid version of a wheel", hint="write it like 1.2.0, without a +"
        )
    return str(Version(f"{version}+{label}")) if label else str(version)


def _licence(text: str) -> tuple[str, str]:
    """The licence as an SPDX expression, or as free text if it is not one."""
    try:
        return "License-Expression", canonicalize_license_expression(text)
    except InvalidLicenseExpression:
        return "License", text


def _urls(metadata: Metadata) -> list[tuple[str, str]]:
    urls = [("Source", metadata.source)]
    for number, url in enumerate(metadata.upstream, start=1):
        urls.append(("Upstream" if number == 1 else f"Upstream {number}", url))
    kernel = metadata.provenance and metadata.provenance.kernel
    if metadata.source and kernel and "://" in metadata.source:
        scheme = "" if metadata.source.startswith("git") else "git+"
        urls.append(("Source commit", f"{scheme}{metadata.source}@{kernel.commit}"))
    return [("Project-URL", f"{label}, {url}") for label, url in urls if url]


def _one_line(text: str) -> str:
    """A header's value on one line: a line break would begin another header."""
    return " ".join(text.split())


_SUFFIX = re.compile(r"\.so(?:\.[0-9]+)*$")


def is_library(name: str) -> bool:
    """Whether a file name is the name of a shared library."""
    return _SUFFIX.search(name) is not None


def notes(libraries: Iterable[Library]) -> tuple[str, ...]:
    """Notes on libraries that keep a wheel from a manylinux tag."""
    return tuple(
        f"note: {each.path}: {each.lacking}; so the wheel's platform is {each.platform}"
        for each in libraries
        if each.lacking
    )


def libraries(names: Iterable[str], read: Callable[[str], bytes]) -> list[Library]:
    """Examine the shared libraries among the files of a wheel.

    Args:
        read: gives a file's bytes.
    """
    from abi3info import DATAS, FUNCTIONS  # noqa: PLC0415 - large tables
    from abi3info.models import Symbol  # noqa: PLC0415

    parsed = {name: elf.parse(read(name)) for name in names if is_library(name)}
    sonames = {name.rpartition("/")[2] for name in parsed} | {e.soname for e in parsed.values()}
    defined = {symbol.name for each in parsed.values() for symbol in each.exported}
    examined = []
    for name, library in parsed.items():
        # The function or datum of Python's limited API; None outside of that.
        entries = {
            symbol.name: FUNCTIONS.get(Symbol(symbol.name)) or DATAS.get(Symbol(symbol.name))
            for symbol in library.undefined
            if symbol.name.startswith(("Py", "_Py"))
        }
        added = [Version2(each.added.major, each.added.minor) for each in entries.values() if each]
        # An extension that only defines PyInit still needs Python.
        is_module = any(symbol.name.startswith("PyInit_") for symbol in library.exported)
        try:
            platform, lacking = wheel_platform(library, sonames, defined)
        except ValueError:
            raise CheckError(
                f"{name} is for {library.machine}, which has no manylinux platform",
                hint="build for a CPU that auditwheel supports",
            ) from None
        examined.append(
            Library(
                path=name,
                python=max(added, default=LEAST_PYTHON if is_module else None),
                outside=tuple(sorted(symbol for symbol, e in entries.items() if e is None)),
                platform=platform,
                lacking=lacking,
            )
        )
    return examined
