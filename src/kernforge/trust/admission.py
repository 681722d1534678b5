# SPDX-License-Identifier: Apache-2.0
"""Admit a kernel or refuse it, before anything that it says of itself is read.

Policies are read from, in this order,

- ``/etc/kernforge/trust.toml``: the site's. No variable and no argument moves it.
- the file that ``KERNFORGE_TRUST`` names, else ``trust.toml`` in the user's configuration.
- ``[tool.kernforge.trust]`` of the ``pyproject.toml`` here or above. It only ever tightens, since
  whoever wrote the directory that a process happens to run in is not its user.
"""

from __future__ import annotations

import contextlib
import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.errors import NetworkError, TrustError
from kernforge.system import files
from kernforge.system.paths import config_dir, home
from kernforge.trust.policy import Admit, Policy, Rule, Subject, parse, speaking

if TYPE_CHECKING:
    from collections.abc import Callable

SITE = Path("/etc/kernforge/trust.toml")
"""The site's policy."""

_PROJECT = "pyproject.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Why a kernel was admitted.

    Attributes:
        rules: the rules that spoke, by where they stand.
        signers: who signed, of those that the rules asked for; empty when none did. A kernel that
            was admitted for its signature must have a digest, or the signature says nothing.
    """

    rules: tuple[str, ...]
    signers: tuple[str, ...] = ()


def user_policy() -> Path:
    """Where the user's policy lies, whether it is there or not."""
    chosen = os.environ.get("KERNFORGE_TRUST")
    return Path(chosen).expanduser().absolute() if chosen else config_dir() / "trust.toml"


def policies() -> tuple[Policy, ...]:
    """The policies that hold for this process, the site's first; read afresh, so a change counts.

    Raises:
        TrustError: one cannot be read or has a mistake, or ``KERNFORGE_TRUST`` names none.
    """
    user = user_policy()
    found = [_policy(SITE), _policy(user)]
    if found[1] is None and os.environ.get("KERNFORGE_TRUST"):
        raise TrustError(
            f"KERNFORGE_TRUST names {user}, which holds no policy", hint="mend it, or unset it"
        )
    project = _project()
    if project is not None and project != user:
        found.append(_policy(project, only_tightens=True))
    return tuple(policy for policy in found if policy is not None)


def _project() -> Path | None:
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the directory was removed under us
        return None
    return next((p for d in (here, *here.parents) if (p := d / _PROJECT).is_file()), None)


def _policy(path: Path, *, only_tightens: bool = False) -> Policy | None:
    """The policy of a file; None where there is none."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        if not path.is_symlink():
            return None
        raise TrustError(
            f"the trust policy {path} is a link to nothing",
            hint="mend or remove it; until then nothing is admitted",
        ) from error
    except OSError as error:
        raise TrustError(
            f"the trust policy {path} cannot be read: {error.strerror}",
            hint="see who may read it; until then nothing is admitted",
        ) from error
    if path.name == _PROJECT and not (b"kernforge" in data and b"trust" in data):
        return None
    return _parsed(data, os.fspath(path), only_tightens)


@functools.lru_cache(maxsize=16)
def _parsed(data: bytes, source: str, only_tightens: bool) -> Policy | None:  # noqa: FBT001 - cached
    import tomllib  # noqa: PLC0415 - 13 ms, and most processes have no policy

    try:
        document: Any = tomllib.loads(data.decode())
    except ValueError as error:
        raise TrustError(
            f"{source} is not TOML: {error}", hint="mend it; until then nothing is admitted"
        ) from None
    if os.path.basename(source) == _PROJECT:  # noqa: PTH119 - it is text here
        for key in ("tool", "kernforge", "trust"):
            document = document.get(key) if isinstance(document, dict) else None
    return None if document is None else parse(document, source, only_tightens=only_tightens)


def admit(
    subject: Subject,
    document: bytes,
    *,
    signature: Callable[[], bytes | None],
    vouches: Callable[[str], bool | None],
    trust_remote_code: bool | list[str] = False,
) -> Admission:
    """Admit a kernel, or refuse it with the rule that did and what would allow exactly this.

    Args:
        subject: what is to be loaded.
        document: the bytes of its ``metadata.json``; they are not parsed.
        signature: gives the bytes of its signature; asked only where a rule demands one.
        vouches: says whether the registry vouches for an owner, and None where it never does;
            asked only where a rule leaves it to the hub.
        trust_remote_code: the caller's word: True for any kernel, or a list of repo ids. It
            satisfies ``asked`` rules and no others.

    Raises:
        TrustError: it is refused, or a policy cannot be read.
        IntegrityError: its signature is not of these bytes.
        UsageError: the package that verifies signatures is not installed.
    """
    rules = speaking(policies(), subject)
    for rule in rules:
        if rule.admit is Admit.NEVER:
            raise _refused(subject, rule, "it is refused by name")
        if rule.admit is Admit.ASKED:
            _ask(subject, rule, vouches, trusted=trust_remote_code)
    signers = tuple(
        _check_signature(subject, rule, document, signature())
        for rule in rules
        if rule.admit is Admit.SIGNED
    )
    return Admission(rules=tuple(rule.where for rule in rules), signers=signers)


def _check_signature(subject: Subject, rule: Rule, document: bytes, bundle: bytes | None) -> str:
    names = ", ".join(signer.name for signer in rule.signers)
    if bundle is None:
        raise _refused(subject, rule, f"it is not signed, and must be by one of: {names}")
    from kernforge.trust import signature  # noqa: PLC0415 - only who must verify pays for it

    try:
        return signature.verify(document, bundle, rule.signers).name
    except TrustError as error:
        raise _refused(subject, rule, error.message) from error


def _ask(
    subject: Subject,
    rule: Rule,
    vouches: Callable[[str], bool | None],
    *,
    trusted: bool | list[str],
) -> None:
    """Refuse a kernel that neither the caller nor the hub answers for."""
    if trusted is True:
        return
    if subject.repo_id is None:
        raise _refused(subject, rule, "nobody said that it may be loaded")
    if isinstance(trusted, list) and subject.repo_id in trusted:
        return
    why = "nobody said that it may be loaded"
    if rule.publishers:
        owner = subject.repo_id.partition("/")[0]
        try:
            answer = vouches(owner)
        except NetworkError as error:
            if _vouched_before(subject, owner):
                return
            raise _refused(
                subject, rule, f"its hub cannot be asked about {owner!r}: {error.message}"
            ) from error
        _remember(subject, owner, answer=answer)
        if answer:
            return
        if answer is not None:
            why = f"its hub does not name {owner!r} as a trusted publisher"
    raise _refused(subject, rule, why)


def _mark(subject: Subject, owner: str) -> Path:
    from kernforge.system.digest import key  # noqa: PLC0415 - only for hubs

    return home() / "publishers" / key("publisher", registry=subject.registry, owner=owner)


def _remember(subject: Subject, owner: str, *, answer: bool | None) -> None:
    """Keep what a hub said, for when it cannot be asked."""
    with contextlib.suppress(OSError):  # a home that cannot be written remembers nothing
        if answer:
            files.touch(_mark(subject, owner))
        elif answer is not None:
            files.remove_tree(_mark(subject, owner))


def _vouched_before(subject: Subject, owner: str) -> bool:
    if not _mark(subject, owner).exists():
        return False
    import logging  # noqa: PLC0415 - slow, and rarely needed

    logging.getLogger("kernforge").warning(
        "%s cannot be asked now; it named %s as a trusted publisher before",
        subject.registry,
        owner,
    )
    return True


def _refused(subject: Subject, rule: Rule, why: str) -> TrustError:
    said = f" ({rule.reason})" if rule.reason else ""
    return TrustError(f"{subject}: {why}; {rule.where} refuses it{said}", hint=_way(subject, rule))


def _way(subject: Subject, rule: Rule) -> str:
    """What would admit exactly this kernel."""
    if rule.where.startswith(f"{SITE}:"):
        return f"only who keeps {SITE} can admit it, by a rule before that one"
    repo = "" if subject.repo_id is None else f'repo = "{subject.repo_id}"\n'
    text = f'[[rule]]\n{repo}registry = "{subject.registry}"\nadmit = "always"'
    file = rule.where.rpartition(": ")[0]
    place = f"before that one in {file}" if file else f"in {user_policy()}"
    ours = f"this rule {place}:\n{text}"
    if rule.admit is Admit.ASKED and subject.repo_id is not None:
        return f'pass trust_remote_code=["{subject.repo_id}"], or write {ours}'
    return f"to admit exactly this, write {ours}"
