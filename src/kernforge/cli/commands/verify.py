# SPDX-License-Identifier: Apache-2.0
"""``kernforge verify``: who built variants, and whether their files were changed."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict

from kernforge.audit import verify
from kernforge.audit.describe import VariantLocation
from kernforge.cli import options
from kernforge.errors import CheckError, UsageError
from kernforge.system import files
from kernforge.system.console import Console
from kernforge.system.tables import counted
from kernforge.trust.policy import GITHUB, IdentitySigner, KeySigner, Signer, public_key


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Verify variants, or build them again and compare."""
    signers = list(_signers(arguments))
    if arguments.source and not arguments.rebuild:
        raise UsageError("--source is for --rebuild", hint="add --rebuild, or remove --source")
    if signers and arguments.rebuild:
        raise UsageError(
            "--rebuild compares files and verifies no signature: --key and --identity have no use",
            hint="verify the signature with a second command, without --rebuild",
        )
    kernel = options.kernel(arguments)
    names = options.matching(arguments.variant, kernel.names, arguments.what)
    locations = [kernel.location(name) for name in names]
    if arguments.rebuild:
        _rebuild(locations, arguments, console)
        return
    verdicts = [
        verify.verify_variant(location, signers, arguments.environment) for location in locations
    ]
    console.result(verify.as_document(verdicts), verify.as_text(verdicts))
    verify.refuse(verdicts, unsigned=arguments.allow_unsigned, undigested=arguments.allow_no_digest)


def _signers(arguments: argparse.Namespace) -> Iterator[Signer]:
    """The signers that the command line accepts."""
    for path in arguments.key:
        yield KeySigner(name=path.name, key=public_key(options.text_of(path), str(path)))
    if identities := tuple(arguments.identity):
        yield IdentitySigner(name=", ".join(identities), issuer=GITHUB, identities=identities)


def _rebuild(
    locations: list[VariantLocation], arguments: argparse.Namespace, console: Console
) -> None:
    from kernforge.audit import reproduce  # noqa: PLC0415 - needs what builds

    environment = arguments.environment
    with files.staging(environment.home / "reproduce") as workplace:
        verdicts = [
            reproduce.rebuild(
                location, arguments.source, workplace / str(number), environment, console
            )
            for number, location in enumerate(locations)
        ]
    documents = [asdict(each) | {"identical": not each.differences} for each in verdicts]
    console.result(documents, "\n".join(map(str, verdicts)))
    if wrong := sum(bool(verdict.differences) for verdict in verdicts):
        raise CheckError(
            f"{wrong} of {counted(len(verdicts), 'rebuilt variant')} differ",
            hint="each difference above names the file and the action that made it; `diffoscope` "
            "shows the bytes of two builds",
        )
