# SPDX-License-Identifier: Apache-2.0
"""Who may be loaded: the policy as a document, and what it says of one kernel. Nothing is read here.

A policy is a list of rules; the first that names a kernel speaks for its file. Several files may
speak (the site's, the user's, the project's), and a kernel must satisfy each that does: no file
loosens what another demands. When neither the site nor the user says anything, ``BUILT_IN`` does.
"""

from __future__ import annotations

import base64
import binascii
import functools
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from kernforge.errors import TrustError, page

if TYPE_CHECKING:
    from collections.abc import Iterable

_RULE_KEYS = ("repo", "registry", "admit", "signers", "publishers", "reason")
_KEY_SIGNER_KEYS = ("public-key",)
_IDENTITY_SIGNER_KEYS = ("issuer", "identity", "source-repository", "trusted-root")
_URL = re.compile(r"[a-z][a-z0-9+.-]*:[^\s,]+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
# SubjectPublicKeyInfo of an Ed25519 key (RFC 8410) up to the 32 bytes of the key itself.
ED25519_DER = bytes.fromhex("302a300506032b6570032100")
_RAW_KEY_BYTES = 32


class Admit(StrEnum):
    """What a rule demands: nothing, a word of the caller or the hub, a signature, the impossible."""

    ALWAYS = "always"
    ASKED = "asked"
    SIGNED = "signed"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySigner:
    """Who holds an Ed25519 key; ``key`` is the raw public key, 32 bytes."""

    name: str
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentitySigner:
    """Who signs with a Sigstore identity.

    Attributes:
        name: what rules call it.
        issuer: the OpenID Connect issuer, exactly.
        identities: patterns for the certificate's identity, one of which must match.
        source_repository: what the certificate must name as its source repository, if anything.
        trusted_root: path of a Sigstore ``trusted_root.json``; None is the public instance.
    """

    name: str
    issuer: str
    identities: tuple[str, ...]
    source_repository: str | None = None
    trusted_root: str | None = None


Signer: TypeAlias = KeySigner | IdentitySigner


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What a Sigstore certificate says of its holder."""

    issuer: str
    identities: tuple[str, ...]
    source_repository: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What one rule says.

    Attributes:
        admit: what it demands.
        repos: patterns for repo ids; a directory that the user named has none, so that only ``*``
            is about it.
        registries: patterns for the registry's URL, or that of the directory.
        signers: one of these must have signed, when ``admit`` is ``signed``.
        publishers: whether an owner that the registry itself vouches for need not be asked about.
        reason: the author's words for the refusal.
        where: the file and the rule's number.
    """

    admit: Admit
    repos: tuple[str, ...] = ("*",)
    registries: tuple[str, ...] = ("*",)
    signers: tuple[Signer, ...] = ()
    publishers: bool = False
    reason: str = ""
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules of one file.

    Attributes:
        source: its path.
        rules: in order.
        only_tightens: whether ``BUILT_IN`` speaks even if this file does.
    """

    source: str
    rules: tuple[Rule, ...]
    only_tightens: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is to be loaded: ``owner/name``, or None for a directory; from which one URL.

    Raises:
        TrustError: the URL is none, as one that names several registries would be: rules for
            the first would speak for the others.
    """

    repo_id: str | None
    registry: str

    def __post_init__(self) -> None:
        if not _URL.fullmatch(self.registry):
            raise TrustError(
                f"{self.registry!r} is not the URL of one registry, so no rule can speak of it",
                hint="name one registry",
            )

    def __str__(self) -> str:
        return self.registry if self.repo_id is None else f"{self.repo_id} from {self.registry}"


_GITHUB = "https://token.actions.githubusercontent.com"
_COMMUNITY = "https://github.com/huggingface/kernels-community"
COMMUNITY = IdentitySigner(
    name="kernels-community",
    issuer=_GITHUB,
    identities=tuple(
        f"{_COMMUNITY}/.github/workflows/{workflow}.yaml@refs/heads/main"
        for workflow in ("build", "build-mac", "build-windows", "sign-old-builds")
    ),
    source_repository=_COMMUNITY,
)
"""The hub's community kernels, as ``kernels`` 0.17 knows their workflows; any file may name it."""

BUILT_IN = Policy(
    source="the built-in policy",
    rules=(
        Rule(
            admit=Admit.ALWAYS,
            registries=("file://**",),
            reason="who may write to a directory is the file system's affair",
            where="the built-in rule for directories",
        ),
        Rule(
            admit=Admit.ASKED,
            publishers=True,
            where="the built-in rule for remote registries",
        ),
    ),
)


def speaking(policies: Iterable[Policy], subject: Subject) -> tuple[Rule, ...]:
    """The rules that a kernel must satisfy, all of them."""
    rules: list[Rule] = []
    said = False
    for policy in policies:
        rule = _first(policy, subject)
        if rule is not None:
            rules.append(rule)
            said = said or not policy.only_tightens
    if not said:
        built_in = _first(BUILT_IN, subject)
        rules += [] if built_in is None else [built_in]
    return tuple(rules)


def _first(policy: Policy, subject: Subject) -> Rule | None:
    return next((rule for rule in policy.rules if _names(rule, subject)), None)


def _names(rule: Rule, subject: Subject) -> bool:
    # Hubs take a repo id in any case: what demands something must not be escaped by writing
    # ACME/toy, and what demands nothing must not be reached by it.
    ignore_case = rule.admit is not Admit.ALWAYS
    if subject.repo_id is None:
        named = "*" in rule.repos
    else:
        named = any(_matches(p, subject.repo_id, ignore_case=ignore_case) for p in rule.repos)
    place = subject.registry.rstrip("/")
    return named and any(_matches(p, place, ignore_case=ignore_case) for p in rule.registries)


def _matches(pattern: str, text: str, *, ignore_case: bool = False) -> bool:
    return pattern == "*" or bool(_compiled(pattern.rstrip("/"), ignore_case).fullmatch(text))


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str, ignore_case: bool) -> re.Pattern[str]:  # noqa: FBT001 - cached
    """``*`` is anything but ``/`` and ``@``, ``**`` anything; the rest is meant literally.

    A git branch may be called ``x@refs/heads/main``: a star that crossed ``@`` would let whoever
    may push any branch sign as the main one.
    """
    parts = {"**": ".*", "*": "[^/@]*"}
    text = "".join(parts.get(p, re.escape(p)) for p in re.split(r"(\*\*|\*)", pattern))
    return re.compile(text, re.DOTALL | (re.IGNORECASE if ignore_case else 0))


def claims_match(signer: IdentitySigner, claims: Claims) -> bool:
    """Whether a certificate with these claims is this signer's."""
    return (
        claims.issuer == signer.issuer
        and any(_matches(p, text) for p in signer.identities for text in claims.identities)
        and signer.source_repository in {None, claims.source_repository}
    )


def parse(document: Mapping[str, Any], source: str, *, only_tightens: bool = False) -> Policy:
    """Read a policy.

    Args:
        document: the TOML document, or the table of one that holds the policy.
        source: its path; a ``trusted-root`` lies relative to it.
        only_tightens: see ``Policy``.

    Raises:
        TrustError: it is no policy; a policy with a mistake admits nothing.
    """
    _known(_table(document, source), ("rule", "signer"), source)
    signers: dict[str, Signer] = {COMMUNITY.name: COMMUNITY}
    for name, table in _table(document.get("signer", {}), f"{source}: signer").items():
        signers[name] = _signer(name, table, source)
    rules = document.get("rule", [])
    if not isinstance(rules, list):
        raise _wrong(source, "rule is not a list of tables", "write each one under [[rule]]")
    return Policy(
        source=source,
        rules=tuple(_rule(t, signers, f"{source}: rule {n}") for n, t in enumerate(rules, 1)),
        only_tightens=only_tightens,
    )


def _rule(table: object, signers: Mapping[str, Signer], where: str) -> Rule:
    rule = _table(table, where)
    _known(rule, _RULE_KEYS, where)
    choices = ", ".join(Admit)
    if rule.get("admit") not in set(Admit):
        raise _wrong(where, f"admit is {rule.get('admit')!r}", f"write one of {choices}")
    admit = Admit(rule["admit"])
    named = _texts(rule, "signers", where, ())
    unknown = [name for name in named if name not in signers]
    if unknown:
        raise _wrong(where, f"there is no signer {unknown[0]!r}", f"add [signer.{unknown[0]}]")
    if bool(named) != (admit is Admit.SIGNED):
        raise _wrong(
            where,
            f"admit = {admit.value!r} with {len(named)} signers",
            'signers go with admit = "signed", which needs one or more',
        )
    publishers = rule.get("publishers", "none")
    if publishers not in {"hub", "none"} or (publishers == "hub" and admit is not Admit.ASKED):
        raise _wrong(
            where,
            f"publishers is {publishers!r}",
            'write publishers = "hub" beside admit = "asked", or leave it out',
        )
    reason = rule.get("reason", "")
    if not isinstance(reason, str):
        raise _wrong(where, "reason is no string", "write a sentence for who is refused")
    return Rule(
        admit=admit,
        repos=_texts(rule, "repo", where, ("*",)),
        registries=_texts(rule, "registry", where, ("*",)),
        signers=tuple(signers[name] for name in named),
        publishers=publishers == "hub",
        reason=reason,
        where=where,
    )


def _signer(name: str, value: object, source: str) -> Signer:
    where = f"{source}: [signer.{name}]"
    table = _table(value, where)
    if not _NAME.fullmatch(name):
        raise _wrong(where, f"{name!r} is no name", "use letters, digits and dashes")
    if "public-key" in table:
        _known(table, _KEY_SIGNER_KEYS, where)
        return KeySigner(name=name, key=public_key(_text(table, "public-key", where), where))
    _known(table, _IDENTITY_SIGNER_KEYS, where)
    identities = _texts(table, "identity", where, ())
    if not identities or any(not set(identity) - set("*/") for identity in identities):
        raise _wrong(
            where,
            "identity names nobody, or everybody that the issuer knows",
            'write identity = "me@example.org", or a workflow URL with * for a part of it',
        )
    return IdentitySigner(
        name=name,
        issuer=_text(table, "issuer", where),
        identities=identities,
        source_repository=(
            _text(table, "source-repository", where) if "source-repository" in table else None
        ),
        trusted_root=(
            posixpath.join(posixpath.dirname(source), _text(table, "trusted-root", where))
            if "trusted-root" in table
            else None
        ),
    )


def public_key(text: str, where: str) -> bytes:
    """The 32 bytes of an Ed25519 public key, from PEM (RFC 8410) or the base64 in its middle.

    Raises:
        TrustError: it is none.
    """
    body = re.sub(r"-----(BEGIN|END) PUBLIC KEY-----|\s", "", text)
    try:
        der = base64.b64decode(body, validate=True)
    except binascii.Error:
        der = b""
    raw = der.removeprefix(ED25519_DER)
    if len(raw) != _RAW_KEY_BYTES or len(der) == len(raw):
        raise _wrong(where, "that is no Ed25519 public key", "paste what kernforge keygen printed")
    return raw


def fingerprint(key: bytes) -> str:
    """Padded base64 SHA-256 of a raw public key's SubjectPublicKeyInfo, as Sigstore hints name it."""
    import hashlib  # noqa: PLC0415 - only where something is signed

    return base64.b64encode(hashlib.sha256(ED25519_DER + key).digest()).decode()


def _table(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(where, "that is no table", f"see {page('how-to/platform/set-a-trust-policy')}")
    return value


def _known(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    for key in table:
        if key not in known:
            import difflib  # noqa: PLC0415 - only for mistakes

            near = difflib.get_close_matches(key, list(known), 1)
            meant = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise _wrong(where, f"unknown key {key!r}", meant)


def _text(table: Mapping[str, Any], key: str, where: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise _wrong(where, f"{key} is {value!r}", f'write {key} = "..."')
    return value


def _texts(
    table: Mapping[str, Any], key: str, where: str, default: tuple[str, ...]
) -> tuple[str, ...]:
    value = table.get(key, default)
    values = (value,) if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not all(isinstance(v, str) and v for v in values):
        raise _wrong(where, f"{key} is {value!r}", f"write {key} as a string or a list of them")
    if key in table and not values:
        raise _wrong(where, f"{key} is empty", "name something, or leave it out")
    return tuple(values)


def _wrong(where: str, problem: str, hint: str) -> TrustError:
    return TrustError(f"{where}: {problem}", hint=f"{hint}; until then nothing is admitted")
