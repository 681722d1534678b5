# SPDX-License-Identifier: Apache-2.0
"""Build a published kernel for this machine from its source and lock.

Source and lock are published with it. Where no package index can be reached for the locked
toolchain, the headers of this process's torch and the compilers of an installed CUDA toolkit are
used; the provenance names them.

Builds are below ``built`` in ``KERNFORGE_HOME``, in a directory for each commit and device. Only
``get_kernel(build=True)`` imports this module, and with it the author's half of the package.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kernforge.artifact.directories import BuiltVariant
from kernforge.artifact.integrity import tree_files, verify_tree
from kernforge.artifact.metadata import FILE, Metadata
from kernforge.builder import api as build, provenance
from kernforge.builder.api import BuildRequest
from kernforge.builder.provenance import Statement
from kernforge.builder.workspace import Workspace, open_workspace
from kernforge.errors import (
    IntegrityError,
    KernforgeError,
    NetworkError,
    NoVariantError,
)
from kernforge.loader.host import Host, with_device
from kernforge.loader.resolve import on_cpu, resolve
from kernforge.project.api import read_project
from kernforge.project.targets import Target
from kernforge.registry.api import Answer
from kernforge.registry.names import SOURCE
from kernforge.system import files
from kernforge.system.environment import Environment
from kernforge.system.progress import Progress
from kernforge.toolchain import installed, lockfile
from kernforge.toolchain.local_parts import LocalParts

DIRECTORY = "built"

_LOG = logging.getLogger("kernforge")


def build_here(answer: Answer, host: Host, environment: Environment) -> BuiltVariant | None:
    """The variant of a commit that fits a host: an earlier build, or a new one.

    Processes that want the same one build it once.

    Args:
        host: what for; on CUDA, device code is made for its current GPU alone.

    Returns:
        None where the source is not published.
    """
    capability = with_device(host).capability if host.backend.name == "cuda" else None
    only, repo_id = () if capability is None else (str(capability),), answer.repo_id
    builds = environment.home / DIRECTORY
    out = builds / f"kernels--{repo_id.replace('/', '--')}" / "-".join((answer.commit, *only))
    with files.locked(out.with_name(f"{out.name}.lock")):
        earlier = {path.parent.name: path.parent for path in out.glob(f"*/{FILE}")}
        if best := resolve(earlier, host).best:
            return BuiltVariant.read(earlier[best.name], out)
        with files.staging(builds / "work") as work:
            root = work / "source"
            if not _copy_source(answer, root):
                return None
            statement = _statement(answer)
            _LOG.warning("no published build of %s fits: it is built here, once", repo_id)
            trusted = environment.kernforge_build_trusted == "1"
            request = BuildRequest(targets=(), only=only, out=out, untrusted=not trusted)

            def make(parts: LocalParts) -> Path:
                workspace = open_workspace(read_project(root), Progress(), environment, parts)
                return _build(workspace, host, request, statement, f"the source of {repo_id}")

            path = with_installed(make, host, environment)
        return BuiltVariant.read(path, out)


def _build(
    workspace: Workspace, host: Host, request: BuildRequest, statement: Statement | None, what: str
) -> Path:
    """Build the one variant of a project that fits a host."""
    target = fitting_target(workspace, host, what, for_cpu='pass backend="cpu"')
    request = replace(request, targets=(target,))
    planned = build.plan_project(workspace, request)
    if statement is not None and statement.origin.sources != planned.plan.sources_id:
        raise IntegrityError(
            f"{what} is not what {statement.variant} was built from",
            hint="inform its publisher; nothing of it was built",
        )
    result = build.build_project(workspace, request, planned)
    result.refuse_failures()
    return result.variants[target.name]


def fitting_target(workspace: Workspace, host: Host, what: str, *, for_cpu: str) -> Target:
    """The variant of a project that fits a process best.

    Args:
        workspace: the project; where the user's own toolkit compiles, of its version alone.
        for_cpu: how the user gets a variant for the CPU, as a hint says it.
    """
    toolkit = workspace.local_parts.cuda
    targets = {
        c.name: c.target
        for c in workspace.candidates
        if c.target and not (toolkit and c.target.cuda not in {None, toolkit.version})
    }
    resolution = resolve(targets, host)
    if resolution.best is not None:
        return targets[resolution.best.name]
    reasons = [f"{c.name}: {c.reason}" for c in workspace.candidates if not c.target]
    backends = f"{host.backend} or the CPU" if host.no_gpu else str(host.backend)
    ways = (
        "ask its authors for one, or load another version; `kernforge build --list` lists a "
        "project's"
    )
    if cpu_build := resolve(targets, on_cpu(host)).best:
        ways = f"{cpu_build.name} fits: {for_cpu}; or {ways}"
    raise NoVariantError(
        "\n".join(
            (
                f"{what} has no variant for {backends} on {host.cpu}-{host.os} and this torch:",
                resolution.trace(),
                *reasons,
            )
        ),
        hint=ways,
    )


def with_installed(
    make: Callable[[LocalParts], Path], host: Host, environment: Environment
) -> Path:
    """What is made with parts of the indexes, else with this machine's torch and toolkit."""
    fallback = functools.partial(local_fallback, host, environment)
    return LocalParts().or_installed(make, fallback)


def local_fallback(host: Host, environment: Environment, why: KernforgeError) -> LocalParts:
    """This machine's torch and CUDA toolkit in the place of the locked ones.

    A host that sees no GPU needs no CUDA toolkit: it takes a variant for the CPU.
    """
    import torch

    on_cuda = host.backend.name == "cuda"
    toolkit = installed.find_cuda(environment.variables) if on_cuda else None
    if on_cuda and toolkit is None and not host.no_gpu:
        raise NetworkError(
            f"{why.message}, and there is no CUDA toolkit on this machine",
            hint="reach a package index, or install a toolkit and name it in CUDA_HOME",
        ) from why
    torch_home = Path(torch.__file__).resolve().parent
    return LocalParts.installed(environment, cuda_home=toolkit, torch_home=torch_home)


def _statement(answer: Answer) -> Statement | None:
    """The statement of a variant that was published with the source, if there is one.

    It is covered by the variant's digest, and that by a signature where there is one.
    """
    registry, repo_id, commit = answer.registry, answer.repo_id, answer.commit
    for name in answer.variants:
        document = registry.metadata(repo_id, commit, name)
        digest = Metadata.from_json(document, source=f"{repo_id}/build/{name}/{FILE}").digest
        if digest is not None and provenance.FILE in digest.files:
            path = registry.fetch(repo_id, commit, name)
            verify_tree(path, digest, within=registry.link_root(repo_id))
            return provenance.read((path / provenance.FILE).read_text(), source=str(path))
    return None


def _copy_source(answer: Answer, into: Path) -> bool:
    """Copy the project and its lock into a directory that may be written to; False without both."""
    repo_id, registry = answer.repo_id, answer.registry
    source = registry.folder(repo_id, answer.commit, SOURCE)
    if source is None or not (source / lockfile.FILE_NAME).is_file():
        return False
    for path, real in tree_files(source, within=registry.link_root(repo_id)).items():
        files.copy_file(real, into / path)
    return True
