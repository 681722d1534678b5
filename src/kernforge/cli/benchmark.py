# SPDX-License-Identifier: Apache-2.0
"""The command that measures published kernels by the classes that lie beside them: benchmark."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.cli import options
from kernforge.errors import CheckError, UsageError, page

if TYPE_CHECKING:
    import argparse

    from kernforge.bench.hub.repository import Repo
    from kernforge.system.console import Report
    from kernforge.system.environment import Environment


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(
        verbs,
        _benchmark,
        "benchmark",
        "measure a published kernel by its own benchmarks/benchmark*.py; exits 6 when a workload "
        "is wrong or refused",
        "me/my-kernel@v1 --out now.json",
    )
    verb.add_argument(
        "repo", metavar="REPO", help="OWNER/NAME@v1, OWNER/NAME@REVISION, or a directory"
    )
    verb.add_argument("--version", help="1, 1.2.3 or bounds, of a published kernel")
    verb.add_argument(
        "--revision", "--branch", help="a branch, tag or commit of a published kernel"
    )
    options.add_registry(verb)
    verb.add_argument(
        "--against",
        metavar="OWNER/NAME@vN",
        action="append",
        default=[],
        help="run the same classes with this published version too",
    )
    options.add_measuring(verb)
    verb.add_argument("--no-reference", action="store_true", help="do not time the verify_ methods")
    verb.add_argument(
        "--out",
        "--output",
        type=Path,
        help="write the result there, in the JSON of `kernels benchmark` with more in it",
    )
    verb.add_argument(
        "--trust-remote-code", action="store_true", help="take it whoever published it"
    )


def _benchmark(arguments: argparse.Namespace, report: Report) -> None:
    from kernforge.bench.hub import payload, repository, run  # noqa: PLC0415
    from kernforge.system import files  # noqa: PLC0415

    if arguments.out:
        options.can_write(arguments.out)
    settings = options.measuring(arguments, graphs=False)
    repo = _repo(arguments, "cpu" if settings.device == "cpu" else None)
    wanted = run.Wanted(
        repo=repo.root,
        kernel=repo.kernel,
        registry=arguments.registry,
        trust=arguments.trust_remote_code,
        against=tuple(arguments.against),
        only=tuple(arguments.workload),
        reference=not arguments.no_reference,
    )
    document = run.run(wanted, settings, report.note)
    found = payload.payload(
        document,
        device=settings.device,
        kernel_id=repo.id,
        scripts_sha=repository.sha_of(run.scripts(repo.root)),
        system=f"{platform.system()} {platform.release()}",
        cpu=platform.processor() or platform.machine() or "Unknown",
    )
    if arguments.out:
        files.write_atomic(arguments.out, json.dumps(found, indent=2) + "\n")
    report.result(found, options.classes_text(document))
    if refused := run.refusals(document):
        raise CheckError("\n".join(refused), hint=f"see {page('explanation/honest-benchmarks')}")


def _repo(arguments: argparse.Namespace, backend: str | None) -> Repo:
    from kernforge.bench.hub import repository  # noqa: PLC0415

    environment: Environment = arguments.environment
    trusted: bool = arguments.trust_remote_code
    directory = Path(arguments.repo)
    if directory.is_dir():
        if arguments.version or arguments.revision:
            raise UsageError(
                f"{directory} is a directory: it has no published versions",
                hint="leave --version and --revision out, or name OWNER/NAME",
            )
        return repository.local(
            directory,
            environment,
            backend=backend,
            trusted=trusted,
        )
    repo_id, version, revision = repository.asked(
        arguments.repo, arguments.version, arguments.revision
    )
    return repository.published(
        options.registry(arguments),
        environment,
        repo_id,
        version,
        revision,
        backend=backend,
        trusted=trusted,
    )
