# SPDX-License-Identifier: Apache-2.0
"""Commands for applications that use kernels: lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernforge import cli_options as options
from kernforge import report as reports

if TYPE_CHECKING:
    import argparse

    from kernforge.lockfiles import Application
    from kernforge.pins import Pins
    from kernforge.report import Report


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(
        verbs,
        _lock,
        "lock",
        "lock the kernels that an application's pyproject.toml asks for",
        "my-app --upgrade me/my-kernel",
    )
    options.add_project(verb)
    options.add_registry(verb)
    what = verb.add_mutually_exclusive_group()
    what.add_argument(
        "--upgrade",
        metavar="REPO",
        nargs="*",
        help="take the newest of these kernels, or of all",
    )
    what.add_argument(
        "--check",
        action="store_true",
        help="write nothing; an error if the lock is not of this state of the project",
    )


def _lock(arguments: argparse.Namespace, report: Report) -> None:
    from kernforge import lockfiles, registry  # noqa: PLC0415
    from kernforge.home import default_registry  # noqa: PLC0415

    application = lockfiles.read(arguments.project)
    if arguments.check:
        lockfiles.check(application)
        report.result({"current": True}, "the lock is up to date")
        return
    upgrade = arguments.upgrade
    chosen = lockfiles.lock(
        application,
        registry.open_registry(arguments.registry or default_registry()),
        upgrade=() if upgrade is None else upgrade or None,
    )
    if not application.route.arrives:
        report.note(f"note: {application.route.told}")
    _say_locked(application, chosen, report)


def _say_locked(application: Application, chosen: Pins, report: Report) -> None:
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
    route = {"package": application.route.package, "told": application.route.told}
    report.result(
        {"kernels": kernels, "travels": route, "arrives": application.route.arrives},
        reports.table(rows, head=("kernel", "version", "commit", "")),
    )
