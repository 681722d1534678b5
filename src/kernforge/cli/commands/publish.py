# SPDX-License-Identifier: Apache-2.0
"""``kernforge publish``: publish built variants as a version, or print the plan of it."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path

from kernforge.artifact import directories
from kernforge.cli import options
from kernforge.errors import UsageError
from kernforge.project import api as projects, card as cards
from kernforge.project.api import Project
from kernforge.publish import api as publish
from kernforge.publish.api import pack_source
from kernforge.publish.version import VersionChoice
from kernforge.registry.api import open_registry
from kernforge.registry.names import dotted
from kernforge.system.console import Console


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Publish, or print the version, its changes and the card of a dry run."""
    project, build = _places(arguments.paths)
    build = build or [project.root / "build"]
    hub, general = project.manifest.general.hub, project.manifest.general
    repo_id, branch = arguments.repo_id or hub.repo_id, hub.branch
    if not repo_id:
        raise UsageError(
            "there is no repository to publish to: build.toml has no [general.hub] repo-id",
            hint="add repo-id to build.toml, or give --repo-id owner/name",
        )
    environment = arguments.environment
    named = arguments.registry or environment.kernforge_registry
    if not named:
        named = str(environment.own_registry)
        console.note(
            f"your own registry is {named}; --registry or KERNFORGE_REGISTRY names another"
        )
    registry = open_registry(named, environment)
    version = arguments.version
    if version is None and branch in {None, f"v{general.version}"}:
        version = projects.tagged_version(project)
    card = cards.read(project)
    card.fill(repo_id)  # a mistake in it is an error before anything is signed or written
    run_publish = functools.partial(
        publish.publish,
        build,
        registry,
        repo_id,
        version,
        branch=branch,
        sources=project.sources.identity,
        card=functools.partial(card.fill, repo_id),
        private=arguments.private or None,
        source=pack_source(project, wanted=arguments.with_source),
        benchmarks=projects.benchmarks(project),
    )
    if arguments.sign and not arguments.dry_run:
        run_publish(dry_run=True)  # what is refused is not signed
        if repo_id.rpartition("/")[2].replace("_", "-") != general.name:
            console.note(
                f"{repo_id} is signed as {general.name!r}: a policy that wants a signature refuses "
                "a kernel under another name"
            )
        _sign(build, arguments)
    result = run_publish(dry_run=arguments.dry_run)
    document = {
        "repo_id": repo_id,
        "version": result.version,
        "branch": result.branch,
        "variants": list(result.variants),
        **_document(result.choice),
    }
    name = f"{repo_id} {result.version or result.branch}"
    lines = [*(f"  {variant}" for variant in result.variants), *_lines(result.choice)]
    if arguments.dry_run:
        text = card.fill(repo_id, result.variants)
        document |= {"card": text, "template": cards.FILE if card.authored else None}
        lines = [f"would publish {name}", *lines, "", text]
    else:
        document |= {key: getattr(result, key) for key in ("status", "commit", "changed", "url")}
        status = "published" if result.changed else "already there, unchanged:"
        lines = [f"{status} {name} at {result.url}", *lines]
    console.result(document, "\n".join(lines))


def _places(paths: list[Path]) -> tuple[Project, list[Path]]:
    """The project and the directories of variants among the arguments."""
    named = [p for p in paths if p.name == projects.MANIFEST or (p / projects.MANIFEST).is_file()]
    if len(named) > 1:
        raise UsageError(
            f"{named[0]} and {named[1]} are two projects",
            hint="name one project, and the directories of its variants: kernforge publish . "
            "A/build",
        )
    project = projects.read_project(named[0] if named else Path())
    return project, [path for path in paths if path not in named]


def _document(choice: VersionChoice | None) -> dict[str, object]:
    """The reason for the version number, as JSON values."""
    if choice is None:
        return {}
    return {
        "since": dotted(choice.since) if choice.since else None,
        "changes": [
            {"level": str(change.level), "what": change.what, "variants": list(change.variants)}
            for change in choice.changes
        ],
        "operators_not_recorded": list(choice.unrecorded),
    }


def _lines(choice: VersionChoice | None) -> list[str]:
    """The reason for the version number, as text."""
    if choice is None or choice.since is None:
        return []
    none = "" if choice.changes else " no change of interface"
    lines = [f"since {dotted(choice.since)}:{none}"]
    lines += [f"  {c.level}: {c.what} ({', '.join(c.variants)})" for c in choice.changes]
    if choice.unrecorded:
        names = ", ".join(choice.unrecorded)
        lines.append(f"  not compared: operators of {names}, whose build did not record them")
    return lines


def _sign(build: list[Path], arguments: argparse.Namespace) -> None:
    from kernforge.trust import signing  # noqa: PLC0415 - an extra

    key = options.open_key(arguments.sign, arguments.environment)
    signing.sign([path for place in build for path in directories.variants(place)], key.sign)
