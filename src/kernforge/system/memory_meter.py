# SPDX-License-Identifier: Apache-2.0
"""Measure the memory of running programs, each with all that it started.

``getrusage`` cannot say it: the peak that it tells of a child includes the peak of the process
that forked it, and it knows no sum over a tree of processes. So one thread looks at ``/proc`` a
few times a second while programs run. What lives shorter than that is small.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_INTERVAL_S = 0.05
# Looking may cost this share of one core, however many processes there are.
_SHARE = 0.02
_LONGEST_S = 0.5
_PEAK = re.compile(rb"VmHWM:\s+(\d+) kB")
_RESIDENT = re.compile(rb"VmRSS:\s+(\d+) kB")
_KB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Memory of a program and of all that it started.

    Attributes:
        current: bytes when last looked at.
        peak: highest number of bytes so far.
    """

    current: int = 0
    peak: int = 0


class Meter:
    """Watches programs in a thread that lives while there are some."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._usage: dict[int, Usage] = {}
        self._owner: dict[int, int] = {}
        self._awake = False

    def watch(self, pid: int) -> None:
        """Begin with a process that this thread has started."""
        with self._lock:
            self._usage[pid] = Usage()
            self._owner[pid] = threading.get_ident()
            if not self._awake:
                self._awake = True
                threading.Thread(target=self._look, name="kernforge-meter", daemon=True).start()

    def leave(self, pid: int) -> Usage:
        """End with a process; returns what was seen."""
        with self._lock:
            del self._owner[pid]
            return self._usage.pop(pid)

    def by_thread(self) -> Mapping[int, Usage]:
        """What is used now, by the thread that started it."""
        with self._lock:
            return {self._owner[pid]: usage for pid, usage in self._usage.items()}

    def _look(self) -> None:
        while True:
            with self._lock:
                pids = tuple(self._usage)
                if not pids:
                    self._awake = False
                    return
            start = time.thread_time()
            seen = measure(pids)
            with self._lock:
                for pid, now in seen.items():
                    if pid in self._usage:
                        peak = max(self._usage[pid].peak, now.peak)
                        self._usage[pid] = Usage(current=now.current, peak=peak)
            cost = (time.thread_time() - start) / _SHARE
            time.sleep(min(max(_INTERVAL_S, cost), _LONGEST_S))


def measure(pids: tuple[int, ...]) -> dict[int, Usage]:
    """Memory of some processes with their descendants, now.

    The peak is the larger of the present sum and of the largest peak of one of the processes.
    """
    children = _children()
    found = {}
    for root in pids:
        current = peak = 0
        tree = [root]
        for pid in tree:
            resident, highest = _memory(pid)
            current += resident
            peak = max(peak, highest)
            tree += children.get(pid, ())
        found[root] = Usage(current=current, peak=max(current, peak))
    return found


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for pid in _processes():
        with contextlib.suppress(OSError, IndexError, ValueError):
            # The name in parentheses may hold anything; what follows the last one is regular.
            fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
            found.setdefault(int(fields[1]), []).append(pid)
    return found


def _processes() -> Iterator[int]:
    with contextlib.suppress(OSError), os.scandir("/proc") as entries:
        yield from (int(entry.name) for entry in entries if entry.name.isdigit())


def _memory(pid: int) -> tuple[int, int]:
    try:
        text = _read(f"/proc/{pid}/status")
    except OSError:
        return 0, 0
    resident, peak = _RESIDENT.search(text), _PEAK.search(text)
    return int(resident[1]) * _KB if resident else 0, int(peak[1]) * _KB if peak else 0


def _read(path: str) -> bytes:
    handle = os.open(path, os.O_RDONLY)
    try:
        return os.read(handle, 8192)
    finally:
        os.close(handle)
