# SPDX-License-Identifier: Apache-2.0
"""Trust policies: their rules, the match of a rule with a kernel, and the reader of their files.

Of each file the first rule that matches a kernel applies. A kernel must satisfy the site's policy
and the user's: no file loosens the other. When no rule matches, ``BUILT_IN`` applies.
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from kernforge.errors import TrustError
from kernforge.system import untrusted
from kernforge.system.tables import page

if TYPE_CHECKING:
    from kernforge.registry.api import Answer

_URL = re.compile(r"[a-z][a-z0-9+.-]*:[^\s,]+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
SHA256 = re.compile(r"[0-9a-f]{64}")
# SubjectPublicKeyInfo of an Ed25519 key (RFC 8410) up to the 32 bytes of the key itself.
ED25519_DER = bytes.fromhex("302a300506032b6570032100")
_RAW_KEY_BYTES = 32


class Admit(StrEnum):
    """The demand of a rule: nothing, consent of the caller or the hub, a signature; or refusal."""

    ALWAYS = "always"
    ASKED = "asked"
    SIGNED = "signed"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySigner:
    """The owner of an Ed25519 key; ``key`` is the raw public key, 32 bytes."""

    name: str
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentitySigner:
    """An owner of Sigstore identities.

    Attributes:
        issuer: the OpenID Connect issuer, exactly.
        identities: patterns for the certificate's identity, one of which must match.
        source_repository: the source repository that the certificate must name; None for any.
    """

    name: str
    issuer: str
    identities: tuple[str, ...]
    source_repository: str | None = None


Signer: TypeAlias = KeySigner | IdentitySigner


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The claims of a Sigstore certificate about its owner."""

    issuer: str
    identities: tuple[str, ...]
    source_repository: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of a policy.

    Attributes:
        repos: patterns for repo ids; a directory that the user named has none, so that only ``*``
            matches it.
        registries: patterns for the registry's URL, or that of the directory.
        documents: hex SHA-256 of each ``metadata.json`` that it is about; empty for all.
        signers: one of these must have signed, when ``admit`` is ``signed``.
        publishers: whether kernels of owners that the registry trusts are allowed, when
            ``admit`` is ``asked``.
    """

    admit: Admit
    repos: tuple[str, ...] = ("*",)
    registries: tuple[str, ...] = ("*",)
    documents: tuple[str, ...] = ()
    signers: tuple[Signer, ...] = ()
    publishers: bool = False
    reason: str = ""
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules of one file."""

    source: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The kernel that a policy decides about.

    Attributes:
        repo_id: ``owner/name``; None for a directory.
        major: the requested major version; None for any.
        is_trusted_publisher: whether the registry marks an owner as one; None if it has no such
            mark. Called only for rules with ``publishers``.
    """

    repo_id: str | None
    registry: str
    major: int | None = None
    is_trusted_publisher: Callable[[str], bool | None] = field(
        default=lambda _owner: None, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        # Of several, the rules for the first would apply to the others.
        if not _URL.fullmatch(self.registry):
            raise TrustError(
                f"{self.registry!r} is not the URL of one registry, so no rule can match it",
                hint="name one registry",
            )

    @classmethod
    def of(cls, kernel: Answer | Path) -> Self:
        """A commit of a registry with its request, or a directory."""
        if isinstance(kernel, Path):
            return cls(repo_id=None, registry=kernel.resolve().as_uri())
        return cls(
            repo_id=kernel.repo_id,
            registry=kernel.registry.url,
            major=kernel.major,
            is_trusted_publisher=kernel.registry.is_trusted_publisher,
        )

    def __str__(self) -> str:
        return self.registry if self.repo_id is None else f"{self.repo_id} from {self.registry}"


GITHUB = "https://token.actions.githubusercontent.com"
_COMMUNITY = "https://github.com/huggingface/kernels-community"
COMMUNITY = IdentitySigner(
    name="kernels-community",
    issuer=GITHUB,
    identities=tuple(
        f"{_COMMUNITY}/.github/workflows/{workflow}.yaml@refs/heads/main"
        for workflow in ("build", "build-mac", "build-windows", "sign-old-builds")
    ),
    source_repository=_COMMUNITY,
)
"""The hub's community kernels, with the workflows of ``kernels`` 0.17, for every policy to use."""

BUILT_IN = Policy(
    source="the built-in policy",
    rules=(
        Rule(
            admit=Admit.ALWAYS,
            registries=("file://**",),
            reason="the file system decides who may write to a directory",
            where="the built-in rule for directories",
        ),
        Rule(
            admit=Admit.ASKED,
            publishers=True,
            where="the built-in rule for remote registries",
        ),
    ),
)


def matching_rules(policies: Iterable[Policy], subject: Subject, document: str) -> tuple[Rule, ...]:
    """The rules that a kernel must satisfy, all of them.

    Args:
        document: hex SHA-256 of the kernel's ``metadata.json``.
    """

    def first(policy: Policy) -> Rule | None:
        return next((rule for rule in policy.rules if _applies(rule, subject, document)), None)

    return tuple(filter(None, map(first, policies))) or tuple(filter(None, [first(BUILT_IN)]))


def _applies(rule: Rule, subject: Subject, document: str) -> bool:
    if rule.documents and document not in rule.documents:
        return False
    # Hubs ignore the case of a repo id: writing ACME/toy must not avoid a rule that demands
    # something, and must not match one that demands nothing.
    ignore_case = rule.admit is not Admit.ALWAYS
    if subject.repo_id is None:
        repo_matches = "*" in rule.repos
    else:
        repo_matches = any(
            _matches(p, subject.repo_id, ignore_case=ignore_case) for p in rule.repos
        )
    url = subject.registry.rstrip("/")
    return repo_matches and any(_matches(p, url, ignore_case=ignore_case) for p in rule.registries)


def _matches(pattern: str, text: str, *, ignore_case: bool = False) -> bool:
    """Whether a pattern matches a whole text.

    ``*`` matches anything but ``/`` and ``@``, ``**`` anything; all else matches literally. A git
    branch may be called ``x@refs/heads/main``: if a star matched ``@``, everyone who may push any
    branch could sign as the main one.
    """
    if pattern == "*":
        return True
    return bool(_compiled(pattern.rstrip("/"), ignore_case).fullmatch(text))


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str, ignore_case: bool) -> re.Pattern[str]:  # noqa: FBT001 - of a cache
    stars = {"**": ".*", "*": "[^/@]*"}
    parts = (stars.get(part, re.escape(part)) for part in re.split(r"(\*\*|\*)", pattern))
    return re.compile("".join(parts), re.DOTALL | (re.IGNORECASE if ignore_case else 0))


def claims_match(signer: IdentitySigner, claims: Claims) -> bool:
    """Whether a certificate with these claims belongs to a signer."""
    return (
        claims.issuer == signer.issuer
        and any(_matches(p, text) for p in signer.identities for text in claims.identities)
        and signer.source_repository in {None, claims.source_repository}
    )


def read(data: bytes, source: str) -> Policy:
    """Read the policy in the bytes of a file."""
    try:
        document = untrusted.parse_toml(data)
    except ValueError as error:
        raise _wrong(source, f"it is not TOML: {error}", "fix it") from None
    _refuse_unknown(document, ("rule", "signer"), source)
    signers: dict[str, Signer] = {COMMUNITY.name: COMMUNITY}
    tables = document.get("signer", {})
    if not isinstance(tables, dict):
        raise _wrong(source, "signer is not a table of signers", "write each as [signer.NAME]")
    for name, table in tables.items():
        signers[name] = _read_signer(name, table, source)
    rules = document.get("rule", [])
    if not isinstance(rules, list):
        raise _wrong(source, "rule is not a list of tables", "write each under [[rule]]")
    return Policy(
        source=source,
        rules=tuple(_read_rule(t, signers, f"{source}: rule {n}") for n, t in enumerate(rules, 1)),
    )


def _read_rule(table: object, signers: Mapping[str, Signer], where: str) -> Rule:
    lists = ("repo", "registry", "document", "signers")
    rule = _fields(table, where, ("admit", "publishers", "reason"), lists)
    admit, publishers = rule.get("admit"), rule.get("publishers", "none")
    if admit not in list(Admit):
        raise _wrong(where, f"admit is {admit!r}", f"write one of {', '.join(Admit)}")
    names = rule.get("signers", ())
    if unknown := [name for name in names if name not in signers]:
        raise _wrong(where, f"there is no signer {unknown[0]!r}", f"add [signer.{unknown[0]}]")
    if bool(names) != (admit == Admit.SIGNED):
        raise _wrong(
            where,
            f"admit = {admit!r} with {len(names)} signers",
            'signers go with admit = "signed", which needs one or more',
        )
    if publishers not in ("hub", "none") or (publishers == "hub" and admit != Admit.ASKED):
        raise _wrong(
            where,
            f"publishers is {publishers!r}",
            'write publishers = "hub" together with admit = "asked", or remove it',
        )
    documents = rule.get("document", ())
    if not all(map(SHA256.fullmatch, documents)):
        raise _wrong(where, "document is not a SHA-256", "write the 64 hex digits of metadata.json")
    return Rule(
        admit=Admit(admit),
        repos=rule.get("repo", ("*",)),
        registries=rule.get("registry", ("*",)),
        documents=documents,
        signers=tuple(signers[name] for name in names),
        publishers=publishers == "hub",
        reason=rule.get("reason", ""),
        where=where,
    )


def _read_signer(name: str, table: object, source: str) -> Signer:
    where = f"{source}: [signer.{name}]"
    if not _NAME.fullmatch(name):
        raise _wrong(where, f"{name!r} is not a name", "use letters, digits and dashes")
    if isinstance(table, dict) and "public-key" in table:
        key = _fields(table, where, ("public-key",))["public-key"]
        return KeySigner(name=name, key=public_key(key, where))
    signer = _fields(table, where, ("issuer", "source-repository"), ("identity",))
    identities = signer.get("identity", ())
    if "issuer" not in signer or not all(set(text) - set("*/") for text in identities or "*"):
        raise _wrong(
            where,
            "it has no issuer, or identity matches nothing or every identity of the issuer",
            'write issuer, and identity = "me@example.org" or a workflow URL with * for a part',
        )
    return IdentitySigner(
        name=name,
        issuer=signer["issuer"],
        identities=identities,
        source_repository=signer.get("source-repository"),
    )


def _fields(
    table: object, where: str, texts: tuple[str, ...], lists: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The values of a table's keys: each a text, or a tuple of texts, that is not empty."""
    if not isinstance(table, dict):
        raise _wrong(
            where, "that is not a table", f"see {page('how-to/platform/set-a-trust-policy')}"
        )
    _refuse_unknown(table, texts + lists, where)
    fields = {}
    for key, value in table.items():
        values = [value] if isinstance(value, str) or key in texts else value
        if not (isinstance(values, list) and values and all(map(_is_text, values))):
            many = " or a list of texts" if key in lists else ""
            raise _wrong(where, f"{key} is {value!r}", f"write {key} as a text{many}")
        fields[key] = tuple(values) if key in lists else value
    return fields


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _refuse_unknown(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    """Refuse an unknown key: a misspelt rule would demand less than it says."""
    for key in table.keys() - set(known):
        raise _wrong(where, f"unknown key {key!r}", f"the keys are {', '.join(known)}")


def public_key(text: str, where: str) -> bytes:
    """The 32 bytes of an Ed25519 public key, from PEM (RFC 8410) or its base64 on one line."""
    try:
        line = re.sub(r"-----(BEGIN|END) PUBLIC KEY-----|\s", "", text)
        der = base64.b64decode(line, validate=True)
    except ValueError:
        der = b""
    raw = der.removeprefix(ED25519_DER)
    if len(raw) != _RAW_KEY_BYTES or len(der) == len(raw):
        raise _wrong(
            where,
            "that is not an Ed25519 public key",
            "paste the output of kernforge sign --new-key",
        )
    return raw


def fingerprint(key: bytes) -> str:
    """Padded base64 SHA-256 of a raw public key's SubjectPublicKeyInfo, as in Sigstore's hints."""
    import hashlib  # noqa: PLC0415 - only where something is signed

    return base64.b64encode(hashlib.sha256(ED25519_DER + key).digest()).decode()


def _wrong(where: str, problem: str, hint: str) -> TrustError:
    return TrustError(f"{where}: {problem}", hint=f"{hint}; until then nothing is admitted")
