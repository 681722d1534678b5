# SPDX-License-Identifier: Apache-2.0
"""The course of a build, step by step: read, choose, lock, plan, fetch, build.

Each step takes what the one before made. The command line, a test and a script call the same
steps.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge import (
    __version__,
    build,
    compiler,
    files,
    flags,
    lock,
    lockfile,
    matrix,
    own,
    plan,
    project,
    sandbox,
    sourcefiles,
    units,
)
from kernforge.arch import Arch
from kernforge.errors import BuildError, ToolchainError, UsageError
from kernforge.home import home
from kernforge.index import Index
from kernforge.own import NOTHING
from kernforge.provenance import Origin
from kernforge.run import Command, run
from kernforge.sandbox import Sandbox
from kernforge.store import Store
from kernforge.toolchain import SHELF, Toolchains
from kernforge.wheels import Wheels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kernforge.build import Crew, Events, Outcome
    from kernforge.compiler import Compiler
    from kernforge.lockfile import Lock, LockedCompiler
    from kernforge.matrix import Candidate, Target
    from kernforge.own import Brought, Own
    from kernforge.plan import Plan
    from kernforge.project import Project
    from kernforge.shared_store import SharedStore
    from kernforge.units import Sources
    from kernforge.variant import Version2
    from kernforge.wheels import Progress

_CPUS = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A project on this machine, ready to be planned.

    Attributes:
        project: the kernel project.
        sources: its files as a plan sees them.
        candidates: its variants.
        compiler: the host's C++ compiler.
        store: where everything is kept.
        wheels: the user's package indexes.
        cpu: this machine's processor.
        own: what the user brings to the toolchain.
    """

    project: Project
    sources: Sources
    candidates: tuple[Candidate, ...]
    compiler: Compiler
    store: Store
    wheels: Wheels
    cpu: str
    own: Own


def this_cpu() -> str:
    """This machine's processor as variant names spell it.

    Raises:
        UsageError: kernels cannot be built on such a machine.
    """
    machine, system = platform.machine().lower(), platform.system()
    if system != "Linux" or machine not in _CPUS:
        raise UsageError(
            f"kernels are built on x86_64 or aarch64 Linux; this is {machine} {system}",
            hint="loading published kernels works here all the same",
        )
    return _CPUS[machine]


def read_project(directory: Path) -> Project:
    """The project that holds a directory.

    Raises:
        ManifestError: its build.toml is wrong.
        UsageError: there is none.
    """
    return project.read(project.find(directory), run)


def set_up(
    one: Project,
    progress: Progress,
    brought: Brought = NOTHING,
    *,
    shared: SharedStore | None = None,
) -> Bench:
    """Look at the machine and at the project's files.

    Args:
        one: the project.
        progress: is told of downloads.
        brought: what the user brings that the package index does not carry.
        shared: the store's second level.

    Raises:
        ToolchainError: there is no C++ compiler.
        UsageError: what the user brings is not there or not what it should be.
    """
    cpu = this_cpu()
    store = Store(home() / "store", shared)
    index = functools.cache(Index.from_environment)
    found = look_for_own(one, progress, brought, index)
    return Bench(
        project=one,
        sources=sourcefiles.read(one),
        candidates=candidates(one, cpu, found),
        compiler=compiler.find(os.environ, run),
        store=store,
        wheels=Wheels(index, store.root / "downloads", progress),
        cpu=cpu,
        own=found,
    )


def look_for_own(
    one: Project,
    progress: Progress,
    brought: Brought,
    index: Callable[[], Index] = Index.from_environment,
) -> Own:
    """What the user brings that this project can use.

    Raises:
        UsageError: something is not there or not what it should be.
    """
    return own.find(
        brought,
        units.cutlass(one.manifest),
        connect=lambda: index().transport,
        downloads=home() / "store" / "downloads",
        progress=progress,
    )


def candidates(one: Project, cpu: str, mine: Own) -> tuple[Candidate, ...]:
    """The project's variants, given what the user brings and what its lock has."""
    locked = read_lock(one.root)
    kits = locked.cuda if locked else {}
    clang = {_version(name) for name, kit in kits.items() if kit.clang}
    if mine.cuda_compiler == "clang":
        clang |= set(matrix.CLANG)
    elif mine.cuda_compiler == "nvcc":
        clang = set()
    has = {_version(name) for name, kit in kits.items() if not kit.clang}
    if mine.cuda_home:
        has.add(mine.cuda_home.version)
    if mine.redist:
        has |= {cuda for known in matrix.torch_releases().values() for cuda in known}
    return matrix.candidates(one.manifest, cpu=cpu, own_toolkits=has, by_clang=clang - has)


def _version(text: str) -> Version2:
    major, minor = text.split(".")
    return (int(major), int(minor))


def needs(bench: Bench, targets: Sequence[Target]) -> lock.Needs:
    """What the lock must have to build these targets."""
    cuda = {t.cuda for t in targets if t.cuda}
    torch = {t.torch for t in targets if t.torch}
    return lock.Needs(
        cuda=frozenset(f"{v[0]}.{v[1]}" for v in cuda),
        torch=frozenset(f"{v[0]}.{v[1]}" for v in torch),
        headers=frozenset(_headers(bench, targets)),
        libraries=bool(cuda) and plan.wants_cuda_libraries(bench.project.manifest, bench.sources),
    )


def _headers(bench: Bench, targets: Sequence[Target]) -> Iterator[str]:
    cutlass = units.cutlass(bench.project.manifest)
    if cutlass and any(target.cuda for target in targets):
        yield cutlass
    yield from {flags.tvm_ffi_root(t.tvm_ffi) for t in targets if t.tvm_ffi}


def read_lock(root: Path) -> Lock | None:
    """The project's lock, if it has one.

    Raises:
        ToolchainError: it is damaged.
    """
    path = root / lockfile.FILE_NAME
    return lockfile.from_json(path.read_text(), source=str(path)) if path.is_file() else None


def write_lock(bench: Bench, wanted: lock.Needs, *, upgrade: bool) -> Lock:
    """Bring the project's lock up to what is wanted, and write it if that changed anything.

    Args:
        bench: the project.
        wanted: what it must have.
        upgrade: look everything up anew instead of keeping what the lock has.

    Raises:
        ToolchainError: no index has what is wanted.
        NetworkError: no index can be reached.
    """
    old = read_lock(bench.project.root)
    missing = wanted if upgrade else lock.lacking(wanted, old, bench.own)
    here = locked_compiler(bench)
    found = lock.make(missing, bench.wheels, cpu=bench.cpu, compiler=here, own=bench.own)
    new = old.merged(found) if old else found
    if new != old:
        files.write_atomic(bench.project.root / lockfile.FILE_NAME, new.to_json())
    return new


def ensure_lock(bench: Bench, targets: Sequence[Target], *, locked: bool) -> tuple[Lock, bool]:
    """The lock for a build; written or completed first unless that is forbidden.

    Args:
        bench: the project.
        targets: what will be built.
        locked: refuse to change the lock, and refuse a host compiler that it does not name.

    Returns:
        The lock, with the compiler that is really here, and whether it was written.

    Raises:
        ToolchainError: it lacks something and may not be changed, or nothing has it.
    """
    wanted = needs(bench, targets)
    old = read_lock(bench.project.root)
    missing = lock.lacking(wanted, old, bench.own)
    complete = old is not None and not missing.names
    here = locked_compiler(bench)
    if locked and (not complete or old is None):
        raise ToolchainError(
            f"{lockfile.FILE_NAME} has no {', '.join(missing.names) or 'content'}",
            hint="run `kernforge lock-toolchain`, or build without --locked",
        )
    if locked and old is not None and (wrong := old.compiler.difference(here)):
        raise ToolchainError(
            f"{lockfile.FILE_NAME} names another compiler: {wrong}",
            hint="install that compiler and name it in CXX, or build without --locked",
        )
    if complete and old is not None:
        return lockfile.with_compiler(old, here), False
    return lockfile.with_compiler(write_lock(bench, wanted, upgrade=False), here), True


def cuda_notes(targets: Sequence[Target], locked: Lock) -> tuple[str, ...]:
    """What a user should know of the compilers of these targets' device code."""
    kits = {f"{t.cuda[0]}.{t.cuda[1]}": lockfile.toolkit(locked, t.cuda) for t in targets if t.cuda}
    return tuple(
        f"CUDA {version} is compiled by clang {kit.clang.release} instead of nvcc, an experiment"
        for version, kit in sorted(kits.items())
        if kit.clang
    )


def locked_compiler(bench: Bench) -> LockedCompiler:
    """The host compiler as a lock records it."""
    return compiler.locked(bench.compiler, run, bench.store.root / "compilers")


def make_plan(
    bench: Bench, targets: Sequence[Target], locked: Lock, *, only: Sequence[str] = ()
) -> Plan:
    """The graph of actions of a build.

    Args:
        bench: the project.
        targets: the variants.
        locked: the toolchain.
        only: compute capabilities to narrow device code to, as ``"9.0"``; empty narrows nothing.
    """
    return plan.make(
        bench.project.manifest,
        bench.sources,
        targets,
        locked,
        python=platform.python_version(),
        static_libstdcxx=bench.compiler.static_libstdcxx,
        only=tuple(map(Arch.parse, only)),
    )


def fetch(bench: Bench, made: Plan, locked: Lock) -> dict[str, str]:
    """Bring the toolchain trees that a plan will read into the store.

    What has its result already, here or in the shared store, needs no compiler: a plan of which
    nothing must be run fetches nothing.

    Returns:
        The real path of each root.

    Raises:
        IntegrityError: something is not what the lock says.
        NetworkError: something is lacking and no index can be reached.
        ToolchainError: no index has it, or Python's headers are wanted and not installed.
    """
    toolchains = Toolchains(bench.store, bench.wheels, bench.own)
    left = build.pull(made, bench.store)
    roots = sorted({root for action in left for root in action.roots})
    found = {root: _real(_root(root, bench, toolchains, locked)) for root in roots}
    for path in found.values():
        # Line tables hold the time of every header; a tree that the store made is ours to set.
        if Path(path).is_relative_to((bench.store.root / SHELF).resolve()):
            files.set_times(Path(path), sandbox.EPOCH)
    return found


def _real(path: str) -> str:
    """A tree's real path: compilers follow links and write what they find into ``__FILE__``."""
    return os.path.realpath(path) if Path(path).is_dir() else path


def choose_sandbox(bench: Bench, mode: sandbox.Mode) -> Sandbox:
    """How actions are kept to what they were given, on this machine; see ``sandbox.probe``."""
    return sandbox.probe(mode, bench.compiler.path, run, os.environ.get("PATH", ""))


def prepare_sandbox(
    bench: Bench, made: Plan, mode: sandbox.Mode, *, note: Callable[[str], None]
) -> Sandbox:
    """Choose the sandbox of a build, and forget the results that none saw made if there is one.

    Nothing is tried when nothing is left to run. ``note`` is told why there is none.
    """
    if mode != "off" and build.all_isolated(made, bench.store):
        return Sandbox(kind="off", reason="nothing is left to run", wanted=mode)
    found = choose_sandbox(bench, mode)
    if found.isolates:
        build.forget_unisolated(made, bench.store)
    else:
        note(f"note: actions run without a sandbox: {found.reason}")
    return found


def run_plan(
    bench: Bench,
    made: Plan,
    roots: Mapping[str, str],
    locked: Lock,
    *,
    out: Path,
    jobs: int,
    events: Events,
    crew: Crew | None = None,
    isolation: Sandbox = sandbox.OFF,
    start: Origin | None = None,
) -> Outcome:
    """Build what was planned; see ``build.build``.

    ``start`` is what the provenance will say that it was built from, if not from what lies here.
    """
    return build.build(
        made,
        bench.project,
        make_workshop(bench, roots, jobs=jobs, isolation=isolation),
        out=out,
        origin=start or origin(bench, made, locked),
        events=events,
        crew=crew,
    )


def make_workshop(
    bench: Bench, roots: Mapping[str, str], *, jobs: int, isolation: Sandbox
) -> build.Workshop:
    """What actions run with on this machine."""
    return build.Workshop(store=bench.store, roots=roots, runner=run, jobs=jobs, sandbox=isolation)


def refuse_failures(made: Plan, outcome: Outcome) -> None:
    """Raise what a build that left something out is.

    Raises:
        BuildError: an action failed.
    """
    if outcome.failures:
        raise BuildError(
            f"{len(outcome.failures)} of {len(made.actions)} actions failed, so "
            f"{', '.join(outcome.left_out)} could not be built",
            hint="the compiler's own words are above",
        )


def origin(bench: Bench, made: Plan, locked: Lock) -> Origin:
    """What a build starts from, for its provenance."""
    one = bench.project
    asked = ("git", "-C", str(one.root), "rev-parse", "--show-prefix")
    return Origin(
        sources=made.sources_id,
        lock=locked,
        version=__version__,
        url=one.manifest.general.source,
        git=one.git,
        folder=run(Command(argv=asked)).stdout.strip().strip("/") if one.git else "",
        python=platform.python_version(),
    )


def tagged_version(one: Project) -> str | None:
    """Version that a git tag ``vX.Y.Z`` gives to the commit that is checked out, if one does."""
    if one.git is None or one.git.dirty:
        return None
    tags = run(Command(argv=("git", "-C", str(one.root), "tag", "--points-at", "HEAD"))).stdout
    pattern = rf"v({one.manifest.general.version}\.\d+\.\d+)"
    found = [match[1] for tag in tags.split() if (match := re.fullmatch(pattern, tag))]
    return max(found, key=lambda version: tuple(map(int, version.split("."))), default=None)


def card(one: Project) -> str | None:
    """Text of the project's CARD.md, unless it is a template that another tool must fill."""
    path = one.root / "CARD.md"
    text = path.read_text() if path.is_file() else None
    return None if text is None or "{%" in text else text


def _root(name: str, bench: Bench, toolchains: Toolchains, locked: Lock) -> str:
    kind, _, rest = name.partition("-")
    if kind == "cxx":
        return bench.compiler.path
    if kind == "gcc":
        return bench.compiler.directory
    if kind == "python":
        return _python_headers()
    if kind == "torch":
        return str(toolchains.torch_headers(locked.torch[rest].wheel))
    if name in locked.headers:
        return str(toolchains.headers(name, locked.headers[name]))
    version, _, library = rest.partition("-")
    toolkit = locked.cuda[version]
    if not library:
        return str(toolchains.toolkit(toolkit))
    major, minor = version.split(".")
    wheel = next(
        w
        for w in toolkit.libraries
        if flags.library_root((int(major), int(minor)), w.file.partition("-")[0]) == name
    )
    return str(toolchains.library_headers(wheel))


def _python_headers() -> str:
    found = Path(sysconfig.get_path("include"))
    if not (found / "Python.h").is_file():
        raise ToolchainError(
            f"a source includes Python's headers, and {found}/Python.h is not there",
            hint="install them (Debian, Ubuntu: python3-dev; Fedora: python3-devel), or keep the "
            "binding to torch's stable ABI, which does not need them",
        )
    return str(found)
