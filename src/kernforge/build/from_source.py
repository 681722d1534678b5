# SPDX-License-Identifier: Apache-2.0
"""Build a published kernel for this machine from its source and lock.

They lie beside it; or else a variant of it says which commit of which repository it was built from.
Where no package index can be reached for what the lock names, this process's own torch lends its
headers and an installed CUDA toolkit its compilers; what was used stands in the provenance.

What is built is kept in a directory registry of the user's, ``built`` below ``KERNFORGE_HOME``,
under a reference for each commit and device. Only who asked for it (``get_kernel(build=True)``)
meets this module, and with it the builder half.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.artifact.integrity import tree_files, verify_tree
from kernforge.artifact.metadata import FILE, Metadata
from kernforge.audit import reproduce
from kernforge.build import locking, provenance, steps, trees, workspace
from kernforge.build.execute.local_pool import Crew
from kernforge.errors import (
    IntegrityError,
    KernforgeError,
    NetworkError,
    NoVariantError,
    RegistryError,
    UsageError,
)
from kernforge.loader.host import cores, with_device
from kernforge.loader.resolve import resolve
from kernforge.loader.search import Built
from kernforge.project import targets as project_targets
from kernforge.registry.directory import DirectoryRegistry
from kernforge.system import files
from kernforge.system.paths import home
from kernforge.toolchain import installed, lockfile
from kernforge.toolchain.local_parts import NOTHING, Brought

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernforge.build.execute.outcome import Done
    from kernforge.build.plan.graph import Action
    from kernforge.build.provenance import Statement
    from kernforge.loader.facts import Host
    from kernforge.project.targets import Target
    from kernforge.registry.api import Registry

SHELF = "built"

_LOG = logging.getLogger("kernforge")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What to build: a commit, for a host, with device code for ``only`` these capabilities."""

    repo_id: str
    commit: str
    host: Host
    only: tuple[str, ...]

    @property
    def ref(self) -> str:
        """What names it in the user's registry."""
        return "-".join((self.commit, str(self.host.backend), *self.only))


def build_here(registry: Registry, repo_id: str, commit: str, host: Host) -> Built | None:
    """The variant of a commit that fits a host: from what was built before, or built now.

    Processes that want the same one build it once.

    Args:
        registry: where the source is published.
        repo_id: ``owner/name``.
        commit: the one whose source to build.
        host: what for; on CUDA, device code is made for its current GPU alone.

    Returns:
        None where nothing says what the source is.

    Raises:
        RegistryError: the repository that a variant names cannot be had.
        IntegrityError: the source is not what its published variants were built from.
        NoVariantError: the project has no variant for this host, or none for its GPU.
        BuildError: a compiler refuses it.
        ToolchainError: there is no C++ compiler, or no index has what the lock lacks.
        NetworkError: no index can be reached, and this machine has no CUDA toolkit of its own.
    """
    kept = DirectoryRegistry(home() / SHELF)
    wanted = _Wanted(repo_id=repo_id, commit=commit, host=host, only=_device(host))
    with kept.writing(repo_id):
        found = _kept(kept, wanted)
        if found is not None:
            return found
        with files.staging(home() / SHELF / "work") as work:
            said = _statement(registry, repo_id, commit)
            root = _source(registry, wanted, said, work / "source")
            if root is None:
                return None
            _LOG.warning("no published build of %s fits: it is built here, once", repo_id)
            _keep(kept, wanted, _build(root, wanted, said, work / "build"))
        found = _kept(kept, wanted)
    if found is None:
        raise IntegrityError(
            f"{kept.url} does not hold what was just built for {repo_id}",
            hint="remove that directory; nothing but what was built is there",
        )
    return found


def _device(host: Host) -> tuple[str, ...]:
    """The GPU to make device code for; none where there is none."""
    if host.backend.name != "cuda":
        return ()
    capability = with_device(host).capability
    return () if capability is None else (f"{capability[0]}.{capability[1]}",)


def _kept(kept: DirectoryRegistry, wanted: _Wanted) -> Built | None:
    commit = kept.ref(wanted.repo_id, wanted.ref)
    names = () if commit is None else kept.variants(wanted.repo_id, commit)
    best = resolve(names, wanted.host).best
    if commit is None or best is None:
        return None
    path = kept.fetch(wanted.repo_id, commit, best.name)
    return Built(path=path, fence=kept.fence(wanted.repo_id))


def _keep(kept: DirectoryRegistry, wanted: _Wanted, variant: Path) -> None:
    """Add a variant to those that were built for one commit and device."""
    old = kept.ref(wanted.repo_id, wanted.ref)
    tree = {} if old is None else kept.tree(wanted.repo_id, old)
    for path, real in tree_files(variant).items():
        digest = files.sha256_file(real)
        kept.add_blob(wanted.repo_id, digest, real)
        tree[f"build/{variant.name}/{path}"] = digest
    commit, _ = kept.add_snapshot(wanted.repo_id, tree)
    kept.set_ref(wanted.repo_id, wanted.ref, commit)


def _build(root: Path, wanted: _Wanted, said: Statement | None, out: Path) -> Path:
    """Build the one variant of a project; its path below ``out``."""
    try:
        return _build_with(NOTHING, root, wanted, said, out / "locked")
    except NetworkError as error:
        own = own_parts(wanted.host, error)
        _LOG.warning("%s; this machine's own torch and compilers are taken instead", error.message)
    return _build_with(own, root, wanted, said, out / "own")


def own_parts(host: Host, why: KernforgeError) -> Brought:
    """What this machine has itself of what a lock names.

    Raises:
        NetworkError: ``why`` the lock's own parts cannot be had, and this machine has none.
    """
    import torch  # noqa: PLC0415 - it is loaded: a kernel for it is

    toolkit = installed.find_cuda(os.environ) if host.backend.name == "cuda" else None
    if host.backend.name == "cuda" and toolkit is None:
        raise NetworkError(
            f"{why.message}, and there is no CUDA toolkit on this machine",
            hint="reach a package index, or install a toolkit and name it in CUDA_HOME",
        ) from why
    return Brought(cuda_home=toolkit, torch_home=Path(torch.__file__).resolve().parent)


def _build_with(
    brought: Brought, root: Path, wanted: _Wanted, said: Statement | None, out: Path
) -> Path:
    bench = workspace.set_up(workspace.read_project(root), _Told(), brought)
    home_version = bench.own.cuda_home.version if bench.own.cuda_home else None
    candidates = tuple(
        one
        for one in bench.candidates
        if not (home_version and one.target and one.target.cuda not in {None, home_version})
    )
    targets = _choose(candidates, wanted.repo_id, wanted.host)
    locked, _ = locking.ensure_lock(bench, targets, locked=False)
    made = steps.make_plan(bench, targets, locked, only=wanted.only)
    if said is not None and said.origin.sources != made.sources_id:
        raise IntegrityError(
            f"the source of {wanted.repo_id} at {wanted.commit} is not what {said.variant} was "
            "built from",
            hint="tell its publisher; nothing of it was built",
        )
    jobs = cores()
    with bench.store.lease():
        isolation = steps.prepare_sandbox(bench, made, "auto", note=_LOG.info)
        outcome = steps.run_plan(
            bench,
            made,
            trees.fetch(bench, made, locked),
            locked,
            out=out,
            jobs=jobs,
            events=_Told(),
            crew=Crew(jobs=jobs),
            isolation=isolation,
        )
    for failure in outcome.failures:
        _LOG.error("%s\n%s", failure.action.title, failure.output)
    steps.refuse_failures(made, outcome)
    return outcome.variants[targets[0].name]


def _statement(registry: Registry, repo_id: str, commit: str) -> Statement | None:
    """How a variant beside the source was made, if one says so.

    What it says is covered by its digest, and that by its signature where there is one.
    """
    for name in registry.variants(repo_id, commit):
        document = registry.metadata(repo_id, commit, name)
        digest = Metadata.from_json(document, source=f"{repo_id}/build/{name}/{FILE}").digest
        if digest is not None and provenance.FILE in digest.files:
            path = registry.fetch(repo_id, commit, name)
            verify_tree(path, digest, within=registry.fence(repo_id))
            return provenance.read((path / provenance.FILE).read_text(), source=str(path))
    return None


def _source(registry: Registry, wanted: _Wanted, said: Statement | None, into: Path) -> Path | None:
    """A project with its lock, in a directory that may be written to: the lock is completed."""
    source = registry.source(wanted.repo_id, wanted.commit)
    if source is not None and (source / lockfile.FILE_NAME).is_file():
        found = tree_files(source, within=registry.fence(wanted.repo_id))
        for path, real in found.items():
            files.copy_file(real, into / path)
        return into
    origin = None if said is None else said.origin
    if origin is None or not origin.url or origin.git is None or origin.git.dirty:
        return None
    try:
        root = reproduce.cloned(origin, None, into) / origin.folder
    except UsageError as error:
        raise RegistryError(
            f"{wanted.repo_id} was published without its source, and {error.message}",
            hint="load it where a published build fits, or see that the repository can be reached",
        ) from error
    files.write_atomic(root / lockfile.FILE_NAME, origin.lock.to_json())
    return root


def _choose(
    candidates: tuple[project_targets.Candidate, ...], repo_id: str, host: Host
) -> tuple[Target, ...]:
    best = resolve([c.name for c in candidates if c.target], host).best
    if best is not None:
        return project_targets.choose(candidates, [best.name])
    told = "\n".join(f"{c.name}: {c.reason or 'does not fit'}" for c in candidates)
    raise NoVariantError(
        f"the source of {repo_id} has no variant for {host.backend} on {host.cpu}-{host.os} and "
        f"this torch either:\n\n{told}\n",
        hint="ask its authors for one, or load another version",
    )


class _Told:
    """Tells the log of a build: whoever loads a kernel has no terminal to draw on."""

    def fetching(self, what: str, total: int | None) -> Callable[[int], None]:
        size = "" if total is None else f" ({total / 1e6:.1f} MB)"
        _LOG.info("fetching %s%s", what, size)
        return lambda _count: None

    def note(self, text: str) -> None:
        _LOG.info("%s", text)

    def planned(self, actions: int, usage: Callable[[], Mapping[str, int]]) -> None:
        del usage
        _LOG.info("%d actions", actions)

    def started(self, action: Action) -> None:
        _LOG.info("%s", action.title)

    def ended(self, action: Action, done: Done) -> None:
        """Nothing: what failed is told at the end."""

    def finished(self) -> None:
        _LOG.info("done")
