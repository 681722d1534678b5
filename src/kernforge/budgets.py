# SPDX-License-Identifier: Apache-2.0
"""What input of others may take: the one home of all limits of parsers, archives and downloads.

Projects, locks, policies, statements, registries, indexes, archives and machine code are written by
somebody else. Whoever reads them asks ``current()`` for the limits of this process, which
``KERNFORGE_BUDGETS`` changes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace

from kernforge.errors import NetworkError, UsageError

_WINDOW_S = 30.0  # over which the speed of a download counts
_SETTING = re.compile(r"\s*([a-z]+)\s*=\s*(\d+)\s*([kMG]?B)?\s*")
_UNITS = {None: 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """Limits; the names of the attributes are those of ``KERNFORGE_BUDGETS``.

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


def parse(text: str) -> Budgets:
    """The limits that ``KERNFORGE_BUDGETS`` sets, as ``"document=128MB,members=500000"``.

    Raises:
        UsageError: a setting is not known, or is not a number.
    """
    found = {}
    known = [field.name for field in fields(Budgets)]
    for part in filter(str.strip, text.split(",")):
        setting = _SETTING.fullmatch(part)
        if not setting or setting[1] not in known:
            raise UsageError(
                f"KERNFORGE_BUDGETS has {part.strip()[:80]!r}, which is not a limit",
                hint=f"write NAME=NUMBER with kB, MB or GB, separated by commas; names are "
                f"{', '.join(known)}",
            )
        found[setting[1]] = int(setting[2]) * _UNITS[setting[3]]
    return replace(Budgets(), **found)


_process = Budgets()


def current() -> Budgets:
    """The limits of this process."""
    return _process


def settle(text: str | None) -> None:
    """Set the limits of this process, once, where it begins.

    Args:
        text: what ``KERNFORGE_BUDGETS`` says; None where it is not set.

    Raises:
        UsageError: see ``parse``.
    """
    global _process  # noqa: PLW0603 - one value of the process, as its environment is
    _process = parse(text) if text else Budgets()


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
                    hint="try again later or elsewhere; KERNFORGE_BUDGETS=slowest=NUMBER sets the "
                    f"bytes a second, now {current().slowest:,}, below which a download ends",
                )
            began, window = clock(), 0
        yield chunk
