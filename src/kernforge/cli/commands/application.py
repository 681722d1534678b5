# SPDX-License-Identifier: Apache-2.0
"""Commands for applications that use kernels: lock, get, run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.cli import options
from kernforge.errors import UsageError
from kernforge.registry.names import is_repo_id
from kernforge.system import tables

if TYPE_CHECKING:
    import argparse

    from kernforge.application.download import DownloadedVariant, Selection
    from kernforge.application.project_lock import Application
    from kernforge.loader.host import Host
    from kernforge.loader.pins import Pins
    from kernforge.loader.search import Search
    from kernforge.registry.base import Registry
    from kernforge.registry.names import Request
    from kernforge.system.console import Console
    from kernforge.system.environment import Environment


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(verbs, _lock, "lock")
    options.add_project(verb)
    options.add_registry(verb)
    mode = verb.add_mutually_exclusive_group()
    mode.add_argument(
        "--upgrade",
        metavar="REPO",
        nargs="*",
        help="take the newest versions of these kernels, or of all kernels; of a kernel project "
        "the newest releases of its toolchain",
    )
    options.add_flag(mode, "--check", "write nothing; end with an error if the lock is out of date")

    options.add_repeated(verb, "--cuda", "also lock this CUDA version, such as 13.2")
    options.add_repeated(verb, "--torch", "also lock this torch version, such as 2.13")
    options.add_toolchain(verb)

    verb = options.add_verb(verbs, _get, "get")
    verb.add_argument(
        "what",
        nargs="?",
        default=".",
        help="a project with a lock, or OWNER/NAME (default: current directory)",
    )
    options.add_version(verb, default="")
    options.add_registry(verb)
    verb.add_argument(
        "--to",
        type=Path,
        metavar="PATH",
        help="a directory to copy to, or a new .tar file (default: the registry's cache)",
    )
    which = verb.add_mutually_exclusive_group()
    options.add_flag(which, "--all-variants", "fetch all variants")
    options.add_repeated(which, "--variant", "fetch this variant; may be repeated", metavar="NAME")
    options.add_repeated(
        which,
        "--platform",
        "fetch the variant for this machine: torch2.11-cu130-x86_64-linux, or a file that "
        "`kernforge doctor --platform --json` wrote there; may be repeated (default: this machine)",
        metavar="PLATFORM",
    )
    which.add_argument("--backend", help="cpu, or the backend of the installed torch (default)")
    options.add_flag(verb, "--trust-remote-code", "accept the kernel from any publisher")

    verb = options.add_verb(verbs, _run, "run")
    verb.add_argument(
        "--as-kernels",
        nargs="?",
        const="",
        metavar="VERSION",
        help="answer `import kernels`, and claim this version of it (default: 0.18.2)",
    )
    verb.add_argument(
        "--write-wheel",
        type=Path,
        metavar="DIR",
        help="run nothing: write a wheel named kernels to this directory, of the version of "
        "--as-kernels",
    )
    verb.add_argument("command", nargs="*", metavar="COMMAND", help="after --, with its arguments")


def _lock(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.application import project_lock  # noqa: PLC0415
    from kernforge.project.api import MANIFEST  # noqa: PLC0415

    if (arguments.project / MANIFEST).is_file():
        _lock_toolchain(arguments, console)
        return
    options.refuse_without("a kernel project", cuda=arguments.cuda, torch=arguments.torch)
    application = project_lock.read(arguments.project)
    if arguments.check:
        project_lock.check(application)
        console.result({"current": True}, "the lock is up to date")
        return
    upgrade = arguments.upgrade
    chosen = project_lock.lock(
        application, options.registry(arguments), upgrade=() if upgrade is None else upgrade or None
    )
    if not application.package:
        console.note(
            "note: setuptools installs the lock with the application where kernforge is in "
            "requires of [build-system]; for another backend name [tool.kernforge.lock] package = "
            '"src/app"'
        )
    _say_locked(application, chosen, console)


def _lock_toolchain(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.builder import locking  # noqa: PLC0415
    from kernforge.project import targets as project_targets  # noqa: PLC0415
    from kernforge.toolchain.lockfile import Tree  # noqa: PLC0415

    if arguments.check or arguments.upgrade:
        raise UsageError(
            f"{arguments.project} is a kernel project, whose toolchain is locked",
            hint="--upgrade without names takes the newest releases; `kernforge build --locked` "
            "ends with an error if the lock is out of date",
        )
    workspace = options.workspace(arguments, console)
    targets = project_targets.choose(workspace.candidates, [])
    more = [Tree("cuda", version) for version in arguments.cuda]
    more += [Tree("torch", version) for version in arguments.torch]
    wanted = locking.needs(workspace, targets).union(more)
    mode: locking.Mode = "write" if arguments.upgrade is None else "upgrade"
    locked, _ = locking.ensure_lock(workspace, wanted, mode)
    lines = [
        f"{tree}: {tree.release}"
        + (f", front end of {tree.front_end.release}" if tree.front_end else "")
        for tree in sorted(locked.trees.values())
    ]
    lines += [f"{name}: {each.identity}" for name, each in sorted(locked.compilers.items())]
    path = workspace.project.root / "kernforge.lock"
    console.result({"lock": str(path)}, "\n".join([str(path), *(f"  {line}" for line in lines)]))


def _say_locked(application: Application, chosen: Pins, console: Console) -> None:
    kernels = [
        {
            "repo_id": pin.depend.repo_id,
            "version": pin.depend.version,
            "revision": pin.depend.revision,
            "asked": pin.asked,
            "release": pin.release,
            "commit": pin.commit,
            "variants": sorted(pin.metadata),
        }
        for pin in chosen.kernels
    ]
    rows = [
        (
            pin.depend.repo_id,
            pin.release or pin.depend.revision or "",
            pin.commit[:12],
            "" if pin.asked is not None else "for another kernel",
        )
        for pin in chosen.kernels
    ]
    console.result(
        {"kernels": kernels, "package": application.package},
        tables.table(rows, head=("kernel", "version", "commit", "")),
    )


def _get(arguments: argparse.Namespace, console: Console) -> None:
    copied = arguments.to or arguments.variant or arguments.all_variants or arguments.platform
    if not copied and is_repo_id(arguments.what) and not Path(arguments.what).is_dir():
        _get_one(arguments, console)
        return
    from kernforge.application import download  # noqa: PLC0415
    from kernforge.system import files  # noqa: PLC0415

    store = options.registry(arguments)
    search, wanted = _wanted(arguments, store)
    selection = _selection(arguments)
    out: Path | None = arguments.to
    if out is not None and out.suffix == ".tar":
        with files.staging(out.absolute().parent) as staged:
            fetched = _fetched(search, wanted, selection, staged, console)
            download.write_tar(staged, out)
    else:
        fetched = _fetched(search, wanted, selection, out, console)
    kernels = [
        {
            "repo_id": variant.repo_id,
            "commit": variant.commit,
            "variant": variant.variant,
            "bytes": download.size(variant),
            "path": str(variant.path) if out is None else None,
        }
        for variant in fetched
    ]
    rows = [
        (
            variant.repo_id,
            variant.commit[:12],
            variant.variant,
            tables.size(download.size(variant)) or "0 MB",
        )
        for variant in fetched
    ]
    to = str(out) if out else None
    text = tables.table(rows, head=("kernel", "commit", "variant", "size"))
    console.result({"to": to, "kernels": kernels}, f"{text}\n{to}" if to else text)


def _get_one(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.loader import api as loader  # noqa: PLC0415

    if arguments.version is None and arguments.revision is None:
        raise UsageError(
            f"no version of {arguments.what} was given",
            hint="give --version 1, or --revision; `kernforge info --versions` lists them",
        )
    path = loader.install_kernel(
        arguments.what,
        version=arguments.version,
        revision=arguments.revision,
        registry=arguments.registry,
        backend=arguments.backend,
        trust_remote_code=arguments.trust_remote_code,
    )
    document = {"repo_id": arguments.what, "variant": path.name, "path": str(path)}
    console.result(document, str(path))


def _fetched(
    search: Search,
    wanted: tuple[Request, ...],
    selection: Selection,
    to: Path | None,
    console: Console,
) -> list[DownloadedVariant]:
    """Fetch variants, and copy each one as soon as it is fetched."""
    from kernforge.application import download  # noqa: PLC0415
    from kernforge.registry.directory import DirectoryRegistry  # noqa: PLC0415

    target = None if to is None else DirectoryRegistry(to.absolute())
    fetched = []
    for variant in download.fetch(search, wanted, selection):
        new = target is None or download.copy(variant, target)
        console.note(
            f"{'verified' if new else 'there already:'} {variant.repo_id} {variant.variant}"
        )
        fetched.append(variant)
    return fetched


def _wanted(arguments: argparse.Namespace, store: Registry) -> tuple[Search, tuple[Request, ...]]:
    """The registry to fetch from, and the kernels."""
    from kernforge.application import download  # noqa: PLC0415
    from kernforge.loader import caller_lock, kernels_lock, search  # noqa: PLC0415
    from kernforge.registry.names import request  # noqa: PLC0415

    environment: Environment = arguments.environment
    trusted: bool = arguments.trust_remote_code
    wanted_version = arguments.version or arguments.revision
    directory = Path(arguments.what)
    if directory.is_dir() and not wanted_version:
        locks = caller_lock.read(directory / kernels_lock.FILE)
        locked = search.Search(store, None, environment, trusted, locks=locks)
        return locked, download.asked_kernels(locks)
    if not is_repo_id(arguments.what):
        raise UsageError(
            f"there is no directory {arguments.what}, and a kernel is named like owner/name",
            hint="name a project with a lock, or a kernel: owner/name --version 1",
        )
    if not wanted_version:
        raise UsageError(
            f"no version of {arguments.what} was given, and there is no such directory",
            hint="give --version 1, or name a project with a lock",
        )
    unlocked = search.Search(store, None, environment, trusted)
    return unlocked, (request(arguments.what, arguments.version, arguments.revision),)


def _selection(arguments: argparse.Namespace) -> Selection:
    from kernforge.application.download import Selection  # noqa: PLC0415

    if arguments.variant:
        return Selection(names=tuple(arguments.variant))
    if arguments.all_variants:
        return Selection()
    if arguments.platform:
        return Selection(hosts=tuple(map(_host, arguments.platform)))
    from kernforge.loader.host import probe  # noqa: PLC0415

    return Selection(hosts=(probe(arguments.backend),))


def _host(text: str) -> Host:
    """The described machine."""
    from kernforge.application import platforms  # noqa: PLC0415

    path = Path(text)
    if path.is_file():
        return platforms.read(path.read_text(), source=text)
    if path.suffix == ".json":
        raise UsageError(
            f"there is no file {text}",
            hint=f"write it on that machine: kernforge doctor --platform --json > {path.name}",
        )
    return platforms.parse(text)


def _run(arguments: argparse.Namespace, console: Console) -> int:
    from kernforge.compat import shim  # noqa: PLC0415
    from kernforge.system.process import Command, attached  # noqa: PLC0415

    environment: Environment = arguments.environment
    version = arguments.as_kernels or shim.claimed_version(environment)
    if arguments.write_wheel is not None:
        if arguments.command:
            raise UsageError(
                "--write-wheel runs no program, but one was given",
                hint="remove --write-wheel or the program",
            )
        path = shim.write_wheel(arguments.write_wheel, version)
        console.result({"path": str(path), "version": version}, str(path))
        return 0
    if arguments.as_kernels is None or not arguments.command:
        raise UsageError(
            "--as-kernels or the program to run is missing",
            hint="give both: kernforge run --as-kernels -- python app.py",
        )
    added = shim.command_environment(environment, version)
    try:
        return attached(
            Command(argv=tuple(arguments.command), env=environment.variables, added=added)
        )
    except FileNotFoundError:
        raise UsageError(
            f"there is no program {arguments.command[0]!r}", hint="write it as in a shell"
        ) from None
