# SPDX-License-Identifier: Apache-2.0
"""Commands that publish built variants and compare versions: publish, apidiff."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.cli import options
from kernforge.errors import UsageError

if TYPE_CHECKING:
    from kernforge.project.api import Project
    from kernforge.publish.api_diff import ApiChange, Offer
    from kernforge.publish.version import VersionChoice
    from kernforge.registry.base import Registry
    from kernforge.system.console import Console
    from kernforge.system.environment import Environment


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(verbs, _publish, "publish")
    verb.add_argument(
        "paths",
        metavar="PATH",
        type=Path,
        nargs="*",
        help="the project (default: current directory), and directories of its variants, those of "
        "several machines together (default: PROJECT/build)",
    )
    options.add_registry(verb)
    verb.add_argument("--repo-id", help="owner/name (default: [general.hub] repo-id)")
    verb.add_argument(
        "--version",
        help="X.Y.Z (default: the project's git tag, or the next version that the changes allow)",
    )
    verb.add_argument(
        "--branch",
        help="publish to this branch, without a version: users load it by revision= "
        "(default: [general.hub] branch, or the branch of the version)",
    )
    verb.add_argument(
        "--with-source",
        action=argparse.BooleanOptionalAction,
        help="publish the sources of the variants too, so that others can build more variants "
        "(default: if the licence is an open one)",
    )
    verb.add_argument(
        "--sign",
        type=Path,
        metavar="KEY",
        help="sign each variant with this key of kernforge sign --new-key",
    )
    options.add_flag(verb, "--private", "make a new kernel on a hub private")
    options.add_flag(verb, "--create-pr", "open a pull request on a hub instead")
    options.add_flag(verb, "--dry-run", "print the version and the changes; publish nothing")
    options.add_flag(verb, "--card", "print the card that would be published; publish nothing")

    verb = options.add_verb(verbs, _apidiff, "apidiff")
    verb.add_argument("old", help="OWNER/NAME@VERSION, or a directory of variants")
    verb.add_argument("new", help="OWNER/NAME@VERSION, or a directory of variants")
    options.add_registry(verb)


def _publish(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.project import api as projects  # noqa: PLC0415
    from kernforge.project import card as cards  # noqa: PLC0415
    from kernforge.publish import api as publish  # noqa: PLC0415
    from kernforge.publish import source_pack  # noqa: PLC0415
    from kernforge.registry import api as registry  # noqa: PLC0415

    root, build = _places(arguments.paths)
    project = projects.read_project(root)
    repo_id = _repo_id(arguments, project)
    if arguments.card:
        _card(project, build, repo_id, console)
        return
    build = build or [project.root / "build"]
    branch = arguments.branch or project.manifest.general.hub.branch
    versioned = branch in {None, f"v{project.manifest.general.version}"}
    environment: Environment = arguments.environment
    named = arguments.registry or environment.kernforge_registry
    if not named:
        named = str(environment.own_registry)
        console.note(
            f"your own registry is {named}; --registry or KERNFORGE_REGISTRY names another"
        )
    store = registry.open_registry(named, environment)
    version = arguments.version or (projects.tagged_version(project) if versioned else None)
    sources = project.sources.identity
    if arguments.dry_run:
        variants, choice = publish.preview(
            build, store, repo_id, version, branch=branch, sources=sources
        )
        _preview(variants, choice, repo_id, branch, console)
        return
    card = cards.read(project)
    card.fill(repo_id)  # a mistake in it is said before anything is signed or written
    if arguments.sign:
        publish.check_build(build, sources)
        if repo_id.rpartition("/")[2].replace("_", "-") != project.manifest.general.name:
            console.note(
                f"{repo_id} is signed as {project.manifest.general.name!r}: a policy that wants a "
                "signature refuses a kernel under another name"
            )
        _sign(build, arguments.sign, environment)
    result = publish.publish(
        build,
        store,
        repo_id,
        version,
        branch=branch,
        sources=sources,
        card=functools.partial(card.fill, repo_id),
        private=arguments.private or None,
        create_pr=arguments.create_pr,
        source=source_pack.pack(project, wanted=arguments.with_source),
        benchmarks=projects.benchmarks(project),
    )
    document = {
        "status": result.status,
        "repo_id": repo_id,
        "version": result.version,
        "commit": result.commit,
        "changed": result.changed,
        "variants": list(result.variants),
        "url": result.url,
        "branch": result.branch,
        "pull_requests": [{"branch": b, "url": url} for b, url in result.pull_requests],
        **_choice_document(result.choice),
    }
    status = {"uploaded": "published", "no_changes": "already there, unchanged:"}.get(
        result.status, "proposed, not published yet:"
    )
    lines = [
        f"{status} {repo_id} {result.version or result.branch} at {result.url}",
        *(f"  {v}" for v in result.variants),
    ]
    lines += [f"pull request onto {branch}: {url}" for branch, url in result.pull_requests]
    lines += _choice_lines(result.choice)
    console.result(document, "\n".join(lines))


def _places(paths: list[Path]) -> tuple[Path, list[Path]]:
    """The project, and the directories of variants that were named."""
    from kernforge.project.api import MANIFEST  # noqa: PLC0415

    projects = [path for path in paths if (path / MANIFEST).is_file() or path.name == MANIFEST]
    if len(projects) > 1:
        raise UsageError(
            f"{projects[0]} and {projects[1]} are two projects",
            hint="name one project, and the directories of its variants: kernforge publish . "
            "A/build",
        )
    (project,) = projects or [Path()]
    return project, [path for path in paths if path not in projects]


def _repo_id(arguments: argparse.Namespace, project: Project) -> str:
    """The repository that the command or the manifest names."""
    repo_id: str | None = arguments.repo_id or project.manifest.general.hub.repo_id
    if not repo_id:
        raise UsageError(
            "there is no repository to publish to: build.toml has no [general.hub] repo-id",
            hint="add repo-id to build.toml, or give --repo-id owner/name",
        )
    return repo_id


def _card(project: Project, build: list[Path], repo_id: str, console: Console) -> None:
    from kernforge.artifact import directories  # noqa: PLC0415
    from kernforge.project import card as cards  # noqa: PLC0415

    card = cards.read(project)
    usual = project.root / "build"
    # Without a build the card has no variants; publishing fills it again.
    places = build or ([usual] if usual.is_dir() else [])
    built = [path.name for place in places for path in directories.variants(place)]
    text = card.fill(repo_id, built)
    console.result({"card": text, "template": cards.FILE if card.authored else None}, text)


def _preview(
    variants: tuple[str, ...],
    choice: VersionChoice | None,
    repo_id: str,
    branch: str | None,
    console: Console,
) -> None:
    from kernforge.registry.names import dotted  # noqa: PLC0415

    version = None
    if choice is not None:
        version, branch = dotted(choice.version), f"v{choice.version[0]}"
    document = {
        "repo_id": repo_id,
        "version": version,
        "branch": branch,
        "variants": list(variants),
    }
    lines = [f"would publish {repo_id} {version or branch}", *(f"  {name}" for name in variants)]
    console.result(
        {**document, **_choice_document(choice)}, "\n".join([*lines, *_choice_lines(choice)])
    )


def _choice_document(choice: VersionChoice | None) -> dict[str, object]:
    from kernforge.registry.names import dotted  # noqa: PLC0415

    if choice is None:
        return {}
    return {
        "since": dotted(choice.since) if choice.since else None,
        "changes": [_change_document(change) for change in choice.changes],
        "operators_not_recorded": list(choice.unrecorded),
    }


def _choice_lines(choice: VersionChoice | None) -> list[str]:
    from kernforge.registry.names import dotted  # noqa: PLC0415

    if choice is None or choice.since is None:
        return []
    head = f"since {dotted(choice.since)}:" + ("" if choice.changes else " no change of interface")
    return [head, *_change_lines(choice.changes), *_unrecorded_lines(choice.unrecorded)]


def _apidiff(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.publish import api_diff  # noqa: PLC0415

    store = options.registry(arguments)
    old, new = (_offers(text, store) for text in (arguments.old, arguments.new))
    changes = api_diff.compare(old, new)
    level, unrecorded = api_diff.level_of(changes), api_diff.unrecorded((*old, *new))
    document = {
        "level": str(level),
        "changes": [_change_document(change) for change in changes],
        "operators_not_recorded": list(unrecorded),
    }
    lines = [*_change_lines(changes), *_unrecorded_lines(unrecorded)]
    console.result(document, "\n".join([f"this is a {level} change", *lines]))


def _offers(text: str, store: Registry) -> tuple[Offer, ...]:
    """What the variants of a published version or of a directory offer."""
    from kernforge.publish import offers  # noqa: PLC0415
    from kernforge.registry import api as registry  # noqa: PLC0415
    from kernforge.registry.names import request  # noqa: PLC0415

    repo_id, separator, version = text.partition("@")
    if separator and not Path(text).exists():
        answer = registry.find(store, request(repo_id, version))
        return offers.published(store, repo_id, answer.commit)
    return offers.built(Path(text))


def _change_document(change: ApiChange) -> dict[str, object]:
    return {"level": str(change.level), "what": change.what, "variants": list(change.variants)}


def _change_lines(changes: tuple[ApiChange, ...]) -> list[str]:
    return [f"  {c.level}: {c.what} ({', '.join(c.variants)})" for c in changes]


def _unrecorded_lines(variants: tuple[str, ...]) -> list[str]:
    if not variants:
        return []
    return [f"  not compared: operators of {', '.join(variants)}, whose build did not record them"]


def _sign(build: list[Path], key: Path, environment: Environment) -> None:
    from kernforge.artifact import directories  # noqa: PLC0415
    from kernforge.trust import signing  # noqa: PLC0415

    opened = options.open_key(key, environment)
    signing.sign([path for place in build for path in directories.variants(place)], opened.sign)
