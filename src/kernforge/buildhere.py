# SPDX-License-Identifier: Apache-2.0
"""Build a published kernel for this machine from the source and the lock that lie beside it.

What is built is kept in a directory registry of the user's, ``built`` below ``KERNFORGE_HOME``,
under a reference for each commit and device. Only who asked for it (``get_kernel(build=True)``)
meets this module, and with it the builder half.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge import build, files, lockfile, matrix, pipeline, provenance
from kernforge.crew import Crew
from kernforge.errors import IntegrityError, NoVariantError, RegistryError
from kernforge.home import home
from kernforge.host import with_device
from kernforge.integrity import tree_files, verify_tree
from kernforge.locate import Built
from kernforge.metadata import FILE, Metadata
from kernforge.registry import DirectoryRegistry
from kernforge.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kernforge.facts import Host
    from kernforge.matrix import Target
    from kernforge.plan import Action
    from kernforge.registry import Registry

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


def build_here(registry: Registry, repo_id: str, commit: str, host: Host) -> Built:
    """The variant of a commit that fits a host: from what was built before, or built now.

    Processes that want the same one build it once.

    Args:
        registry: where the source is published.
        repo_id: ``owner/name``.
        commit: the one whose source to build.
        host: what for; on CUDA, device code is made for its current GPU alone.

    Raises:
        RegistryError: the commit holds no source.
        IntegrityError: the source is not what its published variants were built from.
        NoVariantError: the project has no variant for this host, or none for its GPU.
        BuildError: a compiler refuses it.
        ToolchainError: there is no C++ compiler, or no index has what the lock lacks.
    """
    kept = DirectoryRegistry(home() / SHELF)
    wanted = _Wanted(repo_id=repo_id, commit=commit, host=host, only=_device(host))
    with kept.writing(repo_id):
        found = _kept(kept, wanted)
        if found is None:
            _LOG.warning("no published build of %s fits: it is built here, once", repo_id)
            with files.staging(home() / SHELF / "work") as work:
                _keep(kept, wanted, _build(registry, wanted, work))
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


def _build(registry: Registry, wanted: _Wanted, work: Path) -> Path:
    """Build the one variant in a directory of its own; its path there."""
    root = _copy_source(registry, wanted.repo_id, wanted.commit, work / "source")
    bench = pipeline.set_up(pipeline.read_project(root), _Told())
    targets = _choose(bench.candidates, wanted.repo_id, wanted.host)
    locked, _ = pipeline.ensure_lock(bench, targets, locked=False)
    made = pipeline.make_plan(bench, targets, locked, only=wanted.only)
    _refuse_other_source(registry, wanted.repo_id, wanted.commit, made.sources_id)
    jobs = os.cpu_count() or 1
    with bench.store.lease():
        isolation = pipeline.prepare_sandbox(bench, made, "auto", note=_LOG.info)
        outcome = pipeline.run_plan(
            bench,
            made,
            pipeline.fetch(bench, made, locked),
            locked,
            out=work / "build",
            jobs=jobs,
            events=_Told(),
            crew=Crew(jobs=jobs),
            isolation=isolation,
        )
    for failure in outcome.failures:
        _LOG.error("%s\n%s", failure.action.title, failure.output)
    pipeline.refuse_failures(made, outcome)
    return outcome.variants[targets[0].name]


def _copy_source(registry: Registry, repo_id: str, commit: str, into: Path) -> Path:
    """A copy that may be written to: the lock is completed in it."""
    source = registry.source(repo_id, commit)
    if source is None or not (source / lockfile.FILE_NAME).is_file():
        raise RegistryError(
            f"{repo_id} at {commit} was published without its source and lock",
            hint="publish it with kernforge publish --with-source",
        )
    for path, real in tree_files(source, within=registry.fence(repo_id)).items():
        files.copy_file(real, into / path)
    return into


def _choose(
    candidates: tuple[matrix.Candidate, ...], repo_id: str, host: Host
) -> tuple[Target, ...]:
    best = resolve([c.name for c in candidates if c.target], host).best
    if best is not None:
        return matrix.choose(candidates, [best.name])
    told = "\n".join(f"{c.name}: {c.reason or 'does not fit'}" for c in candidates)
    raise NoVariantError(
        f"the source of {repo_id} has no variant for {host.backend} on {host.cpu}-{host.os} and "
        f"this torch either:\n\n{told}\n",
        hint="ask its authors for one, or load another version",
    )


def _refuse_other_source(registry: Registry, repo_id: str, commit: str, sources: str) -> None:
    """Refuse a source that is not the one which the variants beside it say they were made from.

    What a variant says is covered by its digest, and that by its signature where there is one.
    """
    for name in registry.variants(repo_id, commit):
        document = registry.metadata(repo_id, commit, name)
        digest = Metadata.from_json(document, source=f"{repo_id}/build/{name}/{FILE}").digest
        if digest is None or provenance.FILE not in digest.files:
            continue
        path = registry.fetch(repo_id, commit, name)
        verify_tree(path, digest, within=registry.fence(repo_id))
        said = provenance.read((path / provenance.FILE).read_text(), source=str(path))
        if said.origin.sources != sources:
            raise IntegrityError(
                f"the source beside {repo_id} at {commit} is not what {name} was built from",
                hint="tell its publisher; nothing of it was built",
            )
        return


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

    def ended(self, action: Action, done: build.Done) -> None:
        """Nothing: what failed is told at the end."""

    def finished(self) -> None:
        _LOG.info("done")
