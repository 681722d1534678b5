# SPDX-License-Identifier: Apache-2.0
"""``kernforge sign``: signatures of built variants, and keys for them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from kernforge.artifact import directories
from kernforge.cli import options
from kernforge.system.console import Console
from kernforge.trust import signature, signing


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Sign variants, or make a key."""
    if arguments.new_key:
        _make_key(arguments, console)
        return
    make = _by_identity(arguments)
    if arguments.key:
        make = options.open_key(arguments.key, arguments.environment).sign
    written = signing.sign(directories.variants(arguments.built), make)
    console.result([str(path) for path in written], "\n".join(f"signed {path}" for path in written))


def _by_identity(arguments: argparse.Namespace) -> Callable[[Sequence[bytes]], list[bytes]]:
    """What signs with the identity of a token, which is read when it is needed."""

    def make(documents: Sequence[bytes]) -> list[bytes]:
        file, token = arguments.identity_token, None
        if file is not None:
            token = (sys.stdin.read() if file == "-" else options.text_of(Path(file))).strip()
        return signature.sign_with_identity(documents, token)

    return make


def _make_key(arguments: argparse.Namespace, console: Console) -> None:
    path: Path = arguments.new_key
    passphrase = options.passphrase(arguments.environment, new=True)
    public, key = signing.make_key(path, passphrase)
    lines = (
        f"{path}: keep this key secret; {public}: publish this key",
        "",
        f"[signer.{path.stem}]",
        f'public-key = "{key.public_text}"  # {key.fingerprint}',
    )
    document = {
        "private": str(path),
        "public": str(public),
        "public-key": key.public_text,
        "fingerprint": key.fingerprint,
    }
    console.result(document, "\n".join(lines))
