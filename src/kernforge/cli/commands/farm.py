# SPDX-License-Identifier: Apache-2.0
"""Command about a build farm: its certificates, its scheduler, its workers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.cli import options

if TYPE_CHECKING:
    import argparse

    from kernforge.system.console import Console
    from kernforge.system.environment import Environment

_PORT = 8786
_DAYS = 365


def add(verbs: options.Verbs) -> None:
    """Add the command of this module."""
    verb = options.add_verb(verbs, _farm, "farm")
    actions = verb.add_subparsers(dest="action", metavar="ACTION", required=True)

    summary = "make the certificates of a new farm, or renew them"
    init = _add_action(actions, "init", summary, "--days 90")
    init.add_argument(
        "--days",
        type=options.positive,
        default=_DAYS,
        help=f"how long the certificates are valid (default: {_DAYS})",
    )
    options.add_flag(init, "--renew", "make new certificates of the authority that is there")

    scheduler = _add_action(actions, "scheduler", "run a Dask scheduler", "--host 10.0.0.5")
    scheduler.add_argument(
        "--host", default="", help="the address to listen at (default: every one of this machine)"
    )
    scheduler.add_argument(
        "--port",
        type=options.positive,
        default=_PORT,
        help=f"the port to listen at (default: {_PORT})",
    )
    example = "--scheduler tls://farm:8786 -- --nthreads 16"
    worker = _add_action(actions, "worker", "run a Dask worker", example)
    worker.add_argument(
        "--scheduler", metavar="ADDRESS", required=True, help="such as tls://farm:8786"
    )
    for action in (scheduler, worker):
        options.add_trusted_network(action)
        action.add_argument(
            "more", nargs="*", metavar="OPTION", help="options for Dask's own command, after --"
        )


def _add_action(
    actions: options.Verbs, name: str, summary: str, example: str
) -> argparse.ArgumentParser:
    named = (f"farm {name}", "how-to/platform/secure-a-farm")
    action = options.add_action(actions, _farm, named, summary, example)
    action.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help="directory of the certificates (default: KERNFORGE_FARM, else kernforge/farm in your "
        "configuration)",
    )
    return action


def _farm(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.build.cluster import certificates, network  # noqa: PLC0415

    environment = _environment(arguments)
    if arguments.action == "init":
        _init(arguments, certificates.directory(environment), console)
        return
    role = arguments.action
    farm = network.access(environment, role, trusted=arguments.trusted_network)
    if role == "scheduler":
        argv, added = network.scheduler_command(
            farm, host=arguments.host, port=arguments.port, more=arguments.more
        )
    else:
        argv, added = network.worker_command(farm, arguments.scheduler, more=arguments.more)
    # Signals of a service manager shall reach Dask itself, which ends its tasks.
    os.execve(argv[0], argv, {**environment.variables, **added})  # noqa: S606 - no shell


def _environment(arguments: argparse.Namespace) -> Environment:
    from kernforge.system.environment import Environment  # noqa: PLC0415

    given: Environment = arguments.environment
    if arguments.dir is None:
        return given
    return Environment({**given.variables, "KERNFORGE_FARM": str(arguments.dir.absolute())})


def _init(arguments: argparse.Namespace, where: Path, console: Console) -> None:
    from kernforge.build.cluster import certificates  # noqa: PLC0415

    make = certificates.renew if arguments.renew else certificates.init
    made = make(where, days=arguments.days)
    copies = {
        role: [f"{certificates.AUTHORITY}.pem", f"{role}.pem", f"{role}.key"]
        for role in certificates.ROLES
    }
    until = f"until {made.expires}, of an authority until {made.authority_expires}"
    lines = [
        f"{made.directory}: certificates {until}",
        "copy to the same place on each machine, for your user alone:",
        *(f"  {role:9}  {' '.join(names)}" for role, names in copies.items()),
        f"keep {certificates.AUTHORITY}.key here: it makes new certificates",
    ]
    document = {
        "directory": str(made.directory),
        "expires": str(made.expires),
        "authority_expires": str(made.authority_expires),
        "copy": copies,
    }
    console.result(document, "\n".join(lines))
