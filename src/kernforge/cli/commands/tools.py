# SPDX-License-Identifier: Apache-2.0
"""Commands about the machine and for other tools: doctor, export, shell."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernforge.cli import formats, options
from kernforge.errors import ToolchainError, UsageError
from kernforge.system.console import Console


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(verbs, _doctor, "doctor")
    options.add_flag(verb, "--offline", "do not contact the package indexes")
    options.add_flag(verb, "--platform", "describe this machine, for `kernforge get --platform`")

    verb = options.add_verb(verbs, _export, "export")
    options.add_project(verb)
    verb.add_argument(
        "--to", type=Path, metavar="DIR", help="directory to write to (default: the project)"
    )
    verb.add_argument(
        "--only",
        action="append",
        choices=("cmake", "python", "nix", "editor", "schema"),
        help="only these files; may be repeated (default: all but schema, the JSON schema of "
        "build.toml)",
    )
    options.add_repeated(
        verb, "--variant", "variant for editors: a name or a pattern (default: the newest)"
    )
    options.add_flag(
        verb,
        "--force",
        "replace existing files that no export wrote (default: leave them as they are)",
    )
    options.add_flag(verb, "--dry-run", "print what would be written")

    verb = options.add_verb(verbs, _shell, "shell")
    verb.usage = "kernforge shell [options] [PROJECT] [-- COMMAND ...]"
    verb.set_defaults(command=())
    options.add_project(verb)
    verb.add_argument("--variant", default="", help="a name or a pattern (default: the newest)")
    options.add_build_dir(verb)


def _doctor(arguments: argparse.Namespace, console: Console) -> None:
    if arguments.platform:
        _platform(console)
        return
    from kernforge.doctor import examine, rules  # noqa: PLC0415
    from kernforge.system.process import run  # noqa: PLC0415

    machine = examine.examine(arguments.environment, run, ask_network=not arguments.offline)
    findings = rules.diagnose(machine)
    console.result(
        {"findings": [formats.finding_document(finding) for finding in findings]},
        "\n".join(map(formats.finding_text, findings)) or "no problem was found on this machine",
    )
    wrong = sum(finding.severity == "error" for finding in findings)
    if wrong:
        raise ToolchainError(
            f"{wrong} {'problems keep' if wrong > 1 else 'problem keeps'} kernels from being built "
            "or run on this machine",
            hint="follow the hint of each finding above",
        )


def _platform(console: Console) -> None:
    from kernforge.application import platforms  # noqa: PLC0415
    from kernforge.loader import host  # noqa: PLC0415

    here = host.with_device(host.probe())
    if note := platforms.lacks_driver(here):
        console.note(note)
    console.result(platforms.describe(here), platforms.name(here))


def _export(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.export import api as export  # noqa: PLC0415
    from kernforge.manifest.model import TorchNoarch  # noqa: PLC0415
    from kernforge.project import targets as project_targets  # noqa: PLC0415
    from kernforge.project.api import read_project  # noqa: PLC0415

    kinds = arguments.only or export.KINDS
    project = read_project(arguments.project)
    to = arguments.to or project.root
    texts = export.texts(project, kinds)
    noarch = isinstance(project.manifest.framework, TorchNoarch)
    with_editor = "editor" in kinds and (bool(arguments.only) or not noarch)
    # Conflicts are found before headers are fetched for the commands of an editor.
    planned = texts | ({export.COMPILE_COMMANDS: None} if with_editor else {})
    kept = export.kept(project, planned, to, force=arguments.force)
    for note in project.manifest.notes:
        console.note(f"note: {note}")
    if arguments.dry_run:
        names = [str(to / path) for path in sorted(planned.keys() - kept)]
        document = {"directory": str(to), "files": names, "kept": sorted(map(str, kept))}
        console.result(document, "\n".join(f"would write {name}" for name in names))
        return
    if with_editor and export.COMPILE_COMMANDS not in kept:
        workspace = options.workspace(arguments, console)
        targets = project_targets.choose(workspace.candidates, arguments.variant)
        texts |= export.compile_commands(workspace, targets, to)
    written = [str(path) for path in export.write(project, texts, to, kept)]
    left = sorted(str(to / path) for path in kept)
    console.result(
        {"directory": str(to), "files": written, "kept": left},
        "\n".join(
            [
                *written,
                *(f"kept {path}: it exists, and no export wrote it (--force)" for path in left),
            ]
        ),
    )


def _shell(arguments: argparse.Namespace, console: Console) -> int:
    from kernforge.export import shell  # noqa: PLC0415
    from kernforge.project import targets as project_targets  # noqa: PLC0415

    if arguments.json and arguments.command:
        raise UsageError(
            "--json prints the environment and runs no command, but a command was given",
            hint="remove --json or the command",
        )
    workspace = options.workspace(arguments, console)
    environment = arguments.environment
    patterns = [arguments.variant] if arguments.variant else []
    target = project_targets.choose(workspace.candidates, patterns)[-1]
    setting = shell.setting(
        workspace,
        target,
        arguments.build_dir or workspace.project.root / "build",
        links=environment.home / "shells",
    )
    if setting.built is None:
        console.note(f"note: {setting.variant} is not built: run `kernforge build` to build it")
    if arguments.json:
        merged = setting.merged(environment.variables)
        built = str(setting.built) if setting.built else None
        document = {"variant": setting.variant, "environment": merged, "built": built}
        console.result(document, "")
        return 0
    if not arguments.command:
        console.note(
            f"{setting.variant}: {', '.join(sorted(setting.merged({})))} are set; `exit` leaves"
        )
    try:
        return shell.enter(setting, arguments.command, environment)
    except FileNotFoundError as error:
        raise UsageError(
            f"there is no program {error.filename}", hint="check PATH, or give its path"
        ) from error
    except PermissionError as error:
        raise UsageError(
            f"{error.filename} cannot be run: {error.strerror}",
            hint="make it executable with chmod +x",
        ) from error
