# SPDX-License-Identifier: Apache-2.0
"""Make the signed list of a kernel's releases, and put it into a registry.

Who signs the list vouches for each document in it, so a document counts only with a signature of a
signer whom this one accepts. What others put into the registry does not get into the list.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from kernforge.artifact.metadata import SIGNATURE
from kernforge.errors import IntegrityError, RegistryError, TrustError, UsageError
from kernforge.loader.search import signed_list
from kernforge.publish.api import destination_of
from kernforge.registry.names import dotted, versions
from kernforge.system.digest import sha256
from kernforge.trust import signature
from kernforge.trust.releases import (
    BRANCH,
    FILE,
    SIGNATURES,
    Releases,
    read_signatures,
    write_signatures,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernforge.publish.destination import Destination
    from kernforge.registry.api import Registry
    from kernforge.trust.policy import Signer
    from kernforge.trust.signing import Key

LONGEST_DAYS = 3650


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenList:
    """A list that was written.

    Attributes:
        left_out: builds that are published and are not in it, since no accepted signer signed them.
    """

    releases: Releases
    signatures: int
    left_out: tuple[str, ...]
    url: str


def write_releases(
    registry: Registry, repo_id: str, key: Key, *, accepted: Sequence[Signer] = (), days: float
) -> WrittenList:
    """Make the list of what is published now, sign it, and put it into the registry.

    Args:
        key: signs the list; builds that it signed are listed.
        accepted: whose builds are listed too.
        days: after how many the list is not fresh any more.

    Raises:
        UsageError: the number of days cannot be.
        RegistryError: nothing that an accepted signer signed is published.
    """
    if not 0 < days <= LONGEST_DAYS:
        raise UsageError(
            f"a list cannot be valid for {days:g} days", hint=f"give 1 to {LONGEST_DAYS}"
        )
    destination = destination_of(registry)
    documents, left_out = _documents(registry, repo_id, (key.signer, *accepted))
    if not documents:
        raise RegistryError(
            f"no release of {repo_id} in {registry.url} is signed by this key or an accepted one",
            hint="publish it with --sign, or accept its signer: --accept FILE.pub",
        )
    before = signed_list(registry, repo_id)
    number = 1 if before is None else Releases.from_json(before.document).number + 1
    now = datetime.now(UTC).replace(microsecond=0)
    releases = Releases(
        repo_id=repo_id,
        number=number,
        issued=now,
        expires=now + timedelta(days=days),
        documents=documents,
    )
    document = releases.to_json()
    bundles = key.sign([document])
    message = f"Releases of {repo_id}, list {number}"
    _write(destination, repo_id, document, bundles, message)
    return WrittenList(releases=releases, signatures=1, left_out=left_out, url=registry.url)


def add_signature(
    registry: Registry, repo_id: str, key: Key, *, accepted: Sequence[Signer] = ()
) -> WrittenList:
    """Sign the list that is published, if it says what this signer finds too.

    The arguments are those of ``write_releases``.

    Raises:
        RegistryError: there is no list.
        TrustError: it lists what no accepted signer signed, or it expired.
    """
    destination = destination_of(registry)
    listed = signed_list(registry, repo_id)
    if listed is None:
        raise RegistryError(
            f"{repo_id} in {registry.url} has no list of releases",
            hint="the first signer makes it, without --add",
        )
    releases = Releases.from_json(listed.document)
    own, left_out = _documents(registry, repo_id, (key.signer, *accepted))
    unknown = [
        f"{version} {name}"
        for version, variants in releases.documents.items()
        for name, digest in variants.items()
        if own.get(version, {}).get(name) != digest
    ]
    if unknown or releases.repo_id != repo_id:
        raise TrustError(
            f"the list of {releases.repo_id} has builds that no accepted signer signed: "
            f"{', '.join(unknown)}",
            hint="accept who signed them, if you trust that key: --accept FILE.pub",
        )
    if releases.expires <= datetime.now(UTC):
        raise TrustError(
            f"the list of {repo_id} expired at {releases.expires}",
            hint="make it again, without --add",
        )
    bundles = read_signatures(listed.signatures)
    kept = [bundle for bundle in bundles if not _is_by(listed.document, bundle, key.signer)]
    bundles = [*kept, *key.sign([listed.document])]
    message = f"One more signature of list {releases.number}"
    _write(destination, repo_id, listed.document, bundles, message)
    return WrittenList(
        releases=releases, signatures=len(bundles), left_out=left_out, url=registry.url
    )


def _write(
    destination: Destination, repo_id: str, document: bytes, bundles: list[bytes], message: str
) -> None:
    contents = {FILE: document, SIGNATURES: write_signatures(bundles)}
    with destination.writing(repo_id):
        destination.write_branch(repo_id, BRANCH, contents, message=message)


def _is_by(document: bytes, bundle: bytes, signer: Signer) -> bool:
    try:
        signature.verify(document, bundle, (signer,))
    except (TrustError, IntegrityError):
        return False
    return True


def _documents(
    registry: Registry, repo_id: str, accepted: Sequence[Signer]
) -> tuple[dict[str, dict[str, str]], tuple[str, ...]]:
    """Hash of each published document by version and variant, and those without an accepted signer."""
    found: dict[str, dict[str, str]] = {}
    left_out = []
    for version, tag in versions(registry.ref_names(repo_id)).items():
        commit = registry.ref(repo_id, tag)
        for name in registry.variants(repo_id, commit) if commit else ():
            document = registry.metadata(repo_id, commit or "", name)
            bundle = registry.companion(repo_id, commit or "", name, SIGNATURE)
            text = dotted(version)
            if bundle and any(_is_by(document, bundle, signer) for signer in accepted):
                found.setdefault(text, {})[name] = sha256(document)
            else:
                left_out.append(f"{text} {name}")
    return found, tuple(left_out)
