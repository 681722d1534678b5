# SPDX-License-Identifier: Apache-2.0
"""Commands about builds and the store: build, check, cache."""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import operator
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.check.finding import refuse_errors
from kernforge.cli import formats, options
from kernforge.errors import CheckError, IntegrityError, UsageError
from kernforge.system import tables

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from kernforge.builder.api import BuildRequest, MakePool
    from kernforge.check.finding import Finding
    from kernforge.system.console import Console

_FEW = 2


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(verbs, _build, "build")
    options.add_project(verb)
    options.add_variants(
        verb,
        "what serves the torch that is installed here, or else the two newest; with --locked what "
        "kernforge.lock has; --list lists them",
    )
    options.add_system(verb)
    options.add_repeated(
        verb,
        "--arch",
        "only for this GPU, such as 9.0, or 9.0+PTX for newer ones too; may be repeated",
        type=options.capability,
    )
    options.add_toolchain(verb)
    options.add_build_dir(verb, "directory for the built variants", short=True)
    options.add_jobs(verb)
    verb.add_argument(
        "--memory",
        type=options.size,
        metavar="SIZE",
        help="memory for all actions together, such as 16GB (default: the machine's free memory)",
    )
    verb.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="run the actions on the workers of this Dask scheduler, such as tls://farm:8786",
    )
    verb.add_argument(
        "--shared-store",
        metavar="URL",
        help="take results from this store too, and write new ones to it: any fsspec URL, such as "
        "file:///mnt/farm or s3://bucket/prefix (default: KERNFORGE_SHARED_STORE)",
    )
    options.add_flag(verb, "--list", "list the variants, with the reason for each; build nothing")
    options.add_flag(verb, "--dry-run", "print the graph of actions and run none of them")
    options.add_flag(
        verb,
        "--locked",
        "end with an error if kernforge.lock is incomplete; a pattern of --variant then means "
        "variants whose torch and CUDA it has",
    )
    options.add_flag(
        verb,
        "--untrusted",
        "build a stranger's project: require a sandbox, and do not import what was built",
    )
    options.add_flag(verb, "--no-check", "do not check the built variants")
    options.add_sandbox(verb)

    verb = options.add_verb(verbs, _check, "check")
    verb.add_argument(
        "built",
        metavar="DIR|OWNER/NAME",
        nargs="?",
        default=".",
        help="a project, a directory of built variants, a variant, or a published kernel, whose "
        "code is not imported; with --resources also a shared object (default: current directory)",
    )
    options.add_registry(verb)
    options.add_version(verb)
    verb.add_argument(
        "--variant", default="*", metavar="PATTERN", help="only variants of such names"
    )

    options.add_flag(verb, "--resources", "show registers, spills, shared memory and occupancy")
    verb.add_argument(
        "--arch",
        type=_machine_code,
        help="resources only for this GPU, such as 9.0 (default: all)",
    )

    verb = options.add_verb(verbs, _cache, "cache")
    change = verb.add_mutually_exclusive_group()
    change.add_argument(
        "--trim",
        type=options.size,
        metavar="SIZE",
        help="remove the entries that were not used for longest, until the rest fits",
    )
    change.add_argument(
        "--clear",
        metavar="KIND",
        help="remove all entries of a kind: toolchains, actions or findings",
    )


def _build(arguments: argparse.Namespace, console: Console) -> None:
    if arguments.list:
        _list(arguments, console)
        return
    from kernforge.builder import api as build  # noqa: PLC0415
    from kernforge.builder import workspace as build_workspace  # noqa: PLC0415
    from kernforge.builder.api import BuildRequest  # noqa: PLC0415
    from kernforge.builder.execute import results  # noqa: PLC0415
    from kernforge.builder.workspace import read_lock  # noqa: PLC0415
    from kernforge.project import targets  # noqa: PLC0415

    shared = options.given(arguments.shared_store, arguments.environment.kernforge_shared_store)
    workspace = options.workspace(arguments, console, shared=shared)
    considered = workspace.candidates
    if arguments.system:
        cpu = build_workspace.cpu_of(arguments.system)
        considered = build_workspace.candidates(workspace.project, cpu, workspace.local_parts)
    if arguments.locked and (lock := read_lock(workspace.project.root)):
        considered = targets.within_lock(considered, arguments.variant, lock)
    request = BuildRequest(
        targets=targets.choose(considered, arguments.variant),
        events=console,
        lock="frozen" if arguments.locked else "update",
        only=tuple(arguments.arch),
        sandbox=arguments.sandbox,
        untrusted=arguments.untrusted,
        out=arguments.build_dir,
        jobs=arguments.jobs,
        memory=arguments.memory,
        pool=_pool(arguments, console),
        check=not arguments.no_check,
    )
    if arguments.dry_run:
        planned = build.plan_project(workspace, request)
        for note in planned.notes:
            console.note(note)
        known = results.cached(planned.plan, workspace.store)
        console.result(
            formats.graph_document(planned.plan, known), formats.graph_text(planned.plan, known)
        )
        return
    result = build.build_project(workspace, request)
    serves = None
    if not result.left_out:
        serves = _served(result.variants, _cpu(request, workspace.cpu))
    console.result(formats.build_document(result, serves), formats.build_text(result, serves))
    result.refuse_failures()
    refuse_errors(result.findings)


def _list(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.builder import workspace as build_workspace  # noqa: PLC0415
    from kernforge.project import units  # noqa: PLC0415
    from kernforge.project.api import read_project  # noqa: PLC0415
    from kernforge.toolchain.local_parts import find_local_parts  # noqa: PLC0415

    project = read_project(arguments.project)
    parts = find_local_parts(
        options.local_parts(arguments), units.cutlass(project.manifest), arguments.environment
    )
    here = build_workspace.this_cpu()
    cpu = build_workspace.cpu_of(arguments.system) if arguments.system else here
    if cpu != here and (lacking := build_workspace.lacking_compiler(cpu, arguments.environment)):
        console.note(f"note: {lacking}")
    candidates = build_workspace.candidates(project, cpu, parts)
    document = [
        {"name": c.name, "builds": bool(c.target), "default": c.default, "reason": c.reason}
        for c in candidates
    ]
    words = {(True, True): "built", (True, False): "on request", (False, False): "left out"}
    # Neighbours that are so for the same reason are one row.
    said = [(words[c.target is not None, c.default], c.reason) for c in candidates]
    alike = itertools.groupby(zip(candidates, said, strict=True), key=operator.itemgetter(1))
    rows = [
        (name, *told)
        for told, group in alike
        for name in _in_short([c.name for c, _ in group], whole=told[0] == "built")
    ]
    console.result(document, tables.table(rows, head=("variant", "is", "because")))


def _in_short(names: list[str], *, whole: bool) -> list[str]:
    """A few names as they are; of many the first and the last one, unless all are wanted."""
    if whole or len(names) <= _FEW:
        return names
    return [f"{names[0]} ... {names[-1]} ({len(names)})"]


def _served(names: Collection[str], cpu: str) -> tuple[int, int, str] | None:
    """Counts of published builds of torch: those for which the loader takes a variant, and all."""
    from kernforge.artifact.variant import Backend, Variant  # noqa: PLC0415
    from kernforge.loader.host import Host  # noqa: PLC0415
    from kernforge.loader.resolve import resolve  # noqa: PLC0415
    from kernforge.toolchain.releases import torch_releases  # noqa: PLC0415

    variants = [Variant.parse(name) for name in names]
    compiled = [v for v in variants if v.framework.startswith("torch") and not v.is_noarch]
    if not compiled:
        return None
    on_cuda = any(v.backend.name == "cuda" for v in compiled)
    hosts = [
        Host(cpu=cpu, os="linux", backend=backend, torch=torch, cxx11=True)
        for torch, published in torch_releases().items()
        for backend in ([Backend("cuda", c) for c in published] if on_cuda else [Backend("cpu")])
    ]
    served = sum(resolve(names, host).best is not None for host in hosts)
    return served, len(hosts), "torch x CUDA pairs" if on_cuda else "torch releases"


def _cpu(request: BuildRequest, here: str) -> str:
    """The processor of the machines that a build is for: this one's if it is for some of them."""
    cpus = {target.cross_cpu for target in request.targets}
    return here if "" in cpus else max(cpus)


def _pool(arguments: argparse.Namespace, console: Console) -> MakePool | None:
    if arguments.scheduler is None:
        return None
    from kernforge.builder.farm import FarmPool  # noqa: PLC0415

    return functools.partial(FarmPool, arguments.scheduler, note=console.note)


def _check(arguments: argparse.Namespace, console: Console) -> None:
    if arguments.resources:
        _resources(arguments, console)
        return
    options.refuse_without("--resources", arch=arguments.arch)
    from kernforge.artifact import directories  # noqa: PLC0415
    from kernforge.check import api as check  # noqa: PLC0415
    from kernforge.system.process import run  # noqa: PLC0415

    directory, python = directories.directory_of(arguments.built), None
    if directory is None:
        fetch = _published(arguments)
    elif arguments.version or arguments.revision or arguments.registry:
        raise UsageError(
            f"{directory} is a directory, and --version, --revision and --registry are for a "
            "published kernel",
            hint="name it as owner/name, or leave them out",
        )
    else:
        found = directories.variants(directory)
        fetch = {path.name: functools.partial(Path, path) for path in found}
        python = sys.executable
    wanted = options.matching(arguments.variant, fetch, arguments.built)
    findings = tuple(
        finding
        for name in wanted
        for finding in check.check_variant(fetch[name](), run=run, python=python)
    )
    if directory is not None:
        findings += _sources(directory)
    text = (
        "\n".join(map(formats.finding_text, findings)) or f"{arguments.built}: no problem was found"
    )
    console.result([formats.finding_document(f) for f in findings], text)
    refuse_errors(findings)


def _resources(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.binary import kernel_usage  # noqa: PLC0415

    files = sorted(_binaries(Path(arguments.built)))
    if not files:
        raise UsageError(
            f"{arguments.built} has no shared object", hint="run `kernforge build` to make one"
        )
    documents, lines = [], []
    for path in files:
        try:
            kernels = kernel_usage.read(path.read_bytes(), arch=arguments.arch or "")
        except CheckError as error:
            raise CheckError(f"{path}: {error.message}", hint=error.hint) from error
        documents.append({"file": str(path), "kernels": [*map(kernel_usage.document, kernels)]})
        table = (
            tables.table(kernel_usage.rows(kernels), head=kernel_usage.HEAD)
            if kernels
            else "no kernels"
        )
        lines.append(f"{path}\n{table}")
    console.result(documents, "\n\n".join(lines))


def _binaries(what: Path) -> Iterator[Path]:
    from kernforge.artifact import directories  # noqa: PLC0415

    if what.is_file():
        yield what
        return
    # Of a project only what was built: an environment beside it has libraries too.
    for variant in directories.variants(what):
        yield from (path for path in variant.rglob("*.so") if path.is_file())


def _machine_code(text: str) -> str:
    """Argument type: a compute capability without PTX, which has no registers yet."""
    if options.capability(text).endswith("+PTX"):
        raise argparse.ArgumentTypeError(
            f"{text}: the driver decides what PTX uses; write {text.removesuffix('+PTX')}"
        )
    return text


def _sources(directory: Path) -> tuple[Finding, ...]:
    """Whether all variants are of one state of the sources, that of the project if there is one."""
    from kernforge.artifact import directories  # noqa: PLC0415
    from kernforge.artifact.metadata import FILE, Metadata  # noqa: PLC0415
    from kernforge.check.finding import finding  # noqa: PLC0415
    from kernforge.project import api as projects  # noqa: PLC0415

    identity = None
    if (directory / projects.MANIFEST).is_file():
        identity = projects.read_project(directory).sources.identity
    documents = {}
    for path in directories.variants(directory):
        with contextlib.suppress(FileNotFoundError, IntegrityError):  # a finding of the variant
            documents[path.name] = Metadata.from_json((path / FILE).read_bytes())
    problem = directories.other_sources(documents, identity)
    if problem is None:
        return ()
    hint = "build again (kernforge build), and remove variants that are no longer built"
    return (finding("sources", directory.name or str(directory), problem, hint),)


def _published(arguments: argparse.Namespace) -> dict[str, Callable[[], Path]]:
    """What fetches each variant of a published kernel, by their names."""
    from kernforge.registry.api import find  # noqa: PLC0415
    from kernforge.registry.names import majors, request, versions  # noqa: PLC0415

    store, repo_id = options.registry(arguments), arguments.built
    version = arguments.version
    if version is None and arguments.revision is None:
        names = store.ref_names(repo_id)
        tags = list(versions(names).values())
        version = tags[-1][1:] if tags else max(majors(names), default=None)
    revision = None if version is not None else arguments.revision or "main"
    commit = find(store, request(repo_id, version, revision)).commit
    return {
        name: functools.partial(store.fetch, repo_id, commit, name)
        for name in store.variants(repo_id, commit)
    }


def _cache(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.store import eviction  # noqa: PLC0415
    from kernforge.store.local import Store  # noqa: PLC0415

    environment = arguments.environment
    store, size = Store(environment.home / "store"), eviction.limit(environment)
    removed = None
    if arguments.trim is not None:
        removed = eviction.trim(store, arguments.trim)
    elif arguments.clear:
        removed = eviction.clear(store, arguments.clear)
    contents = eviction.survey(store)
    console.result(
        formats.cache_document(store.root, contents, size, removed),
        formats.cache_text(store.root, contents, size, removed),
    )
