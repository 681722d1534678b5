# SPDX-License-Identifier: Apache-2.0
"""``kernforge serve``: a registry for the clients of the Hugging Face hub."""

from __future__ import annotations

import argparse

from kernforge.errors import RegistryError
from kernforge.registry import DirectoryRegistry, open_registry
from kernforge.serve.access import Access
from kernforge.system import extras
from kernforge.system.console import Console


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Answer requests until a signal."""
    extras.require(extras.EXTRAS["serve"], "kernforge serve")
    from kernforge.serve.app import Application  # noqa: PLC0415 - needs what was looked for
    from kernforge.serve.run import run as serve  # noqa: PLC0415
    from kernforge.serve.source import Source  # noqa: PLC0415

    registry = open_registry(arguments.registry, arguments.environment, "kernforge-serve")
    if isinstance(registry, DirectoryRegistry) and not registry.root.is_dir():
        raise RegistryError(
            f"{registry.root} does not exist", hint="check the path; publishing makes a registry"
        )
    source = Source(registry, trusted=tuple(arguments.trusted), url=arguments.url or "")
    access = Access(arguments.tokens)
    application = Application(source, access, None if console.quiet else console)
    address = arguments.url or f"http://{arguments.host}:{arguments.port}"
    console.note(f"{registry.url} for HF_ENDPOINT={address}")
    serve(application, arguments.host, arguments.port, access.reload)
