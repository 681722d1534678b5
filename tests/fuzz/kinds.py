# SPDX-License-Identifier: Apache-2.0
"""Kinds of untrusted input, each with real documents and with its readers."""

from __future__ import annotations

import functools
import hashlib
import io
import os
import tarfile
import tempfile
import zipfile
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fuzz import mutations
from support.signatures import Sigstore

from kernforge.application import download, project_lock
from kernforge.artifact.metadata import Metadata
from kernforge.artifact.variant import Variant
from kernforge.binary import abi_floor, cubin, elf, fatbin
from kernforge.builder import provenance
from kernforge.errors import KernforgeError
from kernforge.loader import lock as kernels_lock
from kernforge.manifest import document, migrate
from kernforge.registry import api as registry_api
from kernforge.registry import hub, remote
from kernforge.store import tree_archive
from kernforge.store.local import Store
from kernforge.system import files
from kernforge.toolchain import lockfile, provision, resolver
from kernforge.toolchain.index import index
from kernforge.toolchain.index.http import Body, Page
from kernforge.toolchain.index.remote_zip import LocalWheel, RemoteWheel
from kernforge.toolchain.lockfile import LockedTree, LockedWheel
from kernforge.toolchain.provision import Toolchains
from kernforge.trust import policy, signature
from kernforge.trust.policy import IdentitySigner, KeySigner, Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hypothesis.strategies import SearchStrategy

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SEEDS = HERE / "seeds"


@dataclass(frozen=True)
class Kind:
    """A kind of input.

    Attributes:
        name: what it is called.
        mutants: draws documents of it that are nearly right.
        read: all that reads one; only a ``KernforgeError`` may come out of it.
        seeds: the documents that are changed, which must be readable.
    """

    name: str
    mutants: SearchStrategy[bytes]
    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]


def _seeds(*patterns: str, root: Path = SEEDS) -> tuple[bytes, ...]:
    found = tuple(path.read_bytes() for p in patterns for path in sorted(root.glob(p)))
    assert len(found) >= len(patterns)
    return found


def attempts(*reads: Callable[[], object]) -> None:
    """Call all; if none of them can read the document, the first of our errors is raised."""
    errors = []
    for read in reads:
        try:
            read()
        except KernforgeError as error:
            str(error).encode()  # it can be printed
            errors.append(error)
    if errors and len(errors) == len(reads):
        raise errors[0]


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


# -- documents -------------------------------------------------------------------------------


def read_manifest(data: bytes) -> None:
    """build.toml: parsed, converted, and its sections listed."""
    text = _text(data)

    def whole() -> None:
        manifest = document.parse(text)
        repr(manifest.content)
        for backend in manifest.general.backends:
            manifest.sections(backend)

    attempts(
        whole,
        lambda: document.edition_of(text),
        lambda: migrate.migrate(text, source="build.toml", license_name="MIT"),
    )


def read_metadata(data: bytes) -> None:
    """metadata.json: parsed, and written again."""
    found = Metadata.from_json(data)
    assert Metadata.from_json(found.to_json()).id == found.id
    repr(found.python_name)


def read_toolchain_lock(data: bytes) -> None:
    """kernforge.lock: parsed, written, its trees named, its toolkits asked of a store."""
    lock = lockfile.from_json(_text(data))
    lock.to_json().encode()
    compilers = lock.merged(lock).compilers
    for name, compiler in lock.compilers.items():
        compiler.difference(compilers[name])
    reads: list[Callable[[], object]] = []
    with tempfile.TemporaryDirectory() as place:
        toolchains = Toolchains(Store(Path(place)), _NoIndex())
        for name, tree in lock.trees.items():
            reads += [
                functools.partial(provision.identity, name, lock),
                functools.partial(toolchains.path, tree),
            ]
        attempts(*reads)


class _NoIndex:
    """An index that has nothing."""

    def whole(self, file: str, _sha256: str) -> None:
        raise KernforgeError(f"no index has {file}")

    parts = whole


def read_kernels_lock(data: bytes) -> None:
    """kernels.lock: parsed, and asked."""
    locks = kernels_lock.KernelLocks.from_json(data)
    attempts(*(functools.partial(locks.of, kernel.depend.repo_id) for kernel in locks.kernels))


def read_pins(data: bytes) -> None:
    """kernforge-kernels.lock: parsed, written, and asked."""
    pins = kernels_lock.read_pins(data)
    kernels_lock.pins_text(pins).encode()
    locks = kernels_lock.KernelLocks(kernels=pins, pins=pins)
    attempts(*(functools.partial(locks.of, pin.depend.repo_id) for pin in pins))


SUBJECTS = [
    Subject(repo_id="acme/toy", registry="hf+https://huggingface.co"),
    Subject(repo_id="a" * 90 + "/" + "x" * 90, registry="file:///" + "a/" * 60),
    Subject(repo_id=None, registry="file:///srv/kernels"),
]


def read_policy(data: bytes) -> None:
    """A trust policy: parsed, and matched."""
    found = policy.read(data, "trust.toml")
    for subject in SUBJECTS:
        policy.matching_rules([found], subject, "ab" * 32)


def read_requirements(data: bytes) -> None:
    """The kernels that a pyproject.toml asks for."""
    project_lock.read_dependencies(project_lock.load_document(_text(data)))


def read_statement(data: bytes) -> None:
    """A statement of how a variant was built."""
    provenance.read(_text(data)).lock.to_json().encode()


DOCUMENT = b'{"name": "toy"}'


@functools.cache
def signed() -> tuple[tuple[bytes, ...], tuple[KeySigner | IdentitySigner, ...]]:
    """Bundles of a key and of an identity, and who may have signed."""
    from kernforge.trust.signing import Key  # noqa: PLC0415 - after the path is set

    key = Key()
    instance = Sigstore()
    instance.as_public().__enter__()  # until this process ends
    signers = (
        KeySigner(name="key", key=key.public),
        IdentitySigner(
            name="ci",
            issuer="https://issuer.example",
            identities=("https://git.example/**",),
        ),
    )
    return (*key.sign([DOCUMENT]), instance.sign(DOCUMENT)), signers


def read_bundle(data: bytes) -> None:
    """A signature: whose it is."""
    attempts(
        lambda: signature.is_key_bundle(data),
        lambda: signature.verify(DOCUMENT, data, signed()[1]),
    )


def read_redirect(data: bytes) -> None:
    """kernel-status.toml."""
    registry_api.read_redirect(data)


def read_hub(data: bytes) -> None:
    """Answers of a hub: references, listings, searches; and a listing that the cache keeps."""
    from kernforge import untrusted  # noqa: PLC0415 - beside what uses it

    def answer(read: Callable[[object], object]) -> None:
        with hub.reading("https://hub.example"):
            read(untrusted.parse_json(data))

    readers = (hub.read_refs, hub.read_tree, hub.read_search)
    with _file(data) as path:
        attempts(
            *(functools.partial(answer, read) for read in readers),
            lambda: remote._read_listing(path),
        )


@contextmanager
def _file(data: bytes) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(prefix="kernforge-fuzz-") as stream:
        stream.write(data)
        stream.flush()
        yield Path(stream.name)


def read_index(data: bytes) -> None:
    """A page of an index in both forms."""
    text = _text(data)
    url = "https://index.example/simple/nvidia-cuda-nvcc/"
    reads = []
    for kind in ("text/html", "application/vnd.pypi.simple.v1+json"):
        page = Page(url=url, text=text, content_type=kind)
        reads.append(functools.partial(_files_of, page))
    attempts(*reads)


def _files_of(page: Page) -> None:
    for file in index._listed("nvidia-cuda-nvcc", page):
        list(index._distribution(*file))


def read_platform(data: bytes) -> None:
    """The description of another machine, and names of variants."""
    text = _text(data)
    attempts(
        lambda: download.read(text, source="machine.json"),
        lambda: download.parse(text[:200]),
        lambda: Variant.parse(text[:200]),
    )


# -- machine code ----------------------------------------------------------------------------


def read_binary(data: bytes) -> None:
    """Machine code: its dynamic part, its fat binaries, its kernels and what they take."""

    def shared() -> None:
        found = elf.parse(data)
        abi_floor.unresolvable(found.undefined)
        repr(found)

    attempts(
        shared,
        lambda: elf.contents(data),
        lambda: fatbin.architectures(data),
        lambda: fatbin.cubins(data),
        lambda: cubin.kernels(data),
        lambda: cubin.variables(data),
        lambda: cubin.uses(data, 9),
    )
    cubin.named_like(data, CUBIN)
    fatbin.one_cubin(data[:8192])
    cubin._contents.cache_clear()


# -- archives --------------------------------------------------------------------------------

MEMBERS = {
    "include/a.h": b"#pragma once\n" * 20,
    "include/deep/b.h": b"int b();\n",
    "bin/nvcc": b"#!/bin/sh\necho nvcc\n",
}


def wheel(prefix: str, members: dict[str, bytes], stem: str) -> bytes:
    """A wheel of these members, with METADATA and RECORD."""
    import base64  # noqa: PLC0415 - here alone

    named = {f"{prefix}{name}": data for name, data in members.items()}
    named[f"{stem}.dist-info/METADATA"] = (
        b"Metadata-Version: 2.1\nName: cuda-toolkit\nVersion: 13.0.2\n"
        b"Requires-Dist: nvidia-cuda-nvcc==13.0.*; extra == 'nvcc'\nRequires-Dist: x>=1\n\ntext\n"
    )
    out, lines = io.BytesIO(), []
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in named.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
            found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={found},{len(data)}\n")
        archive.writestr(zipfile.ZipInfo(f"{stem}.dist-info/RECORD"), "".join(lines))
    return out.getvalue()


TOOLKIT = "nvidia_cuda_nvcc-13.9.99"
TORCH = "torch-9.9.0"


class _Served:
    """A server that has one file, and sends parts of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def body(self, _url: str, *, start: int = 0, stop: int | None = None) -> Body:
        first = max(0, len(self.data) + start) if start < 0 else start
        part = self.data[first:stop]
        return Body(start=first, total=len(self.data), ranged=True, chunks=iter([part]))


class _OneWheel:
    """An index whose every wheel has these bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def whole(self, _file: str, _sha256: str) -> LocalWheel:
        return LocalWheel(io.BytesIO(self.data))

    def parts(self, _file: str, _sha256: str) -> RemoteWheel:
        return RemoteWheel(_Served(self.data), "https://files.example/a.whl")  # type: ignore[arg-type]


def read_wheel(data: bytes) -> None:
    """A wheel: whole as a toolkit, by ranges for its headers, and what it requires."""
    file = f"{TOOLKIT}-py3-none-manylinux_2_28_x86_64.whl"
    torch = f"{TORCH}-cp310-cp310-manylinux_2_28_x86_64.whl"
    wheel = LockedWheel(file=file, sha256="0" * 64)
    kit = LockedTree(kind="cuda", version="13.9", release="13.9.9", wheels=(wheel,))

    def headers(toolchains: Toolchains) -> None:
        found = RemoteWheel(_Served(data), "https://files.example/a.whl")  # type: ignore[arg-type]
        record = hashlib.sha256(found.record()).hexdigest()
        pinned = LockedWheel(file=torch, sha256="", record=record)
        toolchains.path(LockedTree(kind="torch", version="2.9", release="", wheels=(pinned,)))

    with tempfile.TemporaryDirectory(prefix="kernforge-fuzz-") as place:
        toolchains = Toolchains(Store(Path(place)), _OneWheel(data))  # type: ignore[arg-type]
        attempts(
            lambda: toolchains.path(kit),
            lambda: headers(toolchains),
            lambda: resolver.requirements(LocalWheel(io.BytesIO(data))),
        )
        _refuse_foreign(Path(place))


@contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kernforge-fuzz-") as place:
        tree = Path(place) / "a" / "b" / "tree"
        tree.mkdir(parents=True)
        try:
            yield tree
        finally:
            outside = [p for p in Path(place).rglob("*") if not p.is_relative_to(tree)]
            assert len(outside) == 2, f"something was written outside: {outside}"
            _refuse_foreign(tree)
            files.remove_tree(tree)


def _refuse_foreign(tree: Path) -> None:
    for path in tree.rglob("*"):
        if path.is_symlink():
            real = os.path.realpath(path)  # a link may lead to itself
            assert Path(real).is_relative_to(tree.resolve()), f"{path} leads out"


def plain_tar() -> bytes:
    """A tar with files, a directory, a link, a long name and attributes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in {**MEMBERS, "include/" + "l" * 120 + ".h": b"x"}.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o755
            archive.addfile(info, io.BytesIO(data))
        folder = tarfile.TarInfo("lib")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        link = tarfile.TarInfo("lib/link")
        link.type, link.linkname = tarfile.SYMTYPE, "../include/a.h"
        archive.addfile(link)
    return out.getvalue()


def seal(data: bytes) -> bytes:
    """A packed tree as the shared store has it, whose hash is right."""
    line = f"kernforge-tree 1 {hashlib.sha256(data).hexdigest()}\n".encode()
    return line + zlib.compress(data, 1)


def read_tree(data: bytes) -> None:
    """A packed tree of the shared store."""
    with _directory() as tree:
        tree_archive.unpack(io.BytesIO(data), tree)


ELF = ROOT / "tests" / "data" / "elf"
CUBIN = (ELF / "nvcc.cubin").read_bytes()


@functools.cache
def kinds() -> dict[str, Kind]:
    """All kinds by name."""
    found: list[Kind] = []

    def add(name: str, read: Callable[[bytes], object], mutate: object, *seeds: bytes) -> None:
        found.append(Kind(name, mutate(seeds), read, seeds))  # type: ignore[operator]

    manifests = _seeds("good-*.toml", "older-*.toml", root=ROOT / "tests" / "data" / "manifests")
    projects = _seeds("*/build.toml", root=ROOT / "kernels")
    json_, text = mutations.json_documents, mutations.texts
    add("build.toml", read_manifest, text, *manifests, *projects)
    add("metadata.json", read_metadata, json_, *_seeds("metadata*.json"))
    add("kernels.lock", read_kernels_lock, json_, *_seeds("kernels*.lock"))
    add("kernforge-kernels.lock", read_pins, json_, *_seeds("kernforge-kernels.lock"))
    locks = _seeds("*/kernforge.lock", root=ROOT / "kernels")
    add("kernforge.lock", read_toolchain_lock, json_, *locks)
    add("trust policy", read_policy, text, *_seeds("trust.toml"))
    add("pyproject.toml", read_requirements, text, *_seeds("pyproject.toml"))
    add("statement", read_statement, json_, *_seeds("provenance.intoto.json"))
    add("bundle", read_bundle, json_, *signed()[0])
    add("redirect", read_redirect, text, *_seeds("kernel-status.toml"))
    answers = _seeds("refs.json", "tree.json", "overview.json", "listing.json")
    add("hub answer", read_hub, json_, *answers)
    pages = _seeds("simple.json")
    add("index page", read_index, json_, *pages)
    add("index page, HTML", read_index, text, *_seeds("simple.html"))
    add("platform", read_platform, json_, *_seeds("platform.json"))
    binaries = _seeds("*.so", "*.cubin", "*.fatbin", root=ELF)
    add("ELF", read_binary, mutations.binaries, *(b for b in binaries if b[:4] == b"\x7fELF"))
    add(
        *("wheel", read_wheel, mutations.zips),
        wheel("nvidia/cu13/", MEMBERS, TOOLKIT),
        wheel("torch/", {k: v for k, v in MEMBERS.items() if "bin" not in k}, TORCH),
    )
    tree = plain_tar()
    sealed = mutations.packed(mutations.tars((tree,)), seal)
    found.append(Kind("packed tree", sealed, read_tree, (seal(tree),)))
    return {kind.name: kind for kind in found}
