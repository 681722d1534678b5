# SPDX-License-Identifier: Apache-2.0
"""Kinds of untrusted input, each with real documents and with its readers."""

import functools
import hashlib
import io
import os
import tempfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fuzz import mutations
from support.signatures import Sigstore
from support.wheel_maker import make_wheel

from kernforge.application import download, project_lock
from kernforge.artifact.metadata import Metadata
from kernforge.artifact.variant import Variant
from kernforge.binary import abi_floor, cubin, elf, fatbin
from kernforge.builder import provenance
from kernforge.errors import KernforgeError
from kernforge.loader import lock as kernels_lock
from kernforge.manifest import document, migrate
from kernforge.registry import api as registry_api, http, hub, listing
from kernforge.store import tree_archive
from kernforge.store.local import Store
from kernforge.system import files, untrusted
from kernforge.toolchain import lockfile, provision, resolver
from kernforge.toolchain.index import index
from kernforge.toolchain.index.http import Body, Page
from kernforge.toolchain.index.remote_zip import LocalWheel, RemoteWheel
from kernforge.toolchain.lockfile import LockedTree, LockedWheel
from kernforge.toolchain.provision import Toolchains
from kernforge.trust import policy, signature
from kernforge.trust.policy import IdentitySigner, KeySigner, Subject
from kernforge.trust.signing import Key

ROOT = Path(__file__).parents[2]
SEEDS, ELF = ROOT / "tests/fuzz/seeds", ROOT / "tests/data/elf"
CUBIN = (ELF / "nvcc.cubin").read_bytes()


class Kind(NamedTuple):
    """A kind of input: what draws nearly right documents, all that reads one, and real ones.

    Only a ``KernforgeError`` may come out of the reader.
    """

    mutants: object
    read: object
    seeds: tuple[bytes, ...]


def _seeds(*patterns, root=SEEDS):
    found = tuple(path.read_bytes() for p in patterns for path in sorted(root.glob(p)))
    assert len(found) >= len(patterns)
    return found


def attempts(*reads):
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


def _text(data):
    return data.decode(errors="replace")


class OneFile:
    """An index with its server, whose every wheel has these bytes."""

    def __init__(self, data):
        self.data = data

    @contextmanager
    def body(self, _url, *, start=0, stop=None):
        first = max(0, len(self.data) + start) if start < 0 else start
        chunks = iter([self.data[first:stop]])
        yield Body(start=first, total=len(self.data), ranged=True, chunks=chunks)

    def whole(self, _file, _sha256):
        return LocalWheel(io.BytesIO(self.data))

    def parts(self, _file, _sha256):
        return RemoteWheel(self, "https://files.example/a.whl")


@contextmanager
def _directory():
    """A directory that nothing may be written outside of, and no link may lead out of."""
    with tempfile.TemporaryDirectory(prefix="kernforge-fuzz-") as place:
        tree = Path(place) / "a" / "b" / "tree"
        tree.mkdir(parents=True)
        try:
            yield tree
        finally:
            outside = [p for p in Path(place).rglob("*") if not p.is_relative_to(tree)]
            assert len(outside) == 2, f"something was written outside: {outside}"
            for path in tree.rglob("*"):
                real = Path(os.path.realpath(path))  # a link may lead to itself
                assert real.is_relative_to(tree.resolve()), f"{path} leads out"
            files.remove_tree(tree)


# -- documents -------------------------------------------------------------------------------


def read_manifest(data):
    text = _text(data)

    def whole():
        manifest = document.parse(text)
        repr(manifest.content)
        for backend in manifest.general.backends:
            manifest.sections(backend)

    attempts(
        whole,
        lambda: document.edition_of(text),
        lambda: migrate.migrate(text, source="build.toml", license_name="MIT"),
    )


def read_metadata(data):
    found = Metadata.from_json(data)
    assert Metadata.from_json(found.to_json()).id == found.id
    repr(found.python_name)


def read_toolchain_lock(data):
    lock = lockfile.from_json(_text(data))
    lock.to_json().encode()
    compilers = lock.merged(lock).compilers
    for name, compiler in lock.compilers.items():
        compiler.difference(compilers[name])
    reads = []
    with _directory() as place:
        toolchains = Toolchains(Store(place), OneFile(b""))
        for name, tree in lock.trees.items():
            reads.append(functools.partial(provision.identity, name, lock))
            reads.append(functools.partial(toolchains.path, tree))
        attempts(*reads)


def read_kernels_lock(data):
    locks = kernels_lock.KernelLocks.from_json(data)
    attempts(*(functools.partial(locks.of, kernel.depend.repo_id) for kernel in locks.kernels))


def read_pins(data):
    pins = kernels_lock.read_pins(data)
    kernels_lock.pins_text(pins).encode()
    locks = kernels_lock.KernelLocks(kernels=pins, pins=pins)
    attempts(*(functools.partial(locks.of, pin.depend.repo_id) for pin in pins))


SUBJECTS = [
    Subject(repo_id="acme/toy", registry="hf+https://huggingface.co"),
    Subject(repo_id="a" * 90 + "/" + "x" * 90, registry="file:///" + "a/" * 60),
    Subject(repo_id=None, registry="file:///srv/kernels"),
]


def read_policy(data):
    found = policy.read(data, "trust.toml")
    for subject in SUBJECTS:
        policy.matching_rules([found], subject, "ab" * 32)


def read_requirements(data):
    project_lock.read_dependencies(project_lock.load_document(_text(data)))


def read_statement(data):
    provenance.read(_text(data)).lock.to_json().encode()


DOCUMENT = b'{"name": "toy"}'


@functools.cache
def signed():
    """Bundles of a key and of an identity, and who may have signed."""
    key, instance = Key(), Sigstore()
    instance.as_public().__enter__()  # until this process ends
    who = {"issuer": "https://issuer.example", "identities": ("https://git.example/**",)}
    identity = IdentitySigner(name="ci", **who)
    bundles = (*key.sign([DOCUMENT]), instance.sign(DOCUMENT))
    return bundles, (KeySigner(name="key", key=key.public), identity)


def read_bundle(data):
    attempts(
        lambda: signature.is_key_bundle(data),
        lambda: signature.verify(DOCUMENT, data, signed()[1]),
    )


def read_hub(data):
    """Answers of a hub: references and listings; and the documents of a web server."""

    def answer(read, document):
        with http.reading("https://hub.example"):
            read(document())

    attempts(
        *(
            functools.partial(answer, read, lambda: untrusted.parse_json(data))
            for read in (hub.read_refs, hub.read_tree)
        ),
        *(
            functools.partial(answer, read, lambda: data)
            for read in (listing.read_refs, listing.read_listing)
        ),
    )


def read_index(data):
    """A page of an index in both forms."""

    def files_of(kind):
        url = "https://index.example/simple/nvidia-cuda-nvcc/"
        page = Page(url=url, text=_text(data), content_type=kind)
        for file in index.listed_files("nvidia-cuda-nvcc", page):
            list(index._distribution(*file))

    kinds = ("text/html", "application/vnd.pypi.simple.v1+json")
    attempts(*(functools.partial(files_of, kind) for kind in kinds))


def read_platform(data):
    """Names of platforms and variants."""
    text = _text(data)
    attempts(
        lambda: download.parse_platform(text[:200]),
        lambda: Variant.parse(text[:200]),
    )


# -- machine code and archives ---------------------------------------------------------------


def read_binary(data):
    def shared():
        found = elf.parse(data)
        abi_floor.unresolvable(found.undefined)
        repr(found)

    readers = (elf.contents, fatbin.architectures, fatbin.cubins, cubin.kernels, cubin.variables)
    attempts(
        shared,
        *(functools.partial(read, data) for read in readers),
        lambda: cubin.uses(data, 9),
    )
    cubin.named_like(data, CUBIN)
    fatbin.one_cubin(data[:8192])
    cubin._contents.cache_clear()


HEADERS = {"include/a.h": b"#pragma once\n" * 20, "include/deep/b.h": b"int b();\n"}
MEMBERS = {**HEADERS, "bin/nvcc": b"#!/bin/sh\necho nvcc\n"}
TOOLKIT = "nvidia_cuda_nvcc-13.9.99-py3-none-manylinux_2_28_x86_64.whl"
TORCH = "torch-9.9.0-cp310-cp310-manylinux_2_28_x86_64.whl"
METADATA = (
    b"Metadata-Version: 2.1\nName: cuda-toolkit\nVersion: 13.0.2\n"
    b"Requires-Dist: nvidia-cuda-nvcc==13.0.*; extra == 'nvcc'\nRequires-Dist: x>=1\n\ntext\n"
)


def wheel(file, prefix, members):
    named = {f"{prefix}/{name}": data for name, data in members.items()}
    named["-".join(file.split("-")[:2]) + ".dist-info/METADATA"] = METADATA
    with _directory() as place:
        return make_wheel(place / file, named).read_bytes()


def read_wheel(data):
    """A wheel: whole as a toolkit, by ranges for its headers, and what it requires."""
    kit = LockedWheel(file=TOOLKIT, sha256="0" * 64)

    def headers():
        record = hashlib.sha256(source.parts("", "").record()).hexdigest()
        pinned = LockedWheel(file=TORCH, sha256="", record=record)
        toolchains.path(LockedTree(kind="torch", version="2.9", release="", wheels=(pinned,)))

    with _directory() as place:
        source = OneFile(data)
        toolchains = Toolchains(Store(place), source)
        locked = LockedTree(kind="cuda", version="13.9", release="13.9.9", wheels=(kit,))
        attempts(
            lambda: toolchains.path(locked),
            headers,
            lambda: resolver.requirements(source.whole("", "")),
        )


def plain_tar():
    """A tar with files, directories, a link and a long name."""
    out = io.BytesIO()
    with _directory() as tree:
        for name, data in {**MEMBERS, "include/" + "l" * 120 + ".h": b"x"}.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes(data)
        (tree / "bin" / "link").symlink_to("../include/a.h")
        tree_archive.write_tar(tree, out)
    return out.getvalue()


def seal(data):
    """A packed tree as the shared store has it, whose hash is right."""
    line = f"kernforge-tree 1 {hashlib.sha256(data).hexdigest()}\n".encode()
    return line + zlib.compress(data, 1)


def read_tree(data):
    with _directory() as tree:
        tree_archive.unpack(io.BytesIO(data), tree)


@functools.cache
def kinds():
    """All kinds by name."""
    json_, text = mutations.json_documents, mutations.texts
    manifests = _seeds("good-*.toml", "older-*.toml", root=ROOT / "tests" / "data" / "manifests")
    projects = _seeds("*/build.toml", root=ROOT / "kernels")
    locks = _seeds("*/kernforge.lock", root=ROOT / "kernels")
    answers = _seeds("refs.json", "tree.json", "listing.json")
    binaries = _seeds("*.so", "*.cubin", "*.fatbin", root=ELF)
    wheels = wheel(TOOLKIT, "nvidia/cu13", MEMBERS), wheel(TORCH, "torch", HEADERS)
    rows = {
        "build.toml": (read_manifest, text, (*manifests, *projects)),
        "metadata.json": (read_metadata, json_, _seeds("metadata*.json")),
        "kernels.lock": (read_kernels_lock, json_, _seeds("kernels*.lock")),
        "kernforge-kernels.lock": (read_pins, json_, _seeds("kernforge-kernels.lock")),
        "kernforge.lock": (read_toolchain_lock, json_, locks),
        "trust policy": (read_policy, text, _seeds("trust.toml")),
        "pyproject.toml": (read_requirements, text, _seeds("pyproject.toml")),
        "statement": (read_statement, json_, _seeds("provenance.intoto.json")),
        "bundle": (read_bundle, json_, signed()[0]),
        "redirect": (registry_api.read_redirect, text, _seeds("kernel-status.toml")),
        "hub answer": (read_hub, json_, answers),
        "index page": (read_index, json_, _seeds("simple.json")),
        "index page, HTML": (read_index, text, _seeds("simple.html")),
        "platform": (read_platform, text, (b"torch2.11-cu130-x86_64-linux",)),
        "ELF": (read_binary, mutations.binaries, [b for b in binaries if b[:4] == b"\x7fELF"]),
        "wheel": (read_wheel, mutations.binaries, wheels),
    }
    found = {name: Kind(mutate(seeds), read, seeds) for name, (read, mutate, seeds) in rows.items()}
    tree = plain_tar()
    found["packed tree"] = Kind(mutations.tars((tree,), seal), read_tree, (seal(tree),))
    return found
