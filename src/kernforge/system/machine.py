# SPDX-License-Identifier: Apache-2.0
"""Facts about this machine: its processor, and the cores, memory and disk that one may use."""

from __future__ import annotations

import functools
import os
import platform
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

_KB = 1024
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


@functools.cache
def cores() -> int:
    """Number of cores that this process may use; a container or a batch system may limit it."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def processor_name() -> str:
    """The model name of the processor, or else the name of its architecture."""
    lines = _text(Path("/proc/cpuinfo")).splitlines()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def available_memory(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Memory in bytes that this process can still use.

    The smallest of the machine's ``MemAvailable`` and of the free part of each control group of
    this process, of version 1 or 2; cache that a group can release counts as free.
    """
    free = [_machine(proc)]
    for group in _groups(proc, cgroups):
        limit = _number(group / "memory.max") or _number(group / "memory.limit_in_bytes")
        used = _number(group / "memory.current") or _number(group / "memory.usage_in_bytes")
        if limit is not None and used is not None:
            free.append(max(0, limit - max(0, used - _cache(group))))
    return min(free)


def total_memory() -> int:
    """Memory of this machine in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def parse_size(text: str) -> int:
    """Parse a size such as ``20GB``, ``512MiB`` or ``1.5g``; returns bytes.

    Raises:
        ValueError: the text is not a size, or has no unit.
    """
    if re.fullmatch(r"\s*\d+(?:\.\d+)?\s*", text):
        raise ValueError(
            f"{text!r} has no unit: write {text.strip()}GB, or {text.strip()}B for bytes"
        )
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", text.lower())
    if not match or match[2] not in _UNITS:
        raise ValueError(f"{text!r} is not a size such as 20GB or 512MiB")
    return int(float(match[1]) * _UNITS[match[2]])


def _machine(proc: Path) -> int:
    if match := re.search(r"MemAvailable:\s+(\d+) kB", _text(proc / "meminfo")):
        return int(match[1]) * _KB
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # less, without the caches


def _groups(proc: Path, cgroups: Path) -> Iterator[Path]:
    """Control groups of this process that may limit its memory, with their parents."""
    for line in _text(proc / "self" / "cgroup").splitlines() or ("0::/", "1:memory:/"):
        number, controllers, path = line.split(":", 2)
        if number == "0":
            base = cgroups
        elif "memory" in controllers.split(","):
            base = cgroups / "memory"
        else:
            continue
        below = Path(path.lstrip("/"))
        # In a container the path may be that of the host, while the group itself is mounted.
        yield from (base / part for part in (below, *below.parents))


def _text(path: Path) -> str:
    """The text of a file; empty where it is hidden, as ``/proc`` is in some sandboxes."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _cache(group: Path) -> int:
    stat = _text(group / "memory.stat")
    match = re.search(r"^(?:total_)?inactive_file (\d+)$", stat, re.MULTILINE)
    return int(match[1]) if match else 0


def room(path: Path) -> tuple[int, str]:
    """Free space in bytes for this user at a path, and why nothing can be written; "" if it can.

    The function tries to write. A path that does not exist is judged by its nearest directory.
    """
    directory = next(p for p in (path, *path.absolute().parents) if p.exists())
    status = os.statvfs(directory)
    try:
        with tempfile.TemporaryFile(dir=directory) as stream:
            stream.write(bytes(1 << 16))
    except OSError as error:
        return status.f_bavail * status.f_frsize, error.strerror or str(error)
    return status.f_bavail * status.f_frsize, ""
