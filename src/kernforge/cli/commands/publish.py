# SPDX-License-Identifier: Apache-2.0
"""Commands that publish built variants and compare versions: publish, card, apidiff."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.cli import options
from kernforge.cli.commands import policy
from kernforge.errors import UsageError

if TYPE_CHECKING:
    from kernforge.project.api import Project
    from kernforge.publish.api_diff import ApiChange, Offer
    from kernforge.publish.branch import BranchChange
    from kernforge.publish.version import VersionChoice
    from kernforge.registry.api import Registry
    from kernforge.system.console import Console
    from kernforge.system.environment import Environment


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(verbs, _publish, "publish")
    options.add_project(verb)
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
    options.add_build_dir(verb)
    verb.add_argument(
        "--sign",
        type=Path,
        metavar="KEY",
        help="sign each variant with this key of kernforge keygen",
    )
    verb.add_argument(
        "--valid-for",
        type=float,
        metavar="DAYS",
        help="sign the list of releases too, with the key of --sign; it is fresh for so long",
    )
    options.add_flag(verb, "--private", "make a new kernel on a hub private")
    options.add_flag(verb, "--create-pr", "open a pull request on a hub instead")
    options.add_flag(
        verb,
        "--part",
        "other machines publish the rest of this version: a missing variant does not count "
        "as a change",
    )
    options.add_flag(verb, "--dry-run", "print the version and the changes; publish nothing")

    verb = options.add_verb(verbs, _card, "card")
    options.add_project(verb)
    verb.add_argument("--repo-id", help="owner/name (default: [general.hub] repo-id)")
    options.add_build_dir(verb)
    verb.add_argument("-o", "--out", type=Path, help="file to write the card to")

    verb = options.add_verb(verbs, _apidiff, "apidiff")
    verb.add_argument("old", help="OWNER/NAME@VERSION, or a directory of variants")
    verb.add_argument("new", help="OWNER/NAME@VERSION, or a directory of variants")
    options.add_registry(verb)


def _publish(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.loader import api as loader  # noqa: PLC0415
    from kernforge.loader.search import signed_list  # noqa: PLC0415
    from kernforge.project import api as projects  # noqa: PLC0415
    from kernforge.project import card as cards  # noqa: PLC0415
    from kernforge.publish import api as publish  # noqa: PLC0415
    from kernforge.publish import destination, releases, source_pack  # noqa: PLC0415
    from kernforge.registry import api as registry  # noqa: PLC0415

    if arguments.valid_for and not arguments.sign:
        raise UsageError(
            "--valid-for signs the list of releases, and no key was given", hint="add --sign KEY"
        )
    project = projects.read_project(arguments.project)
    repo_id = _repo_id(arguments, project)
    branch = arguments.branch or project.manifest.general.hub.branch
    versioned = branch in {None, f"v{project.manifest.general.version}"}
    if arguments.valid_for and not versioned:
        raise UsageError(
            f"the list of releases has versions, and the branch {branch!r} has none",
            hint="leave --valid-for out, or publish a version: "
            f"--branch v{project.manifest.general.version}",
        )
    build = arguments.build_dir or project.root / "build"
    environment: Environment = arguments.environment
    named = arguments.registry or environment.kernforge_registry
    if not named:
        named = str(destination.own_registry(environment, console.note))
        console.note(
            f"your own registry is {named}; --registry or KERNFORGE_REGISTRY names another"
        )
    loader.tell(environment)
    store = registry.open_registry(named, environment)
    version = arguments.version or (projects.tagged_version(project) if versioned else None)
    if arguments.dry_run:
        choice = publish.preview(build, store, repo_id, version, branch=branch, part=arguments.part)
        _preview(choice, repo_id, branch, console)
        return
    card = cards.read(project)
    card.fill(repo_id)  # a mistake in it is said before anything is signed or written
    if arguments.sign:
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
        card=functools.partial(card.fill, repo_id),
        part=arguments.part,
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
    listed = None
    if arguments.valid_for and not result.pull_requests:
        key = options.open_key(arguments.sign, environment)
        listed = releases.write_releases(store, repo_id, key, days=arguments.valid_for)
        document["list"] = policy.list_document(listed)
    elif versioned and result.changed and signed_list(store, repo_id) is not None:
        console.note(
            "the signed list of releases does not have what was published now: sign it again, with "
            f"--valid-for or `kernforge trust releases {repo_id}`"
        )
    status = {"uploaded": "published", "no_changes": "already there, unchanged:"}.get(
        result.status, "proposed, not published yet:"
    )
    lines = [
        f"{status} {repo_id} {result.version or result.branch} at {result.url}",
        *(f"  {v}" for v in result.variants),
    ]
    lines += [f"pull request onto {branch}: {url}" for branch, url in result.pull_requests]
    lines += _choice_lines(result.choice)
    if listed is not None:
        lines.append(policy.list_text(listed))
    console.result(document, "\n".join(lines))


def _repo_id(arguments: argparse.Namespace, project: Project) -> str:
    """The repository that the command or the manifest names."""
    repo_id: str | None = arguments.repo_id or project.manifest.general.hub.repo_id
    if not repo_id:
        raise UsageError(
            "there is no repository to publish to: build.toml has no [general.hub] repo-id",
            hint="add repo-id to build.toml, or give --repo-id owner/name",
        )
    return repo_id


def _card(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.artifact import directories  # noqa: PLC0415
    from kernforge.project import api as projects  # noqa: PLC0415
    from kernforge.project import card as cards  # noqa: PLC0415
    from kernforge.system import files  # noqa: PLC0415

    project = projects.read_project(arguments.project)
    card = cards.read(project)
    build = arguments.build_dir or project.root / "build"
    # Without a build the card has no variants; publishing fills it again.
    built = directories.variants(build) if arguments.build_dir or build.is_dir() else ()
    text = card.fill(_repo_id(arguments, project), [path.name for path in built])
    document = {"card": text, "template": cards.FILE if card.authored else None}
    if arguments.out is not None:
        options.can_write(arguments.out)
        files.write_atomic(arguments.out, text)
    console.result(document, text if arguments.out is None else f"wrote {arguments.out}")


def _preview(
    choice: VersionChoice | BranchChange, repo_id: str, branch: str | None, console: Console
) -> None:
    from kernforge.publish.version import VersionChoice  # noqa: PLC0415
    from kernforge.registry.names import dotted  # noqa: PLC0415

    version, variants = None, sorted(choice.contents)
    if isinstance(choice, VersionChoice):
        version, branch = dotted(choice.version), f"v{choice.version[0]}"
    document = {"repo_id": repo_id, "version": version, "branch": branch, "variants": variants}
    lines = [f"would publish {repo_id} {version or branch}", *(f"  {name}" for name in variants)]
    console.result(
        {**document, **_choice_document(choice)}, "\n".join([*lines, *_choice_lines(choice)])
    )


def _choice_document(choice: VersionChoice | BranchChange) -> dict[str, object]:
    from kernforge.publish.version import VersionChoice  # noqa: PLC0415
    from kernforge.registry.names import dotted  # noqa: PLC0415

    if not isinstance(choice, VersionChoice):
        lists = {"added": choice.added, "replaced": choice.replaced, "kept": choice.kept}
        return {name: list(variants) for name, variants in lists.items()}
    return {
        "since": dotted(choice.since) if choice.since else None,
        "changes": [_change_document(change) for change in choice.changes],
        "operators_not_recorded": list(choice.unrecorded),
    }


def _choice_lines(choice: VersionChoice | BranchChange) -> list[str]:
    from kernforge.publish.version import VersionChoice  # noqa: PLC0415
    from kernforge.registry.names import dotted  # noqa: PLC0415

    if not isinstance(choice, VersionChoice):
        lists = {"added": choice.added, "replaced": choice.replaced, "kept": choice.kept}
        return [f"{name}: {', '.join(variants)}" for name, variants in lists.items() if variants]
    if choice.since is None:
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
    from kernforge.loader import search  # noqa: PLC0415
    from kernforge.publish import offers  # noqa: PLC0415

    repo_id, separator, version = text.partition("@")
    if separator and not Path(text).exists():
        commit = search.find_commit(store, repo_id, version, None)
        return offers.published(store, repo_id, commit)
    return offers.built(Path(text))


def _change_document(change: ApiChange) -> dict[str, object]:
    return {"level": str(change.level), "what": change.what, "variants": list(change.variants)}


def _change_lines(changes: tuple[ApiChange, ...]) -> list[str]:
    return [f"  {c.level}: {c.what} ({', '.join(c.variants)})" for c in changes]


def _unrecorded_lines(variants: tuple[str, ...]) -> list[str]:
    if not variants:
        return []
    return [f"  not compared: operators of {', '.join(variants)}, whose build did not record them"]


def _sign(build: Path, key: Path, environment: Environment) -> None:
    from kernforge.artifact import directories  # noqa: PLC0415
    from kernforge.trust import signing  # noqa: PLC0415

    signing.sign(directories.variants(build), options.open_key(key, environment).sign)
