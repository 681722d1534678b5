# SPDX-License-Identifier: Apache-2.0
"""What a kernel's page shows of a commit: its builds, their signatures, its public names, its fit.

A published commit is untrusted. What cannot be read is named in its place; what is large is cut.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

from kernforge.artifact.metadata import FILE, SIGNATURE, Metadata
from kernforge.artifact.variant import Variant
from kernforge.artifact.version import Version2
from kernforge.errors import (
    CheckError,
    IntegrityError,
    MissingFileError,
    RegistryError,
    StorageError,
    TrustError,
    UsageError,
)
from kernforge.loader.host import Host
from kernforge.loader.resolve import check_archs, resolve, way_out
from kernforge.registry.api import REDIRECT, Answer, read_redirect
from kernforge.registry.listing import MALFORMED, RemoteFile
from kernforge.source import op_schema, python_api
from kernforge.source.python_api import ApiEntry
from kernforge.system.environment import Environment
from kernforge.trust import signature
from kernforge.trust.admission import Case
from kernforge.trust.policy import Subject

log = logging.getLogger("kernforge")

T = TypeVar("T")
Small: TypeAlias = Callable[[str], bytes | None]
Folder: TypeAlias = dict[str, RemoteFile]

_MOST = 400  # builds, and public names
_DOCUMENT = 1 << 20  # bytes of a document, and of all Python files of a package
_SCHEMA = 4096  # characters
_CARD = 1 << 16
_NONE = Version2(0, 0)
# A server that does not answer is none of these: the page would keep its error.
_REFUSED = (CheckError, IntegrityError, RegistryError, TrustError, UsageError)
_WRONG = (*_REFUSED, *MALFORMED, MemoryError, StorageError)


@dataclass(slots=True, kw_only=True)
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
    def place(self) -> tuple[str, tuple[Any, ...], tuple[Any, ...]]:
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

    builds: list[Build]
    omitted: int
    size: int
    has_source: bool
    card: str
    moved: str
    api: Mapping[str, ApiEntry]
    api_of: str
    problems: Mapping[str, str]


class Fit(NamedTuple):
    """The variant that would load, why others would not, what to do, and near misses first."""

    best: str
    reasons: Mapping[str, str]
    advice: str
    builds: list[Build]


def read_release(answer: Answer, environment: Environment) -> Release:
    """Read a commit.

    Raises:
        NetworkError: the registry does not answer.
    """
    files = answer.registry.listing(answer.repo_id, answer.commit)
    problems: dict[str, str] = {}

    def small(path: str) -> bytes | None:
        if path in files and files[path].size > _DOCUMENT:
            raise IntegrityError(f"{path} has {files[path].size:,} bytes, too many to be read here")
        return answer.small_file(path)

    def attempt(part: str, read: Callable[[], T], default: T) -> T:
        try:
            return read()
        except _WRONG as error:
            problems[part] = _message(error)
            return default

    def moved() -> str:
        document = small(REDIRECT)
        return "" if document is None else read_redirect(document).repo_id

    # Consent is each reader's own; the page says what the policy demands beyond it.
    case = Case(Subject.of(answer), environment, trust_remote_code=True)
    variants = variants_of(files)
    builds = [_read_build(name, variants[name], small, case) for name in sorted(variants)[:_MOST]]
    first = next((build for build in builds if build.metadata), None)
    return Release(
        builds=builds,
        omitted=len(variants) - len(builds),
        size=_unique_bytes(file for folder in variants.values() for file in folder.values()),
        has_source=any(path.startswith("source/") for path in files),
        card=attempt("card", lambda: (small("README.md") or b"").decode()[:_CARD], ""),
        moved=attempt("moved", moved, ""),
        api=attempt("api", lambda: _read_api(first, variants, small), {}),
        api_of=first.name if first else "",
        problems=problems,
    )


def variants_of(files: Mapping[str, RemoteFile]) -> dict[str, Folder]:
    """The files of each variant, by its name and their paths in the commit."""
    variants: dict[str, Folder] = {}
    for path, file in files.items():
        folder, *inner = path.split("/")[:-1] or [""]
        if folder == "build" and inner:
            variants.setdefault(inner[0], {})[path] = file
    return variants


def parse(name: str) -> Variant | None:
    """The variant of a name; None if it is not the name of one."""
    try:
        return Variant.parse(name)
    except UsageError:
        return None


def _message(error: Exception) -> str:
    if isinstance(error, StorageError):
        log.warning("%s", error)  # it names paths of the operator
        return "it cannot be read"
    return error.message if isinstance(error, _REFUSED) else "it is malformed"


def _unique_bytes(files: Iterable[RemoteFile]) -> int:
    return sum({file.blob: file.size for file in files}.values())


def _read_build(name: str, folder: Folder, small: Small, case: Case) -> Build:
    build = Build(name=name, variant=parse(name), size=_unique_bytes(folder.values()))
    try:
        document = small(f"build/{name}/{FILE}")
        if document is None:
            raise MissingFileError(f"{FILE} is missing")
        build.metadata = Metadata.from_json(document)
        bundle = small(f"build/{name}/{SIGNATURE}")
    except _WRONG as error:
        build.problem = _message(error)
        return build
    if bundle is not None:
        build.signer = signature.named_signer(bundle)
    try:
        build.verified = case.admit(document, lambda: bundle)[0].signers
    except _WRONG as error:  # without the place of the registry
        build.refused = _message(error).removeprefix(f"{case.subject}: ")
    return build


def _read_api(
    build: Build | None, variants: Mapping[str, Folder], small: Small
) -> Mapping[str, ApiEntry]:
    if build is None or build.metadata is None:
        return {}
    start, folder = f"build/{build.name}/", variants[build.name]
    paths = [path for path in sorted(folder) if path.endswith(".py")]
    if sum(folder[path].size for path in paths) > _DOCUMENT:
        raise IntegrityError("the Python files are too large to be read here")
    texts = {p.removeprefix(start): (small(p) or b"").decode(errors="replace") for p in paths}
    provenance = build.metadata.provenance
    schemas = provenance.kernforge.get("ops", []) if provenance else []
    if any(len(schema) > _SCHEMA for schema in schemas):
        raise IntegrityError("an operator's schema is too long to be read here")
    entries = python_api.read_untrusted_package(texts) | op_schema.read_operators(schemas[:_MOST])
    return dict([*entries.items()][:_MOST])


def fit(builds: Iterable[Build], host: Host) -> Fit:
    """Which build would load on a machine, by the loader's rules."""
    known = {build.name: build for build in builds}
    resolution = resolve(known, host)
    reasons: dict[str, str] = {}
    for decision in sorted(resolution.decisions, key=lambda decision: -decision.step):
        unfit = "its metadata cannot be read"
        if metadata := known[decision.name].metadata:
            unfit = check_archs(metadata.backend, metadata.archs, host)
        reasons[decision.name] = decision.reason or unfit
    for name in known.keys() - reasons.keys():
        reasons[name] = "its name is not that of a variant"
    best, advice = resolution.best.name if resolution.best else "", ""
    if not best:
        advice = way_out(resolution, host, take_cpu='pass backend="cpu" to load {}')
    elif reasons[best]:
        # The loader chooses before it reads the document, and takes no second choice.
        best, advice = "", f"{best} would be refused: {reasons[best]}"
    return Fit(best, reasons, advice, [known[name] for name in reasons])
