# SPDX-License-Identifier: Apache-2.0
"""Commands on kernels and signatures: search, info, verify, sign."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.cli import formats, options
from kernforge.errors import CheckError, UsageError
from kernforge.system import tables

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from kernforge.audit.describe import FoundKernel
    from kernforge.system.console import Console
    from kernforge.trust.policy import Signer


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    info = options.add_verb(verbs, _info, "info")
    _add_kernel(info)
    info.add_argument("--backend", help="show what would load for this backend, such as cpu")
    options.add_flag(info, "--only-compatible", "show only the variants that this machine can load")
    options.add_flag(info, "--versions", "list the published versions of the kernel instead")

    search = options.add_verb(verbs, _search, "search")
    search.add_argument(
        "text",
        nargs="?",
        default="",
        help="a part of the owner or the name (default with --local: all kernels)",
    )
    options.add_flag(search, "--local", "list only kernels that are on this machine")
    options.add_registry(search)

    _add_verify(verbs)
    _add_sign(verbs)


def _add_verify(verbs: options.Verbs) -> None:
    verb = options.add_verb(verbs, _verify, "verify")
    _add_kernel(verb)
    verb.add_argument(
        "--variant", default="*", metavar="GLOB", help="only these variants (default: all)"
    )
    options.add_repeated(
        verb,
        "--key",
        "accepted public key (default: the signers of the trust policy)",
        type=Path,
        metavar="FILE",
    )
    options.add_repeated(verb, "--identity", "accepted identity")
    verb.add_argument("--issuer", help="OpenID Connect issuer of --identity")
    verb.add_argument(
        "--trusted-root", metavar="FILE", help="Sigstore instance (default: the public instance)"
    )
    verb.add_argument(
        *("--allow-unsigned", "--filter-unsigned"),
        action="store_true",
        help="accept a variant without a signature",
    )
    verb.add_argument(
        *("--allow-no-digest", "--filter-no-digest"),
        action="store_true",
        help="accept a variant without a digest",
    )
    options.add_flag(verb, "--rebuild", "build each variant again from its sources, and compare")
    verb.add_argument(
        "--source",
        type=Path,
        metavar="DIR",
        help="checkout to rebuild from (default: the repository of the provenance statement)",
    )
    options.add_jobs(verb)
    options.add_sandbox(verb)


def _add_sign(verbs: options.Verbs) -> None:
    verb = options.add_verb(verbs, _sign, "sign")
    options.add_built(verb)
    signer = verb.add_mutually_exclusive_group()
    signer.add_argument("--key", type=Path, metavar="FILE", help="private key of --new-key")
    signer.add_argument(
        "--new-key",
        type=Path,
        metavar="FILE",
        help="sign nothing: make a private key in this file, its public key in FILE.pub",
    )
    signer.add_argument(
        "--identity-token",
        metavar="FILE",
        help="file with an OpenID Connect token, or - for standard input "
        "(default without --key: the token of this CI job)",
    )
    verb.add_argument(
        "--trust-config",
        type=Path,
        metavar="FILE",
        help="Sigstore instance (default: the public instance)",
    )
    options.add_flag(verb, "--replace", "overwrite the signature of an identity")
    options.add_flag(verb, "--no-passphrase", "do not encrypt the private key of --new-key")


def _add_kernel(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("what", metavar="REPO-or-DIR", help="owner/name, or a directory of variants")
    options.add_registry(verb)
    options.add_version(verb)


def _source(arguments: argparse.Namespace) -> FoundKernel:
    from kernforge.audit import describe  # noqa: PLC0415

    return describe.find(
        arguments.what,
        options.registry(arguments),
        version=arguments.version,
        revision=arguments.revision,
    )


def _info(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.audit import describe  # noqa: PLC0415

    if arguments.versions:
        _versions(arguments, console)
        return
    description = describe.describe(_source(arguments), arguments.backend)
    if arguments.only_compatible:
        description["variants"] = [row for row in description["variants"] if row["fits"]]
    console.result(description, describe.as_text(description))


def _versions(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.audit import describe  # noqa: PLC0415

    versions = describe.published_versions(options.registry(arguments), arguments.what)
    lines = [
        f"{v['version']}  {v['commit']}  {tables.counted(v['variants'], 'variant')}"
        for v in versions
    ]
    console.result(versions, "\n".join(lines))


def _list(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.audit import describe  # noqa: PLC0415

    registry = options.registry(arguments)
    found = describe.on_this_machine(registry, arguments.text)
    rows = [
        (k.repo_id, k.version, tables.counted(k.variants, "variant"), k.registry) for k in found
    ]
    console.result(
        [dataclasses.asdict(kernel) for kernel in found],
        tables.table(rows, head=("kernel", "version", "here", "registry"))
        if rows
        else f"no kernel of {registry.url} is on this machine",
    )


def _search(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.audit import describe  # noqa: PLC0415

    if arguments.local:
        _list(arguments, console)
        return
    if not arguments.text:
        raise UsageError(
            "no text to search for was given",
            hint="give a part of the owner or the name; --local lists what is on this machine",
        )
    registry = options.registry(arguments)
    found, errors = describe.search(registry, arguments.text)
    for url, error in errors.items():
        console.note(f"{url} was not searched: {error.message} ({error.hint})")
    rows = [(kernel.repo_id, kernel.version, kernel.registry) for kernel in found]
    console.result(
        [dataclasses.asdict(kernel) for kernel in found],
        tables.table(rows, head=("kernel", "version", "registry"))
        if rows
        else f"no kernel with {arguments.text!r} in its name",
    )


def _verify(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.audit import verify  # noqa: PLC0415

    if arguments.rebuild:
        # It compares bytes and verifies no signature: nobody shall believe that it did.
        options.refuse_without(
            "a verification without --rebuild",
            key=arguments.key,
            identity=arguments.identity,
            issuer=arguments.issuer,
        )
        _rebuild(arguments, console)
        return
    options.refuse_without("--rebuild", source=arguments.source)
    signers = _signers(arguments)
    source = _source(arguments)
    names = options.matching(arguments.variant, source.names, arguments.what)
    verdicts = [
        verify.verify_variant(source.location(name), signers, arguments.environment)
        for name in names
    ]
    console.result(verify.as_document(verdicts), verify.as_text(verdicts))
    verify.refuse(verdicts, unsigned=arguments.allow_unsigned, undigested=arguments.allow_no_digest)


def _rebuild(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.audit import reproduce  # noqa: PLC0415
    from kernforge.system import files  # noqa: PLC0415

    source = _source(arguments)
    names = options.matching(arguments.variant, source.names, arguments.what)
    subjects = tuple(reproduce.read(source.location(name)) for name in names)
    with files.staging(arguments.environment.home / "reproduce") as workplace:
        verdicts = [
            reproduce.again(
                subject,
                arguments.source,
                workplace / str(number),
                arguments.environment,
                sandbox=arguments.sandbox,
                jobs=arguments.jobs,
                console=console,
            )
            for number, subject in enumerate(subjects)
        ]
    console.result(
        [formats.verdict_document(v) for v in verdicts],
        "\n".join(map(formats.verdict_text, verdicts)),
    )
    built = tables.counted(len(verdicts), "variant")
    wrong = [v.variant for v in verdicts if v.differences]
    if wrong:
        raise CheckError(
            f"{built} built again, {len(wrong)} with other bytes",
            hint="each difference above names the file and the action that made it; `diffoscope` "
            "shows the bytes of two builds",
        )


def _signers(arguments: argparse.Namespace) -> list[Signer]:
    """The accepted signers of the command line."""
    from kernforge.trust.policy import IdentitySigner  # noqa: PLC0415

    if bool(arguments.identity) != bool(arguments.issuer):
        raise UsageError("only one of --identity and --issuer was given", hint="give both together")
    signers: list[Signer] = [*options.key_signers(arguments.key)]
    if arguments.identity:
        signers.append(
            IdentitySigner(
                name=", ".join(arguments.identity),
                issuer=arguments.issuer,
                identities=tuple(arguments.identity),
                trusted_root=arguments.trusted_root,
            )
        )
    return signers


def _sign(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.artifact import directories as artifact_directories  # noqa: PLC0415
    from kernforge.trust import signature, signing  # noqa: PLC0415

    if arguments.new_key:
        _make_key(arguments, console)
        return
    if arguments.no_passphrase:
        raise UsageError(
            "--no-passphrase is for a new key", hint="give --new-key FILE, or remove it"
        )
    directories = artifact_directories.variants(arguments.built)
    if arguments.key:
        make_signatures = options.open_key(arguments.key, arguments.environment).sign
    else:
        token = _token(arguments.identity_token)
        config = options.text_of(arguments.trust_config) if arguments.trust_config else None

        def make_signatures(documents: Sequence[bytes]) -> list[bytes]:
            return signature.sign_with_identity(documents, token, config)

    written = signing.sign(directories, make_signatures, replace=arguments.replace)
    console.result([str(path) for path in written], "\n".join(f"signed {path}" for path in written))


def _token(file: str | None) -> str | None:
    if file is None:
        return None
    return (sys.stdin.read() if file == "-" else options.text_of(Path(file))).strip()


def _make_key(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.trust import signing  # noqa: PLC0415

    passphrase = (
        "" if arguments.no_passphrase else options.passphrase(arguments.environment, twice=True)
    )
    public, text = signing.make_key(arguments.new_key, passphrase)
    name = arguments.new_key.stem
    lines = (
        f"{arguments.new_key}: keep this key secret; {public}: publish this key",
        "",
        f"[signer.{name}]",
        f'public-key = "{text}"',
    )
    document = {"private": str(arguments.new_key), "public": str(public), "public-key": text}
    console.result(document, "\n".join(lines))
