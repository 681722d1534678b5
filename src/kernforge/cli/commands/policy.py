# SPDX-License-Identifier: Apache-2.0
"""Commands of who decides what may be loaded: trust revoke, trust releases, audit-log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.cli import options
from kernforge.errors import UsageError
from kernforge.system import tables

if TYPE_CHECKING:
    import argparse

    from kernforge.publish.releases import WrittenList
    from kernforge.system.console import Console

_DAYS = 30


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    trust = options.add_verb(verbs, _no_action, "trust")
    actions = trust.add_subparsers(metavar="ACTION", title="actions")

    revoke = options.add_action(
        actions,
        _revoke,
        ("trust revoke", "how-to/platform/revoke-and-rotate-keys"),
        "let a key, an identity or one build count no more, by an entry in a trust policy",
        "--key old.key.pub --reason 'the laptop is lost'",
    )
    what = revoke.add_mutually_exclusive_group(required=True)
    what.add_argument("--key", metavar="FILE-or-TEXT", help="a public key of kernforge keygen")
    what.add_argument("--identity", help="a Sigstore identity, with * for a part of it")
    what.add_argument(
        "--document", metavar="SHA256", help="one build: the hash of its metadata.json"
    )
    revoke.add_argument("--reason", default="", help="text of the refusal")
    revoke.add_argument(
        "--policy", type=Path, metavar="FILE", help="the policy to change (default: the user's)"
    )

    releases = options.add_action(
        actions,
        _releases,
        ("trust releases", "how-to/release/sign-the-list-of-releases"),
        "sign the list of a kernel's releases, which policies with `releases` demand",
        "acme/toy --key acme.key --registry /srv/kernels --valid-for 30",
    )
    releases.add_argument("repo_id", metavar="REPO", help="owner/name")
    options.add_registry(releases)
    releases.add_argument(
        "--key", type=Path, required=True, metavar="FILE", help="private key of kernforge keygen"
    )
    options.add_repeated(
        releases,
        "--accept",
        "public key whose builds are listed too (default: those of --key)",
        type=Path,
        metavar="FILE",
    )
    releases.add_argument(
        "--valid-for",
        type=float,
        default=_DAYS,
        metavar="DAYS",
        help=f"the list is fresh for so long (default: {_DAYS})",
    )
    options.add_flag(releases, "--add", "add a signature to the list that is published")

    log = options.add_verb(verbs, _audit_log, "audit-log")
    log.add_argument("text", nargs="?", default="", help="only kernels with this text in the name")
    log.add_argument("--last", type=int, metavar="N", help="only the last N")


def _no_action(arguments: argparse.Namespace, console: Console) -> None:  # noqa: ARG001 - as all
    raise UsageError(
        "no action was given",
        hint="`kernforge trust revoke --help`, `kernforge trust releases --help`",
    )


def _revoke(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.trust import admission, revocation  # noqa: PLC0415

    key = arguments.key
    if key and Path(key).is_file():
        key = options.text_of(Path(key))
    policy = arguments.policy or admission.user_policy(arguments.environment)
    changed = revocation.revoke(
        policy,
        key=key,
        identity=arguments.identity,
        document=arguments.document,
        reason=arguments.reason,
    )
    console.result(
        {"policy": str(policy), "changed": changed},
        f"{policy} {'revokes it now' if changed else 'revokes it already'}",
    )


def _releases(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.publish import releases  # noqa: PLC0415

    accepted = options.key_signers(arguments.accept)
    registry = options.registry(arguments)
    key = options.open_key(arguments.key, arguments.environment)
    if arguments.add:
        listed = releases.add_signature(registry, arguments.repo_id, key, accepted=accepted)
    else:
        listed = releases.write_releases(
            registry, arguments.repo_id, key, accepted=accepted, days=arguments.valid_for
        )
    console.result(list_document(listed), list_text(listed))


def list_document(listed: WrittenList) -> dict[str, Any]:
    """What a program reads of a list that was written."""
    return {
        "repo_id": listed.releases.repo_id,
        "number": listed.releases.number,
        "expires": listed.releases.expires.isoformat(),
        "releases": list(listed.releases.documents),
        "signatures": listed.signatures,
        "left_out": list(listed.left_out),
        "registry": listed.url,
    }


def list_text(listed: WrittenList) -> str:
    """What a person reads of a list that was written."""
    releases = listed.releases
    fresh = f"fresh until {releases.expires:%Y-%m-%d %H:%M} UTC"
    text = f"list {releases.number} of {releases.repo_id} in {listed.url}: "
    text += f"{', '.join(releases.documents)}; "
    text += f"{tables.counted(listed.signatures, 'signature')}, {fresh}"
    lines = [text, *(f"  not listed, no accepted signer: {name}" for name in listed.left_out)]
    return "\n".join(lines)


def _audit_log(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.loader import audit_log  # noqa: PLC0415

    environment = arguments.environment
    entries = [e for e in audit_log.read(environment) if arguments.text in str(e.get("kernel", ""))]
    if arguments.last is not None:
        entries = entries[-arguments.last :] if arguments.last > 0 else []
    rows = [
        (
            str(entry.get("time", ""))[:19].replace("T", " "),
            entry.get("kernel", ""),
            entry.get("version", ""),
            ", ".join(entry.get("signers") or ()) or "-",
            entry.get("registry", ""),
        )
        for entry in entries
    ]
    head = ("time (UTC)", "kernel", "version", "signed by", "registry")
    console.result(
        entries,
        tables.table(rows, head=head)
        if rows
        else f"nothing was loaded: {audit_log.log_file(environment)} has no entry",
    )
