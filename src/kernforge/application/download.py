# SPDX-License-Identifier: Apache-2.0
"""Download kernels before use, for this machine, for others and for sites without a network.

A download is admitted and verified like a kernel that is loaded, with every dependency. It stays in
the registry's cache, or is copied to a directory that is a registry itself and that the hub's
client can use as its cache; intact files are not copied again. Another machine is described by a
name such as ``torch2.11-cu130-x86_64-linux``.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kernforge.artifact.integrity import refuse_own_files, tree_files, verify_tree
from kernforge.artifact.metadata import FILE
from kernforge.artifact.variant import Backend
from kernforge.artifact.version import Version2
from kernforge.errors import IntegrityError, NoVariantError, UsageError
from kernforge.loader.host import Host
from kernforge.loader.lock import KernelLocks
from kernforge.loader.resolve import METAL_MACOS, resolve, way_out
from kernforge.loader.search import Node, Search, fetch_variant
from kernforge.registry import names
from kernforge.registry.api import Answer, find, locked, refuse_moved
from kernforge.registry.directory import DirectoryRegistry, refuse_own_branch
from kernforge.registry.names import Request
from kernforge.store import tree_archive
from kernforge.system import files


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which variants to download.

    Attributes:
        hosts: machines; the variant that each of them would load is taken. None takes every
            variant.
        names: the variants of these names or patterns instead.
    """

    hosts: tuple[Host, ...] | None = None
    names: tuple[str, ...] = ()

    def names_in(self, answer: Answer) -> tuple[str, ...]:
        """The selected variants among those that are published, sorted."""
        published = answer.variants
        matches = {name: fnmatch.filter(published, name) for name in self.names}
        if missing := sorted(name for name, matching in matches.items() if not matching):
            raise NoVariantError(
                f"{answer} has no variant {', '.join(missing)}",
                hint=f"it has {', '.join(published) or 'none'}",
            )
        selected = [name for matching in matches.values() for name in matching]
        if not self.names and self.hosts is None:
            selected = list(published)
        elif not self.names:
            selected = [_best_for(answer, host) for host in self.hosts or ()]
        return tuple(sorted(set(selected)))


def _best_for(answer: Answer, host: Host) -> str:
    resolution = resolve(answer.variants, host)
    if resolution.best is None:
        advice = way_out(resolution, host, take_cpu="--variant {} takes the build for the CPU")
        raise NoVariantError(
            f"no build of {answer} fits that machine:\n\n{resolution.trace()}\n",
            hint=f"{advice}; or name the machine that it is for: --platform",
        )
    return resolution.best.name


def asked_kernels(locks: KernelLocks) -> tuple[Request, ...]:
    """The kernels that an application requires directly; all of a lock without that record."""
    if locks.pins is None:
        return tuple(kernel.request for kernel in locks.kernels)
    return tuple(pin.request for pin in locks.pins if pin.asked is not None)


def fetch(
    search: Search, wanted: Iterable[Request], selection: Selection
) -> Iterator[tuple[Answer, Node]]:
    """Download and verify kernels with all dependencies, each variant once."""
    pending = [_find(search, request) for request in wanted]
    seen: set[Answer] = set()
    while pending:
        answer = pending.pop(0)
        if answer in seen:
            continue
        seen.add(answer)
        refuse_moved(answer)
        for name in selection.names_in(answer):
            node = fetch_variant(search, answer, name)
            if node.metadata.digest is None:
                raise IntegrityError(
                    f"{node.path / FILE} has no digest, so nothing can be verified",
                    hint="it is an old build: build and publish it again",
                )
            verify_tree(node.path, node.metadata.digest, within=node.link_root)
            yield answer, node
            for below in node.metadata.kernel_depends:
                request = names.request(below.repo_id, below.version, below.revision)
                pending.append(_find(search, request))


def _find(search: Search, request: Request) -> Answer:
    """The commit that a kernel is taken at."""
    if search.locks is not None:
        return locked(search.registry, request, search.locks.find(request).commit)
    return find(search.registry, request)


def copy(answer: Answer, node: Node, target: DirectoryRegistry) -> bool:
    """Copy a variant to a directory registry, under its commit; returns whether it is new there."""
    repo_id = answer.repo_id
    final = target.snapshot(repo_id, answer.commit) / "build" / node.path.name
    root = target.link_root(repo_id)
    with target.writing(repo_id):
        refs = _refs_of(answer)
        for name in refs:
            if (there := target.ref(repo_id, name)) and there != answer.commit:
                refuse_own_branch(answer.registry, target, repo_id, name, there)
        new = not _is_complete(final, node, root)
        if new:
            listed = node.metadata.digest.files if node.metadata.digest else ()
            refuse_own_files(final, listed, within=root)
            with files.staging(final.parent) as staged:
                for path, file in tree_files(node.path, within=node.link_root).items():
                    digest = files.sha256_file(file)
                    target.add_blob(repo_id, digest, file)
                    up = "../" * (path.count("/") + 4)
                    files.symlink(f"{up}blobs/{digest}", staged / "tree" / path)
                files.replace_tree(staged / "tree", final)
            if not _is_complete(final, node, root):
                raise IntegrityError(
                    f"{node.path} changed while it was copied", hint="download it again"
                )
        for name in refs:
            target.set_ref(repo_id, name, answer.commit)
        target.write_index(repo_id, answer.commit)
    return new


def _is_complete(path: Path, node: Node, root: Path) -> bool:
    """Whether a copy has the files of a download, and its signatures."""
    digest = node.metadata.digest
    try:
        same = (path / FILE).read_bytes() == (node.path / FILE).read_bytes()
        if digest is None or not same:
            return False
        verify_tree(path, digest, within=root)
        return all((path / each.name).exists() for each in node.path.glob(f"{FILE}.*"))
    except (FileNotFoundError, NotADirectoryError, IntegrityError):
        return False


def _refs_of(answer: Answer) -> list[str]:
    """The names of the commit in a copy: its names here, and the requested one."""
    commit, request = answer.commit, answer.request
    refs = {name for name, each in answer.registry.refs(answer.repo_id).items() if each == commit}
    if request.is_branch_of_major:
        refs.add(f"v{request.version}")
    elif request.revision and not commit.startswith(request.revision):
        refs.add(request.revision)
    return sorted(refs)


def size(node: Node) -> int:
    """Bytes of a variant's files."""
    tree = tree_files(node.path, within=node.link_root)
    return sum(file.stat().st_size for file in tree.values())


def write_tar(tree: Path, out: Path) -> None:
    """Write a directory registry as a tar, whose bytes are the same for the same kernels."""
    files.remove_tree(tree / ".locks")
    with files.atomic_stream(out) as stream:
        tree_archive.write_tar(tree, stream)


_NAME = re.compile(
    r"(?:torch(?P<major>[0-9]+)\.(?P<minor>[0-9]+)-)?(?P<backend>[a-z]+[0-9]*)"
    r"-(?P<cpu>x86_64|aarch64)-(?P<os>linux|darwin|windows)"
)


def parse_platform(name: str) -> Host:
    """The machine of a platform's name; its torch is assumed to have the new C++ ABI."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise UsageError(
            f"{name!r} is not a platform",
            hint="write it like torch2.11-cu130-x86_64-linux, as `kernforge doctor --platform` "
            "prints it on that machine",
        )
    system = match["os"]
    return Host(
        cpu=match["cpu"],
        os=system,
        backend=Backend.parse(match["backend"]),
        torch=Version2(int(match["major"]), int(match["minor"])) if match["major"] else None,
        cxx11=True if match["major"] and system == "linux" else None,
        macos=METAL_MACOS if system == "darwin" else None,
    )


def platform_name(host: Host) -> str:
    """The platform's name of a machine."""
    torch = f"torch{host.torch}-" if host.torch else ""
    return f"{torch}{host.backend}-{host.cpu}-{host.os}"
