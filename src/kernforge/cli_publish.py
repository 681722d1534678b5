# SPDX-License-Identifier: Apache-2.0
"""The command that publishes built variants."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernforge import cli_options as options
from kernforge.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from kernforge.report import Report


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(
        verbs,
        _publish,
        "publish",
        "publish a project's built variants to a registry",
        "--registry ~/registry --repo-id me/my-kernel",
    )
    options.add_project(verb)
    options.add_registry(verb)
    verb.add_argument("--repo-id", help="owner/name (default: [general.hub] repo-id)")
    verb.add_argument("--version", help="X.Y.Z (default: the git tag here, else the next patch)")
    verb.add_argument("--build", type=Path, help="directory of variants (default: PROJECT/build)")
    verb.add_argument(
        "--sign",
        type=Path,
        metavar="KEY",
        help="sign each variant with this key of kernforge keygen",
    )


def _publish(arguments: argparse.Namespace, report: Report) -> None:
    from kernforge import pipeline, publish, registry  # noqa: PLC0415
    from kernforge.home import default_registry  # noqa: PLC0415

    project = pipeline.read_project(arguments.project)
    repo_id = arguments.repo_id or project.manifest.general.hub.repo_id
    if not repo_id:
        raise UsageError(
            "publish where? build.toml has no [general.hub] repo-id",
            hint="add it, or give --repo-id owner/name",
        )
    build = arguments.build or project.root / "build"
    if arguments.sign:
        _sign(build, arguments.sign)
    done = publish.publish(
        build,
        registry.open_registry(arguments.registry or default_registry()),
        repo_id,
        arguments.version or pipeline.tagged_version(project),
        card=pipeline.card(project),
    )
    document = {
        "repo_id": repo_id,
        "version": done.version,
        "commit": done.commit,
        "changed": done.changed,
        "variants": list(done.variants),
        "url": done.url,
    }
    said = "published" if done.changed else "already there, unchanged:"
    lines = [f"{said} {repo_id} {done.version} at {done.url}", *(f"  {v}" for v in done.variants)]
    report.result(document, "\n".join(lines))


def _sign(build: Path, key: Path) -> None:
    from kernforge import signing  # noqa: PLC0415

    signing.sign(signing.variant_dirs(build), signing.open_key(key, options.passphrase).sign)
