# SPDX-License-Identifier: Apache-2.0
"""Decide what the wheel of a variant is called and what it asks for.

A wheel's tags can say Python, its ABI, the operating system and the CPU; ``Requires-Dist`` can say
which torch. Neither can say CPU or CUDA, nor hold two builds of one version apart: where a kernel
has several variants for one machine, the local version does, as in ``1.2.0+torchabi2.10.cu130``.
It follows from the variants of the whole version, never from which of them are asked for, so that
a variant's wheel has one name.

Formats: the packaging user guide's "Binary distribution format", "Core metadata" 2.4, "Platform
compatibility tags" and "Version specifiers" (local versions are compared segment by segment,
numbers as numbers: hence ``2.10`` and not ``210``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from kernforge.artifact.python_depends import python_depends
from kernforge.errors import CheckError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kernforge.artifact.metadata import Metadata
    from kernforge.artifact.variant import Variant, Version2

LEAST_PYTHON: Version2 = (3, 9)
"""What every hub build promises: no extension asks for a newer limited API."""

# Of torch's and tvm-ffi's builds, a stable one sorts last, so that it is the one that installers
# try first: it serves every newer torch.
_LABEL_OF = {"torch": "torch", "torch-stable-abi": "torchabi", "tvm-ffi": "tvmffi"}
# What the hub's own check holds builds for macOS to.
_MACOS = "15_0"
_WINDOWS_CPU = {"x86_64": "amd64", "aarch64": "arm64"}
_MACOS_CPU = {"x86_64": "x86_64", "aarch64": "arm64"}
_FULL_API = re.compile(r"\.(?:cpython-|cp)3([0-9]+)-")
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n+", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9._-]*[A-Za-z0-9]")

Tag: TypeAlias = tuple[str, str, str]
"""Python, ABI and platform, as in ``("cp39", "abi3", "manylinux_2_28_x86_64")``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A shared library of a variant.

    Attributes:
        path: in the variant, with ``/``.
        python: the newest Python that brought one of the functions that it calls; None when it
            calls none of Python's.
        outside: the functions of Python that it calls and no limited API has.
        platform: the oldest manylinux platform that it loads on, as auditwheel finds it from the
            symbol versions; empty for another system's library, which cannot be examined.
    """

    path: str
    python: Version2 | None = None
    outside: tuple[str, ...] = ()
    platform: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """What goes into a wheel beside the variant.

    Attributes:
        card: Markdown that describes the kernel; empty when there is none.
        licences: bytes of each licence file by its name.
    """

    card: str = ""
    licences: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One wheel.

    Attributes:
        distribution: as pip knows it.
        version: with its local part.
        tag: Python, ABI and platform.
        module: what to import.
        requires: its ``Requires-Dist`` lines.
        metadata: text of METADATA.
        licences: as in ``Texts``.
    """

    distribution: str
    version: str
    tag: Tag
    module: str
    requires: tuple[str, ...]
    metadata: str
    licences: tuple[tuple[str, bytes], ...] = ()

    @property
    def stem(self) -> str:
        """Distribution and version as file names spell them."""
        return f"{canonicalize_name(self.distribution).replace('-', '_')}-{self.version}"

    @property
    def file(self) -> str:
        """The wheel's file name."""
        return f"{self.stem}-{'-'.join(self.tag)}.whl"


def plan(
    variant: Variant,
    metadata: Metadata,
    libraries: Sequence[Library],
    texts: Texts,
    *,
    version: str,
    siblings: Collection[Variant],
    name: str | None = None,
) -> Plan:
    """The wheel of one variant.

    Args:
        variant: what it was built for.
        metadata: what it says of itself.
        libraries: its shared libraries.
        texts: what describes it.
        version: of the kernel, without a local part.
        siblings: every variant of that version, this one too.
        name: the distribution's, where it is not the kernel's.

    Raises:
        UsageError: the name or version cannot be a distribution's, or the kernel needs a loader.
        CheckError: a library asks for what no tag can promise.
    """
    if metadata.kernel_depends:
        needed = ", ".join(depend.repo_id for depend in metadata.kernel_depends)
        raise UsageError(
            f"{metadata.name} depends on other kernels ({needed}), which its package asks the "
            "loader for while it is imported; a wheel is imported without one",
            hint="load it with get_kernel",
        )
    distribution = name or metadata.name
    if not _NAME.fullmatch(distribution):
        raise UsageError(f"{distribution!r} cannot name a distribution", hint="as in acme-img2gray")
    full = _version(version, local_version(variant) if needs_label(siblings) else "")
    requires = requirements(variant, metadata)
    head = (("Name", distribution), ("Version", full))
    tag = (*_python(libraries), _platform(variant, libraries))
    return Plan(
        distribution=distribution,
        version=full,
        tag=tag,
        module=metadata.python_name,
        requires=requires,
        metadata=_document(head, requires, variant, metadata, texts),
        licences=texts.licences,
    )


def needs_label(variants: Collection[Variant]) -> bool:
    """Whether tags alone cannot tell these variants of one version apart."""
    machines = {(variant.cpu, variant.os) for variant in variants}
    any_machine = any(variant.is_noarch for variant in variants)
    return len(machines) < len(variants) or (any_machine and len(variants) > 1)


def local_version(variant: Variant) -> str:
    """What tells a variant from others for the same machine, as in ``torchabi2.10.cu130``."""
    if variant.version is None:
        return re.sub(r"[^a-z0-9]+", ".", str(variant.backend).lower())
    interface = f"{_LABEL_OF[variant.framework]}{variant.version[0]}.{variant.version[1]}"
    old = ".cxx98" if variant.cxx11 is False else ""
    return f"{interface}{old}.{variant.backend}"


def requirements(variant: Variant, metadata: Metadata) -> tuple[str, ...]:
    """The ``Requires-Dist`` lines.

    Raises:
        CheckError: it depends on a Python package that no kernel may depend on.
    """
    found = [variant.requirement]
    known = python_depends(metadata.backend)
    for name in metadata.python_depends:
        if name not in known:
            raise CheckError(
                f"{metadata.name} depends on Python package {name!r}, which is not among those "
                f"that a kernel for {metadata.backend} may use",
                hint=f"those are {', '.join(known)}; a newer kernforge may know more",
            )
        found.append(known[name].package)
    names = {re.split(r"[^A-Za-z0-9._-]", line)[0] for line in found[:1]}
    return (*found[:1], *sorted(set(found[1:]) - names))


def _python(libraries: Sequence[Library]) -> tuple[str, str]:
    """Python and ABI tag that serve all libraries."""
    for library in libraries:
        if not library.outside:
            continue
        if match := _FULL_API.search(library.path):
            return f"cp3{match[1]}", f"cp3{match[1]}"
        raise CheckError(
            f"{library.path} calls {', '.join(library.outside)}, which no limited API of Python "
            "has, and its name does not say which Python it is for",
            hint="build it with the limited API: bind with TORCH_LIBRARY, not with pybind11",
        )
    asked = [library.python for library in libraries if library.python is not None]
    if not asked:
        return "py3", "none"
    major, minor = max(LEAST_PYTHON, *asked)
    return f"cp{major}{minor}", "abi3"


def _platform(variant: Variant, libraries: Sequence[Library]) -> str:
    """Platform tag that serves all libraries."""
    examined = {library.platform for library in libraries if library.platform}
    if examined:
        return max(examined, key=_newness)
    if variant.is_noarch or not libraries:
        return "any"
    if variant.os == "darwin":
        return f"macosx_{_MACOS}_{_MACOS_CPU.get(variant.cpu, variant.cpu)}"
    if variant.os == "windows":
        return f"win_{_WINDOWS_CPU.get(variant.cpu, variant.cpu)}"
    return f"{variant.os}_{variant.cpu}"


def _newness(platform: str) -> tuple[int, ...]:
    """Order of platforms, the one that fewest machines have last; plain ``linux`` promises nothing."""
    match = re.match(r"manylinux_([0-9]+)_([0-9]+)_", platform)
    return (0, int(match[1]), int(match[2])) if match else (1,)


def _version(text: str, label: str) -> str:
    """A version of this kernel with its local part.

    Raises:
        UsageError: it is none, or has a local part already.
    """
    try:
        version = Version(text)
    except InvalidVersion:
        version = None
    if version is None or version.local:
        raise UsageError(
            f"{text!r} cannot be a wheel's version", hint="write it like 1.2.0, without a +"
        )
    return str(Version(f"{version}+{label}")) if label else str(version)


def _document(
    head: Sequence[tuple[str, str]],
    requires: Sequence[str],
    variant: Variant,
    metadata: Metadata,
    texts: Texts,
) -> str:
    """METADATA, always in this order."""
    fields = [
        ("Metadata-Version", "2.4"),
        *head,
        ("Summary", f"The {metadata.name} kernel for {metadata.backend}"),
        *_licence(metadata.license),
        *(("License-File", name) for name, _ in texts.licences),
        *_urls(metadata),
        ("Requires-Python", f">={LEAST_PYTHON[0]}.{LEAST_PYTHON[1]}"),
        *(("Requires-Dist", line) for line in requires),
        ("Description-Content-Type", "text/markdown"),
    ]
    card = _FRONT_MATTER.sub("", texts.card).strip() or f"# {metadata.name}"
    headers = "".join(f"{key}: {_one_line(value)}\n" for key, value in fields)
    return f"{headers}\n{card}\n\n{_origin(variant, metadata)}"


def _licence(text: str) -> list[tuple[str, str]]:
    """The licence as an SPDX expression, or as free text when it is none."""
    try:
        return [("License-Expression", canonicalize_license_expression(text))]
    except InvalidLicenseExpression:
        return [("License", text)]


def _urls(metadata: Metadata) -> list[tuple[str, str]]:
    found = [("Source", metadata.source), ("Upstream", metadata.upstream)]
    commit = _commit(metadata)
    if metadata.source and commit and "://" in metadata.source:
        scheme = "" if metadata.source.startswith("git") else "git+"
        found.append(("Source commit", f"{scheme}{metadata.source}@{commit}"))
    return [("Project-URL", f"{label}, {url}") for label, url in found if url]


def _origin(variant: Variant, metadata: Metadata) -> str:
    """What was built from what, for people."""
    lines = ["## This build", "", f"- variant `{variant}`, id `{metadata.id}`"]
    if commit := _commit(metadata):
        kernel = metadata.provenance.kernel if metadata.provenance else None
        dirt = ", with changes that it does not hold" if kernel and kernel.dirty else ""
        lines.append(f"- from commit `{commit}`{dirt}")
    if metadata.provenance:
        lines.append(f"- by `{metadata.provenance.builder_version}`")
    return "\n".join((*lines, ""))


def _commit(metadata: Metadata) -> str | None:
    kernel = metadata.provenance.kernel if metadata.provenance else None
    return kernel.commit if kernel else None


def _one_line(text: str) -> str:
    """A header's value: a line break would begin another header."""
    return " ".join(text.split())
