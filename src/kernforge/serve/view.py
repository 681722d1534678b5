# SPDX-License-Identifier: Apache-2.0
"""What a kernel's page shows of a commit: its builds, their signatures, its public names, its fit.

A published commit is untrusted. What cannot be read is named in its place; what is large is cut.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias, TypeVar

from kernforge.artifact.metadata import FILE, SIGNATURE, Metadata
from kernforge.artifact.variant import Variant
from kernforge.artifact.version import Version2
from kernforge.errors import CheckError, IntegrityError, RegistryError, TrustError, UsageError
from kernforge.loader.host import Host
from kernforge.loader.resolve import check_archs, resolve, way_out
from kernforge.registry.api import REDIRECT, read_redirect
from kernforge.registry.listing import MALFORMED, RemoteFile
from kernforge.source import op_schema, python_api
from kernforge.source.python_api import ApiEntry
from kernforge.system import untrusted
from kernforge.trust.admission import Admission

T = TypeVar("T")
Read: TypeAlias = Callable[[str], bytes | None]
Admit: TypeAlias = Callable[[bytes, bytes | None], Admission]
Place: TypeAlias = tuple[str, tuple[Version2, str, bool], tuple[bool, str, Version2]]

_MOST = 400  # builds, and public names
_DOCUMENT = 1 << 20  # bytes of a document, and of all Python files of a package
_SCHEMA = 4096  # characters
_CARD = 1 << 16
_NONE = Version2(0, 0)
# A server that does not answer is none of these: the page would keep its error.
_WRONG = (CheckError, IntegrityError, RegistryError, TrustError, UsageError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A variant of a commit.

    Attributes:
        variant: the parsed name; None if it is not the name of a variant.
        size: bytes of its files, each content once.
        metadata: its document; None if it cannot be read, for the reason in ``problem``.
        signer: the signer that its signature names, unverified; empty without a signature.
        verified: the signers that the server's trust policy demands and has verified.
        refused: why that policy refuses the build; else empty.
    """

    name: str
    variant: Variant | None
    size: int
    metadata: Metadata | None = None
    problem: str = ""
    signer: str = ""
    verified: tuple[str, ...] = ()
    refused: str = ""

    @property
    def place(self) -> Place:
        """Platform, row and column of a variant in the table, as keys to sort by."""
        assert self.variant  # noqa: S101 - others are in no table
        variant, backend = self.variant, self.variant.backend
        row = (variant.version or _NONE, variant.framework, variant.cxx11 is False)
        column = (backend.name != "cpu", backend.name, backend.version or _NONE)
        return f"{variant.cpu}-{variant.os}", row, column


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A published commit.

    Attributes:
        omitted: how many builds are left out.
        size: bytes of all variants, each content once.
        moved: the kernel's new name, if the commit has one.
        api: the public names and operators of the variant ``api_of``.
        problems: why a part cannot be read, by its name.
    """

    builds: tuple[Build, ...]
    omitted: int
    size: int
    has_source: bool
    card: str
    moved: str
    api: Mapping[str, ApiEntry]
    api_of: str
    problems: Mapping[str, str]


class Fit(NamedTuple):
    """The variant that would load, why others would not (near misses first), and what to do."""

    best: str
    reasons: Mapping[str, str]
    advice: str


def read_release(files: Mapping[str, RemoteFile], read: Read, admit: Admit) -> Release:
    """Read a commit.

    Args:
        read: returns a file's bytes by its path.
        admit: decides by the server's trust policy about a document and its signature.

    Raises:
        NetworkError: the registry does not answer.
    """

    def small(path: str) -> bytes | None:
        if path in files and files[path].size > _DOCUMENT:
            raise IntegrityError(f"{path} has {files[path].size:,} bytes, too many to be read here")
        return read(path) if path in files else None

    def attempt(part: str, value: Callable[[], T], default: T) -> T:
        try:
            return value()
        except (*_WRONG, *MALFORMED, MemoryError) as error:
            problems[part] = getattr(error, "message", "it is malformed")
            return default

    problems: dict[str, str] = {}
    folders: dict[str, dict[str, RemoteFile]] = {}
    for path, file in files.items():
        top, _, inner = path.partition("/")
        if top == "build" and "/" in inner:
            folders.setdefault(inner.partition("/")[0], {})[path] = file
    shown = sorted(folders)[:_MOST]
    builds = tuple(_read_build(name, folders[name], small, admit) for name in shown)
    first = next((build for build in builds if build.metadata), None)

    def moved() -> str:
        document = small(REDIRECT)
        return "" if document is None else read_redirect(document).repo_id

    return Release(
        builds=builds,
        omitted=len(folders) - len(shown),
        size=_unique_bytes(file for folder in folders.values() for file in folder.values()),
        has_source=any(path.startswith("source/") for path in files),
        card=attempt("card", lambda: (small("README.md") or b"").decode()[:_CARD], ""),
        moved=attempt("moved", moved, ""),
        api=attempt("api", lambda: _read_api(first, files, small), {}),
        api_of=first.name if first else "",
        problems=problems,
    )


def _read_build(name: str, folder: Mapping[str, RemoteFile], read: Read, admit: Admit) -> Build:
    build = Build(name=name, variant=parse(name), size=_unique_bytes(folder.values()))
    try:
        if (document := read(f"build/{name}/{FILE}")) is None:
            return replace(build, problem=f"{FILE} is missing")
        build = replace(build, metadata=Metadata.from_json(document))
        bundle = read(f"build/{name}/{SIGNATURE}")
    except _WRONG as error:
        return replace(build, problem=error.message)
    build = replace(build, signer="" if bundle is None else _named_signer(bundle))
    try:
        return replace(build, verified=admit(document, bundle).signers)
    except _WRONG as error:
        return replace(build, refused=error.message)


def parse(name: str) -> Variant | None:
    """The variant of a name; None if it is not the name of one."""
    try:
        return Variant.parse(name)
    except UsageError:
        return None


def _unique_bytes(files: Iterable[RemoteFile]) -> int:
    return sum({file.blob: file.size for file in files}.values())


def _named_signer(bundle: bytes) -> str:
    """The key or identity that a signature names, unverified."""
    try:
        material = untrusted.parse_json(bundle)["verificationMaterial"]
        if "publicKey" in material:
            return f"the key {material['publicKey']['hint'][:80]}"
        from cryptography import x509  # noqa: PLC0415 - of the extra `trust`

        der = base64.b64decode(material["certificate"]["rawBytes"])
        extensions = x509.load_der_x509_certificate(der).extensions
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return ", ".join(str(name.value) for name in names)[:300]
    except Exception:  # noqa: BLE001 - untrusted bytes in a parser of another package
        return "an identity that cannot be read here"


def _read_api(
    build: Build | None, files: Mapping[str, RemoteFile], read: Read
) -> Mapping[str, ApiEntry]:
    if build is None:
        return {}
    start = f"build/{build.name}/"
    paths = [path for path in sorted(files) if path.startswith(start) and path.endswith(".py")]
    if sum(files[path].size for path in paths) > _DOCUMENT:
        raise IntegrityError("the Python files are too large to be read here")
    texts = {p.removeprefix(start): (read(p) or b"").decode(errors="replace") for p in paths}
    provenance = build.metadata.provenance if build.metadata else None
    schemas = provenance.kernforge.get("ops", []) if provenance else []
    if any(len(schema) > _SCHEMA for schema in schemas):
        raise IntegrityError("an operator's schema is too long to be read here")
    entries = python_api.read_package(texts) | op_schema.read_operators(schemas[:_MOST])
    return dict([*entries.items()][:_MOST])


def fit(builds: Iterable[Build], host: Host) -> Fit:
    """Which build would load on a machine, by the loader's rules; the others with reasons."""
    known = {build.name: build for build in builds}
    resolution = resolve(known, host)
    reasons: dict[str, str] = {}
    for decision in sorted(resolution.decisions, key=lambda decision: -decision.step):
        metadata = known[decision.name].metadata
        unfit = check_archs(metadata.backend, metadata.archs, host) if metadata else ""
        unreadable = "" if metadata else "its metadata cannot be read"
        reasons[decision.name] = decision.reason or unreadable or unfit
    reasons |= dict.fromkeys(known.keys() - reasons.keys(), "its name is not that of a variant")
    if (best := resolution.best) is None:
        advice = way_out(resolution, host, take_cpu='pass backend="cpu" to load {}')
        return Fit("", reasons, advice)
    if reason := reasons[best.name]:
        # The loader chooses before it reads the document, and takes no second choice.
        return Fit("", reasons, f"{best.name} would be refused: {reason}")
    return Fit(best.name, reasons, "")
