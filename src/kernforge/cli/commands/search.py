# SPDX-License-Identifier: Apache-2.0
"""``kernforge search``: kernels of registries and of this machine."""

from __future__ import annotations

import argparse
import dataclasses

from kernforge.audit import describe
from kernforge.cli import options
from kernforge.errors import UsageError
from kernforge.system.console import Console
from kernforge.system.tables import counted, table


def run(arguments: argparse.Namespace, console: Console) -> None:
    """List the kernels with a text in their names."""
    registry, text = options.registry(arguments), arguments.text
    if arguments.local:
        found = list(describe.on_this_machine(registry, text))
        head = ["kernel", "version", "here", "registry"]
        rows = [[k.repo_id, k.version, counted(k.variants, "variant"), k.registry] for k in found]
        none = f"no kernel of {registry.url} is on this machine"
    elif text:
        found, errors = describe.search(registry, text)
        for url, error in errors.items():
            console.note(f"{url} was not searched: {error.message} ({error.hint})")
        head = ["kernel", "version", "registry"]
        rows = [[kernel.repo_id, kernel.version, kernel.registry] for kernel in found]
        none = f"no kernel with {text!r} in its name"
    else:
        raise UsageError(
            "no text to search for was given",
            hint="give a part of the owner or the name; --local lists what is on this machine",
        )
    document = [dataclasses.asdict(kernel) for kernel in found]
    console.result(document, table(rows, head=head) if rows else none)
