# SPDX-License-Identifier: Apache-2.0
"""Run the server in this process, until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
from collections.abc import Callable

from granian.constants import Interfaces
from granian.server.embed import Server

from kernforge.serve.app import Application

_CONNECTIONS = 20_000
_BACKLOG = 4096


def run(application: Application, host: str, port: int, started: Callable[[], None]) -> None:
    """Answer requests until SIGINT or SIGTERM, then let the running ones end.

    Args:
        started: called when the port is open.

    Raises:
        UsageError: the address cannot be bound.
    """
    # Each connection is a file, an idle one too; the usual limit of 1,024 is for old programs.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_serve(application, host, port, started))


async def _serve(
    application: Application, host: str, port: int, started: Callable[[], None]
) -> None:
    server = Server(
        application,
        address=host,
        port=port,
        interface=Interfaces.ASGINL,
        websockets=False,
        backlog=_BACKLOG,
        backpressure=_CONNECTIONS,
        log_enabled=False,
    )
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, server.stop)
    running = asyncio.ensure_future(server.serve())
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.shield(running), 0.2)
    if not running.done():
        started()
    await running
