# SPDX-License-Identifier: Apache-2.0
"""Run the server in this process, until a signal ends it."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import Callable
from typing import Any

from granian.constants import Interfaces
from granian.server.embed import Server

from kernforge.errors import UsageError

_CONNECTIONS = 20_000


def run(application: Any, host: str, port: int, reload: Callable[[], None]) -> None:
    """Answer requests until SIGINT or SIGTERM, let the running ones end, and exit.

    Args:
        reload: called at SIGHUP.

    Raises:
        UsageError: the address cannot be bound.
    """
    # Each connection is a file, an idle one too; the usual limit of 1,024 is for old programs.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_serve(application, host, port, reload))
    # A thread of granian may still be ending: it would abort while Python takes the objects away.
    os._exit(0)


async def _serve(application: Any, host: str, port: int, reload: Callable[[], None]) -> None:
    server = Server(
        application,
        address=host,
        port=port,
        interface=Interfaces.ASGINL,
        websockets=False,
        backlog=4096,
        backpressure=_CONNECTIONS,
        log_enabled=False,
    )
    loop = asyncio.get_running_loop()

    def stop(name: signal.Signals) -> None:
        loop.remove_signal_handler(name)  # a second one ends what a slow client keeps
        server.stop()  # type: ignore[no-untyped-call]

    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop, name)
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        await server.serve()
    except (RuntimeError, ValueError, OverflowError) as error:  # of granian, with a stack
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"the server cannot listen at {host}, port {port}: {reason}",
            hint="--host takes an IP address of this machine, such as 0.0.0.0 for all; --port a "
            "free port",
        ) from error
