# SPDX-License-Identifier: Apache-2.0
"""Measure the memory of running programs, each with all processes that it started.

``getrusage`` cannot do it: its peak of a child includes the peak of the process that forked it, and
it has no sum over a tree of processes. One thread reads ``/proc`` several times a second while
programs run. Processes that end sooner are small.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kernforge.system.forks import free_in_child

_INTERVAL_S = 0.05
# The measurement may take this share of one core, for any number of processes.
_SHARE = 0.02
_LONGEST_S = 0.5
_PEAK = re.compile(rb"VmHWM:\s+(\d+) kB")
_RESIDENT = re.compile(rb"VmRSS:\s+(\d+) kB")
_KB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Memory of a program and of all processes that it started."""

    current: int = 0
    peak: int = 0


class Meter:
    """Measures programs in a thread that runs while there are programs."""

    def __init__(self) -> None:
        self._lock = free_in_child(threading.Lock())
        self._usage: dict[int, Usage] = {}
        self._owner: dict[int, int] = {}
        self._awake = False
        os.register_at_fork(after_in_child=self._forget)

    def watch(self, pid: int) -> None:
        """Begin to measure a process that this thread has started."""
        with self._lock:
            self._usage[pid] = Usage()
            self._owner[pid] = threading.get_ident()
            if not self._awake:
                self._awake = True
                threading.Thread(target=self._look, name="kernforge-meter", daemon=True).start()

    def leave(self, pid: int) -> Usage:
        """End the measurement of a process; returns its memory."""
        with self._lock:
            del self._owner[pid]
            return self._usage.pop(pid)

    def by_thread(self) -> Mapping[int, Usage]:
        """Memory of the programs by the thread that started each."""
        with self._lock:
            return {self._owner[pid]: usage for pid, usage in self._usage.items()}

    def _forget(self) -> None:
        """In a forked process, which has neither the thread nor the programs."""
        self._usage, self._owner, self._awake = {}, {}, False

    def _look(self) -> None:
        while True:
            with self._lock:
                pids = tuple(self._usage)
                if not pids:
                    self._awake = False
                    return
            start = time.thread_time()
            measured = measure(pids)
            with self._lock:
                for pid, now in measured.items():
                    if pid in self._usage:
                        peak = max(self._usage[pid].peak, now.peak)
                        self._usage[pid] = replace(now, peak=peak)
            cost = (time.thread_time() - start) / _SHARE
            time.sleep(min(max(_INTERVAL_S, cost), _LONGEST_S))


def measure(pids: tuple[int, ...]) -> dict[int, Usage]:
    """Present memory of some processes with their descendants.

    The peak is the larger of the present sum and the largest peak of one of the processes.
    """
    children = _children()
    usage = {}
    for root in pids:
        current = peak = 0
        tree = [root]
        for pid in tree:
            resident, highest = _memory(pid)
            current += resident
            peak = max(peak, highest)
            tree += children.get(pid, ())
        usage[root] = Usage(current=current, peak=max(current, peak))
    return usage


def descendants(pid: int) -> tuple[int, ...]:
    """All processes that a process has started, and those started, as far as they run."""
    children, processes = _children(), [pid]
    for each in processes:
        processes += children.get(each, ())
    return tuple(processes[1:])


def _children() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for pid in _processes():
        with contextlib.suppress(OSError, IndexError, ValueError):
            # The name in parentheses may have any characters; the text after it is regular.
            fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
            children.setdefault(int(fields[1]), []).append(pid)
    return children


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
