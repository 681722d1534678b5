# SPDX-License-Identifier: Apache-2.0
"""``kernforge serve``: a registry for the clients of the Hugging Face hub."""

from __future__ import annotations

import argparse

from kernforge.registry import open_registry
from kernforge.serve.access import Access
from kernforge.system import extras
from kernforge.system.console import Console


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Answer requests until a signal."""
    extras.require(extras.EXTRAS["serve"], "kernforge serve")
    from kernforge.serve import run as server  # noqa: PLC0415 - needs what was looked for
    from kernforge.serve.app import Application  # noqa: PLC0415
    from kernforge.serve.source import Source  # noqa: PLC0415

    registry = open_registry(arguments.registry, arguments.environment, "kernforge-serve")
    host, port = arguments.host, arguments.port
    address = arguments.url or f"http://{f'[{host}]' if ':' in host else host}:{port}"
    source = Source(registry, trusted=tuple(arguments.trusted), url=arguments.url or "")
    application = Application(
        source, Access(arguments.tokens), None if console.quiet else console.line
    )
    server.run(
        application,
        host,
        port,
        lambda: console.note(f"{registry.url} is at {address}: set HF_ENDPOINT={address}"),
    )
