# SPDX-License-Identifier: Apache-2.0
"""Admit a kernel or refuse it, before its metadata is parsed.

Policies are read from, in this order,

- ``/etc/kernforge/trust.toml``: the site's. No variable and no argument moves it.
- the file that ``KERNFORGE_TRUST`` names, else ``trust.toml`` in the user's configuration.
- ``[tool.kernforge.trust]`` of the ``pyproject.toml`` in the current directory or above. It can only
  tighten, since the author of the current directory may not be the user of the process. One above
  that is another user's is ignored.
"""

from __future__ import annotations

import contextlib
import functools
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.errors import IntegrityError, NetworkError, TrustError
from kernforge.system import files
from kernforge.system.digest import key, sha256
from kernforge.system.environment import expanded
from kernforge.trust import policy
from kernforge.trust.policy import (
    PROJECT,
    Admit,
    Demand,
    Policy,
    Revoked,
    Rule,
    Signer,
    Subject,
    distinct,
    matching_rules,
)
from kernforge.trust.releases import ANYTHING, Asked, Releases, SignedList, read_signatures

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernforge.system.environment import Environment

SITE = Path("/etc/kernforge/trust.toml")
"""The site's policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Why a kernel was admitted.

    Attributes:
        rules: the rules that applied, by their file and number.
        signers: who signed, of those that the rules demand; empty when none is demanded. A kernel
            that was admitted for its signature must have a digest, or the signature proves nothing.
        registry: URL of the registry, or of the directory.
        document: hex SHA-256 of the kernel's ``metadata.json``.
        release: its full version by the signed list of releases; None where no rule demands that.
    """

    rules: tuple[str, ...]
    signers: tuple[str, ...] = ()
    registry: str = ""
    document: str = ""
    release: str | None = None


def user_policy(environment: Environment) -> Path:
    """The file of the user's policy, whether it exists or not."""
    chosen = environment.kernforge_trust
    if chosen:
        return expanded(chosen)
    return environment.user_config / "trust.toml"


def read_policies(environment: Environment) -> tuple[Policy, ...]:
    """The policies that hold for this process, the site's first; read afresh, so a change counts.

    Raises:
        TrustError: one cannot be read or has a mistake, or ``KERNFORGE_TRUST`` names a file
            without a policy.
    """
    user = user_policy(environment)
    policies = [_read_policy(SITE), _read_policy(user)]
    if policies[1] is None and environment.kernforge_trust:
        raise TrustError(
            f"KERNFORGE_TRUST names {user}, which holds no policy",
            hint="fix the file, or unset KERNFORGE_TRUST",
        )
    project = _project()
    if project is not None and project != user:
        policies.append(_read_policy(project, only_tightens=True))
    return tuple(policy for policy in policies if policy is not None)


def _project() -> Path | None:
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the directory was removed
        return None
    for directory in (here, *here.parents):
        path = directory / PROJECT
        if path.is_file() and (directory == here or _is_own(path)):
            return path
    return None


def _is_own(path: Path) -> bool:
    """Whether a file, and what it links to, is this user's or root's; git asks the same.

    Whoever can write to a directory above, such as ``/tmp``, says nothing for those who work below.
    """
    if {path.lstat().st_uid, path.stat().st_uid} <= {0, os.geteuid()}:
        return True
    _note_ignored(path)
    return False


@functools.cache
def _note_ignored(path: Path) -> None:
    import logging  # noqa: PLC0415 - slow, and rarely needed

    logging.getLogger("kernforge").warning(
        "the trust policy in %s is ignored: it lies above this directory and is another user's",
        path,
    )


def _read_policy(path: Path, *, only_tightens: bool = False) -> Policy | None:
    """The policy of a file; None where there is none."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        if not path.is_symlink():
            return None
        raise TrustError(
            f"the trust policy {path} is a link to a file that does not exist",
            hint="fix or remove it; until then nothing is admitted",
        ) from error
    except OSError as error:
        raise TrustError(
            f"the trust policy {path} cannot be read: {error.strerror}",
            hint="make it readable; until then nothing is admitted",
        ) from error
    if path.name == PROJECT and not (b"kernforge" in data and b"trust" in data):
        return None
    return _parsed(data, os.fspath(path), only_tightens=only_tightens)


_parsed = functools.lru_cache(maxsize=16)(policy.read)


def admit(
    subject: Subject,
    document: bytes,
    *,
    signature: Callable[[], bytes | None],
    vouches: Callable[[str], bool | None],
    environment: Environment,
    trust_remote_code: bool | list[str] = False,
    releases: Callable[[], SignedList | None] = lambda: None,
    asked: Asked = ANYTHING,
) -> Admission:
    """Admit a kernel, or refuse it with the rule that did and what would allow exactly this.

    Args:
        document: the bytes of its ``metadata.json``; they are not parsed.
        signature: gives the bytes of its signature; called only where a rule demands one.
        vouches: says whether the registry vouches for an owner, and None where it never does;
            called only where a rule leaves the decision to the hub.
        environment: where policies lie, and where the answers of hubs are kept.
        trust_remote_code: what the caller allows: True for any kernel, or a list of repo ids. It
            satisfies ``asked`` rules and no others.
        releases: gives the signed list of the kernel's releases; called only where a rule demands
            one.
        asked: the version that was asked for, which that list is compared with.

    Raises:
        TrustError: it is refused, or a policy cannot be read.
        IntegrityError: its signature is not of these bytes.
        UsageError: the package that verifies signatures is not installed.
    """
    policies = read_policies(environment)
    rules = matching_rules(policies, subject)
    request = _Request(subject, environment, revoked_by(policies))
    digest = sha256(document)
    for entry in request.revoked:
        if entry.document == digest:
            raise TrustError(f"{subject}: {entry}", hint="load another version")
    for rule in rules:
        if rule.admit is Admit.NEVER:
            raise request.refusal(rule, "it is refused by name")
        if rule.admit is Admit.ASKED:
            request.ask(rule, vouches, allowed=trust_remote_code)
    signed = [rule for rule in rules if rule.admit is Admit.SIGNED]
    signers = [request.check_signature(rule, document, signature()) for rule in signed]
    release = None
    for rule in signed:
        if rule.releases is not Demand.NOTHING:
            release, more = request.check_releases(rule, digest, releases(), asked)
            signers += more
    return Admission(
        rules=tuple(rule.where for rule in rules),
        signers=tuple(dict.fromkeys(signers)),
        registry=subject.registry,
        document=digest,
        release=release,
    )


def revoked_by(policies: tuple[Policy, ...]) -> tuple[Revoked, ...]:
    """What any of the policies revokes: it counts for the rules of all."""
    return tuple(entry for policy in policies for entry in policy.revoked)


def admit_redirect(
    subject: Subject,
    destination: str,
    *,
    vouches: Callable[[str], bool | None],
    environment: Environment,
    trust_remote_code: bool | list[str] = False,
) -> None:
    """Admit that a kernel stands for another one, or refuse it: nothing signs a redirect.

    The rules of the name that was asked for count, as they do for a kernel of that name; where the
    redirect leads, the rules of that name count too.

    Args:
        vouches: as ``admit`` takes it, and so the rest.

    Raises:
        TrustError: a rule refuses the name, demands a signature of it, or cannot be read.
    """
    request = _Request(subject, environment, ())
    for rule in matching_rules(read_policies(environment), subject):
        if rule.admit is Admit.NEVER:
            raise request.refusal(rule, "it is refused by name")
        if rule.admit is Admit.SIGNED:
            raise TrustError(
                f"{subject} says that it moved to {destination}; {rule.where} demands a signature, "
                "and a redirect has none",
                hint=f"see that this is right, and name {destination} itself",
            )
        if rule.admit is Admit.ASKED:
            request.ask(rule, vouches, allowed=trust_remote_code)


def refuse_other_document(subject: Subject, name: str, version: int, asked: int | None) -> None:
    """Refuse a signed document that is of another kernel or version than was asked for.

    A signature says who made a document. Whoever can write to a registry could put one kernel of
    the same signer in the place of another, or an old version in the place of a new one.

    Args:
        name: of the kernel, as its document has it.
        version: the major version, as its document has it.
        asked: the major version that was asked for; None for any.
    """
    wanted = (subject.repo_id or "").rpartition("/")[2]
    if wanted and _plain(wanted) != _plain(name):
        raise TrustError(
            f"{subject} holds the signed document of a kernel {name!r}",
            hint="the registry has another kernel under this name; inform its publisher, and load "
            "nothing from there",
        )
    if asked is not None and asked != version:
        raise TrustError(
            f"{subject} holds the signed document of version {version}; version {asked} was asked for",
            hint="the registry has another version under this name; inform its publisher",
        )


def _plain(name: str) -> str:
    return name.replace("_", "-").casefold()


@dataclass(frozen=True, slots=True)
class _Request:
    """One kernel that is to be admitted."""

    subject: Subject
    environment: Environment
    revoked: tuple[Revoked, ...]

    def check_signature(self, rule: Rule, document: bytes, bundle: bytes | None) -> str:
        """Name of the signer, one of the rule's; raises where none of them signed."""
        names = ", ".join(signer.name for signer in rule.signers)
        if bundle is None:
            raise self.refusal(rule, f"it is not signed, and must be by one of: {names}")
        from kernforge.trust import signature  # noqa: PLC0415 - only who must verify pays for it

        try:
            return signature.verify(document, bundle, rule.signers, self.revoked).name
        except signature.RevokedError as error:  # no rule is offered that would admit it
            raise TrustError(f"{self.subject}: {error.message}", hint=error.hint) from error
        except TrustError as error:
            raise self.refusal(rule, error.message) from error

    def check_releases(
        self, rule: Rule, document: str, listed: SignedList | None, asked: Asked
    ) -> tuple[str, list[str]]:
        """The release that a document belongs to, and who signed the list that says so."""
        if listed is None:
            raise self.refusal(rule, "it has no signed list of releases")
        signers = self._signers_of(rule, listed)
        if distinct(signers) < rule.threshold:
            names = ", ".join(signer.name for signer in signers) or "none"
            raise self.refusal(
                rule,
                f"its list of releases must be signed by {rule.threshold} of "
                f"{', '.join(s.name for s in rule.signers)}; signed have: {names}",
            )
        releases = Releases.from_json(listed.document)
        if releases.repo_id.casefold() != (self.subject.repo_id or "").casefold():
            raise self.refusal(rule, f"its list of releases is that of {releases.repo_id}")
        seen = self._refuse_older(rule, releases, listed.document)
        fresh = rule.releases is Demand.FRESH
        if fresh and releases.expires <= datetime.now(UTC):
            raise self.refusal(
                rule,
                f"its list of releases expired at {releases.expires:%Y-%m-%d %H:%M} UTC: there may "
                "be a newer one that the registry does not show",
            )
        release = self._release(rule, releases, document, asked)
        with contextlib.suppress(OSError):  # a home that cannot be written remembers nothing
            files.make_dir(seen.parent)
            files.write_atomic(seen, listed.document)
        return release, [signer.name for signer in signers]

    def _release(self, rule: Rule, releases: Releases, document: str, asked: Asked) -> str:
        """The release of a document, if it is one that was asked for."""
        versions, allowed = releases.versions_of(document), releases.allowed(asked.specifier)
        if not versions:
            raise self.refusal(rule, "its list of releases does not have this build")
        fitting = [version for version in versions if version in allowed]
        if not fitting:
            raise self.refusal(
                rule, f"it is release {', '.join(versions)}; {asked.specifier} was asked for"
            )
        if rule.releases is Demand.FRESH and asked.newest and fitting[-1] != allowed[-1]:
            raise self.refusal(
                rule,
                f"it is release {fitting[-1]}, and {allowed[-1]} is the newest: the registry "
                "gives an old one",
            )
        return fitting[-1]

    def _signers_of(self, rule: Rule, listed: SignedList) -> list[Signer]:
        """Those of a rule's signers who signed a list."""
        from kernforge.trust import signature  # noqa: PLC0415 - only who must verify pays for it

        found = []
        for bundle in read_signatures(listed.signatures):
            with contextlib.suppress(TrustError, IntegrityError):  # another's does no harm
                found.append(signature.verify(listed.document, bundle, rule.signers, self.revoked))
        return list(dict.fromkeys(found))

    def _refuse_older(self, rule: Rule, releases: Releases, document: bytes) -> Path:
        """Refuse a list that is older than one that this user saw; returns where that is kept."""
        name = key(
            "releases", registry=self.subject.registry, repo=(self.subject.repo_id or "").casefold()
        )
        path = self.environment.records / "releases" / f"{name}.json"
        try:
            known = path.read_bytes()
        except OSError:
            return path
        try:
            before = Releases.from_json(known).number
        except IntegrityError:  # it was cut: the next one takes its place
            return path
        if releases.number < before:
            raise self.refusal(
                rule,
                f"its list of releases has number {releases.number}, and this machine saw "
                f"{before} before: the registry gives an old one",
            )
        if releases.number == before and document != known:
            raise self.refusal(
                rule, f"there are two lists of releases with the number {before}; see {path}"
            )
        return path

    def ask(
        self,
        rule: Rule,
        vouches: Callable[[str], bool | None],
        *,
        allowed: bool | list[str],
    ) -> None:
        """Refuse a kernel that neither the caller allows nor the hub vouches for."""
        repo_id = self.subject.repo_id
        if allowed is True or (isinstance(allowed, list) and repo_id in allowed):
            return
        reason = "the caller did not allow it"
        if repo_id is not None and rule.publishers:
            owner = repo_id.partition("/")[0]
            try:
                vouched = vouches(owner)
            except NetworkError as error:
                if self._vouched_before(owner):
                    return
                reason = f"its hub cannot be asked about {owner!r}: {error.message}"
                raise self.refusal(rule, reason) from error
            self._remember(owner, vouched=vouched)
            if vouched:
                return
            if vouched is not None:
                reason = (
                    f"it is not from a trusted publisher: its hub does not name {owner!r} as one"
                )
        raise self.refusal(rule, reason)

    def _mark(self, owner: str) -> Path:
        name = key("publisher", registry=self.subject.registry, owner=owner)
        return self.environment.home / "publishers" / name

    def _remember(self, owner: str, *, vouched: bool | None) -> None:
        """Keep a hub's answer, for when it cannot be asked."""
        with contextlib.suppress(OSError):  # a home that cannot be written remembers nothing
            if vouched:
                files.touch(self._mark(owner))
            elif vouched is not None:
                files.remove_tree(self._mark(owner))

    def _vouched_before(self, owner: str) -> bool:
        if not self._mark(owner).exists():
            return False
        import logging  # noqa: PLC0415 - slow, and rarely needed

        logging.getLogger("kernforge").warning(
            "%s cannot be asked now; it named %s as a trusted publisher before",
            self.subject.registry,
            owner,
        )
        return True

    def refusal(self, rule: Rule, reason: str) -> TrustError:
        """The error, with the rule that would admit exactly this kernel."""
        comment = f" ({rule.reason})" if rule.reason else ""
        return TrustError(
            f"{self.subject}: {reason}; {rule.where} refuses it{comment}",
            hint=self._hint(rule),
        )

    def _hint(self, rule: Rule) -> str:
        repo_id = self.subject.repo_id
        if rule.where.startswith(f"{SITE}:"):
            return f"only who maintains {SITE} can admit it, by a rule before that one"
        repo = "" if repo_id is None else f'repo = "{repo_id}"\n'
        text = f'[[rule]]\n{repo}registry = "{self.subject.registry}"\nadmit = "always"'
        file = rule.where.rpartition(": ")[0]
        where = f"before that one in {file}" if file else f"in {user_policy(self.environment)}"
        added = f"this rule {where}:\n{text}"
        if rule.admit is Admit.ASKED and repo_id is not None:
            asked = f'pass trust_remote_code=["{repo_id}"] (a command: --trust-remote-code)'
            return f"{asked}, or write {added}"
        return f"to admit exactly this, write {added}"
