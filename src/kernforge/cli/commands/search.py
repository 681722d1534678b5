# SPDX-License-Identifier: Apache-2.0
"""``kernforge search``: kernels of registries and of this machine."""

from __future__ import annotations

import argparse
import dataclasses
import operator

from kernforge.audit import describe
from kernforge.cli import options
from kernforge.errors import UsageError
from kernforge.system.console import Console
from kernforge.system.tables import table


def run(arguments: argparse.Namespace, console: Console) -> None:
    """List the kernels with a text in their names."""
    registry, text, local = options.registry(arguments), arguments.text, arguments.local
    if not text and not local:
        raise UsageError(
            "no text to search for was given",
            hint="give a part of the owner or the name; --local lists what is on this machine",
        )
    kernels, errors = describe.search(registry, text, local=local)
    for url, error in errors.items():
        console.note(f"{url} was not searched whole: {error.message} ({error.hint})")
    shown = operator.attrgetter("repo_id", "version", "registry")
    named = f" with {text!r} in its name" if text else ""
    none = f"no kernel{named} is {'on this machine' if local else 'published'}"
    console.result(
        [dataclasses.asdict(kernel) for kernel in kernels],
        table(map(shown, kernels), head=("kernel", "version", "registry")) if kernels else none,
    )
