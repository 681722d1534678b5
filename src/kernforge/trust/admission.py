# SPDX-License-Identifier: Apache-2.0
"""Admit or refuse a kernel by its document alone, before the document is parsed.

Two policies hold, and both must allow a kernel:

- ``/etc/kernforge/trust.toml``: the site's. No variable and no argument moves it.
- the file in ``KERNFORGE_TRUST``, else ``trust.toml`` in the user's configuration.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from kernforge.artifact.metadata import Metadata
from kernforge.errors import NetworkError, RequestError, TrustError
from kernforge.system import files
from kernforge.system.digest import key, sha256
from kernforge.system.environment import Environment, expanded
from kernforge.trust import policy
from kernforge.trust.policy import Admit, Policy, Rule, Subject, matching_rules

SITE = Path("/etc/kernforge/trust.toml")
"""The site's policy."""

_NOT_ALLOWED = "the caller did not allow it"

Allowed: TypeAlias = bool | Collection[str]
"""Kernels of untrusted publishers that a caller allows: any, none, or these repo ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The rules and the signers by which a kernel was admitted.

    Attributes:
        rules: the rules that applied, by their file and number.
        signers: the signers that the rules demand; empty if they demand none. A kernel that was
            admitted for its signature must have a digest, or the signature proves nothing.
        document: hex SHA-256 of the kernel's ``metadata.json``.
    """

    rules: tuple[str, ...]
    signers: tuple[str, ...] = ()
    registry: str = ""
    document: str = ""


def user_policy(environment: Environment) -> Path:
    """The file of the user's policy, whether it exists or not."""
    chosen = environment.kernforge_trust
    return expanded(chosen) if chosen else environment.user_config / "trust.toml"


def read_policies(environment: Environment) -> tuple[Policy, ...]:
    """The policies that hold now, the site's first; read afresh, so that a change counts."""
    user = user_policy(environment)
    policies = (_read_policy(SITE), _read_policy(user))
    if policies[1] is None and environment.kernforge_trust:
        raise TrustError(
            f"KERNFORGE_TRUST names {user}, which does not exist",
            hint="fix the path, or unset KERNFORGE_TRUST",
        )
    return tuple(policy for policy in policies if policy is not None)


def _read_policy(path: Path) -> Policy | None:
    """The policy in a file; None if there is no such file. A dangling link is an error."""
    try:
        return _parsed(path.read_bytes(), os.fspath(path))
    except OSError as error:
        missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
        if missing and not path.is_symlink():
            return None
        raise TrustError(
            f"the trust policy {path} cannot be read: {error.strerror}",
            hint="fix or remove it; until then nothing is admitted",
        ) from error


_parsed = functools.lru_cache(maxsize=16)(policy.read)


def refuse_other_document(subject: Subject, metadata: Metadata) -> None:
    """Refuse a signed document of another kernel or of another version than the requested one."""
    wanted = (subject.repo_id or "").rpartition("/")[2]
    if wanted and _plain(wanted) != _plain(metadata.name):
        raise TrustError(
            f"{subject} holds the signed document of a kernel {metadata.name!r}",
            hint="the registry has another kernel under this name: possible substitution; inform "
            "its publisher",
        )
    if subject.major is not None and subject.major != metadata.version:
        raise TrustError(
            f"{subject} holds the signed document of version {metadata.version}, not of the "
            f"requested version {subject.major}",
            hint="the registry has another version under this name: possible rollback; inform its "
            "publisher",
        )


def _plain(name: str) -> str:
    return name.replace("_", "-").casefold()


def allows(trust_remote_code: Allowed, repo_id: str | None) -> bool:
    """Whether a caller allows a kernel."""
    if isinstance(trust_remote_code, bool):
        return trust_remote_code
    if isinstance(trust_remote_code, str) or not isinstance(trust_remote_code, Collection):
        raise RequestError(
            f"trust_remote_code is {trust_remote_code!r}",
            hint='pass True, or a list of repo ids such as ["owner/name"]',
        )
    return repo_id in trust_remote_code


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel at a door: every door admits by this class.

    Attributes:
        trust_remote_code: the caller's consent; it satisfies ``asked`` rules and no others.
    """

    subject: Subject
    environment: Environment
    trust_remote_code: Allowed = False

    def admit(
        self, document: bytes, signature: Callable[[], bytes | None], source: str = "metadata.json"
    ) -> tuple[Admission, Metadata]:
        """Admit a kernel and parse its document, or refuse it and name the rule.

        A signature names the maker of a document. An attacker who can write to a registry could
        substitute another kernel or an old version of the same signer: a signed document must have
        the requested name and major version.

        Args:
            signature: returns the bytes of its signature; called only if a rule demands one.
        """
        admission = self._decide(document, signature, "it is not signed")
        metadata = Metadata.from_json(document, source=source)
        if admission.signers:
            refuse_other_document(self.subject, metadata)
        return admission, metadata

    def admit_unsigned(self, what: str) -> Admission:
        """Admit or refuse something without a signature: a redirect, a build from source.

        The rules of the requested kernel count, and those of a redirect's destination later.
        """
        return self._decide(b"", lambda: None, f"{what} is not signed")

    def _decide(
        self, document: bytes, bundle: Callable[[], bytes | None], unsigned: str
    ) -> Admission:
        digest, signers = sha256(document), []
        rules = matching_rules(read_policies(self.environment), self.subject, digest)
        allowed = allows(self.trust_remote_code, self.subject.repo_id)
        for rule in rules:
            if rule.admit is Admit.NEVER:
                raise self._refusal(rule, "it is refused by name")
            if rule.admit is Admit.ASKED and not allowed:
                self._ask(rule)
        for rule in rules:
            if rule.admit is Admit.SIGNED:
                signed = bundle()
                if signed is None:
                    names = ", ".join(signer.name for signer in rule.signers)
                    raise self._refusal(rule, f"{unsigned}, and must be by one of: {names}")
                signers.append(self._signer(rule, document, signed))
        return Admission(
            rules=tuple(rule.where for rule in rules),
            signers=tuple(dict.fromkeys(signers)),
            registry=self.subject.registry,
            document=digest,
        )

    def _signer(self, rule: Rule, document: bytes, bundle: bytes) -> str:
        """The name of the signer, which must be one of the rule's."""
        from kernforge.trust import signature  # noqa: PLC0415 - slow, only for signed kernels

        try:
            return signature.verify(document, bundle, rule.signers).name
        except TrustError as error:
            raise self._refusal(rule, error.message) from error

    def _ask(self, rule: Rule) -> None:
        """Refuse a kernel without permission by the caller and without a trusted publisher."""
        owner = (self.subject.repo_id or "").partition("/")[0]
        if reason := self._distrust(owner) if owner and rule.publishers else _NOT_ALLOWED:
            raise self._refusal(rule, reason)

    def _distrust(self, owner: str) -> str:
        """The reason not to trust a publisher; empty if the hub does, or did when last reached."""
        registry = self.subject.registry
        mark = self.environment.home / "publishers"
        mark /= key("publisher", registry=registry, owner=owner)
        try:
            trusted = self.subject.is_trusted_publisher(owner)
        except NetworkError as error:
            if not mark.exists():
                return f"its hub is unavailable to confirm {owner!r}: {error.message}"
            import logging  # noqa: PLC0415 - slow, and rarely needed

            logging.getLogger("kernforge").warning(
                "%s is unavailable; it marked %s as a trusted publisher before", registry, owner
            )
            return ""
        if trusted is None:
            return _NOT_ALLOWED
        with contextlib.suppress(OSError):  # a read-only home remembers nothing
            files.touch(mark) if trusted else files.remove_tree(mark)
        where = registry.partition("://")[2]
        return "" if trusted else f"{owner!r} is not a trusted publisher on {where}"

    def _refusal(self, rule: Rule, reason: str) -> TrustError:
        """The error, with a rule that admits exactly this kernel."""
        comment = f" ({rule.reason})" if rule.reason else ""
        return TrustError(
            f"{self.subject}: {reason}; {rule.where} refuses it{comment}",
            hint=self._hint(rule),
        )

    def _hint(self, rule: Rule) -> str:
        repo_id = self.subject.repo_id
        if rule.where.startswith(f"{SITE}:"):
            return f"only the maintainer of {SITE} can admit it, by a rule before that one"
        if rule.documents:  # never the advice to load a build that was refused by its hash
            return "load another version"
        file = rule.where.rpartition(": ")[0]
        if rule.admit is Admit.SIGNED:  # never the advice to do without the signature
            return (
                "take a version with one of these signatures, ask its publisher to sign it "
                f"(kernforge sign), or add a signer to that rule in {file}"
            )
        repo = "" if repo_id is None else f'repo = "{repo_id}"\n'
        text = f'[[rule]]\n{repo}registry = "{self.subject.registry}"\nadmit = "always"'
        where = f"before that one in {file}" if file else f"in {user_policy(self.environment)}"
        added = f"this rule {where}:\n{text}"
        if rule.admit is Admit.ASKED and repo_id is not None:
            asked = f'pass trust_remote_code=["{repo_id}"] (a command: --trust-remote-code)'
            return f"{asked}, or write {added}"
        return f"to admit exactly this, write {added}"
