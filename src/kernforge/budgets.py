# SPDX-License-Identifier: Apache-2.0
"""Limits on untrusted input: of parsers, archives and downloads.

Projects, locks, policies, statements, registries, indexes, archives and machine code are written by
somebody else. Whoever reads them asks ``current()`` for the limits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kernforge.errors import NetworkError

_WINDOW_S = 30.0  # over which the speed of a download counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """The limits.

    Attributes:
        document: bytes of a JSON document, an index page or an answer of a hub.
        text: bytes of a TOML file, which people write.
        values: values in one document, listed files and links of a page included.
        nesting: how deep tables and lists may lie inside each other.
        name: characters of a key, a path or another name.
        members: files in an archive or a listing.
        file: bytes of the largest file of an archive or a kernel.
        total: bytes of all files of an archive or of a kernel's variant.
        ratio: how many times its packed size a member of an archive may be.
        slack: bytes up to which the ratio does not count.
        records: sections, symbols and other records of machine code.
        slowest: bytes a second below which a download is given up.
    """

    document: int = 64 * 10**6
    text: int = 10**6
    values: int = 10**6
    nesting: int = 64
    name: int = 4096
    members: int = 200_000
    file: int = 4 << 30
    total: int = 24 << 30
    ratio: int = 200
    slack: int = 64 << 20
    records: int = 10**6
    slowest: int = 1000


_LIMITS = Budgets()


def current() -> Budgets:
    """The limits of this process."""
    return _LIMITS


class StreamError(NetworkError):
    """A server sends too much or too slowly; asking it again does not help."""


def bounded(
    chunks: Iterable[bytes],
    source: str,
    most: int,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[bytes]:
    """Pass on what a server sends, until it is too much or comes too slowly.

    Args:
        chunks: the bytes as they arrive: one that waits until it is full hides a slow server.
        source: the address, as errors call it.
        most: bytes that may come.
        clock: monotonic seconds.

    Raises:
        StreamError: more came, or fewer than ``slowest`` a second over half a minute.
    """
    total = window = 0
    began = clock()
    for chunk in chunks:
        total, window = total + len(chunk), window + len(chunk)
        if total > most:
            raise StreamError(
                f"{source} sends more than the {most:,} bytes that are expected there",
                hint="the server is wrong or means harm; nothing of it was kept",
            )
        if (passed := clock() - began) >= _WINDOW_S:
            if window < current().slowest * passed:
                raise StreamError(
                    f"{source} sent {window:,} bytes in {passed:.0f} seconds",
                    hint="try again later, or from another server",
                )
            began, window = clock(), 0
        yield chunk
