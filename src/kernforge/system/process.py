# SPDX-License-Identifier: Apache-2.0
"""The door to other programs: the only module that starts one.

A command is data. It runs without a shell, in its own process group, with exactly the environment
it names; when this process is interrupted, the whole group is killed.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol

from kernforge.system import files
from kernforge.system.memory_meter import Meter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SIGNALLED = 128
_TIDY_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program to start.

    Attributes:
        argv: program and arguments.
        cwd: where it runs.
        env: its whole environment; None inherits ours.
        timeout: seconds after which it is killed; None waits for ever.
        tidies: whether it ends what it has started itself, in other process groups, when it is
            told to: it is then given some seconds for that.
        nice: how far it yields to other programs, as ``nice`` counts; for work in the background.
    """

    argv: tuple[str, ...]
    cwd: Path | None = None
    env: Mapping[str, str] | None = None
    timeout: float | None = None
    tidies: bool = False
    nice: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """How a program ended.

    Attributes:
        returncode: its exit status; negative is the signal that ended it.
        stdout: what it printed, decoded with replacement characters.
        stderr: likewise.
        wall_s: seconds from start to end.
        cpu_s: user and system seconds of it and of the children that it waited for.
        timed_out: whether it was killed for taking too long.
        peak_bytes: highest memory of it and of all that it started; 0 when too small to see.
    """

    returncode: int
    stdout: str
    stderr: str
    wall_s: float = 0.0
    cpu_s: float = 0.0
    timed_out: bool = False
    peak_bytes: int = 0


class Runner(Protocol):
    """Anything that can run a command; tests pass a table of answers."""

    def __call__(self, command: Command) -> Completed:
        """Run to the end. Raises FileNotFoundError when the program does not exist."""
        ...


def _output_file() -> IO[bytes]:
    """A file for the output of a program."""
    place = files.temporary()
    with files.disk_errors(f"writing temporary files to {place}"):
        return tempfile.TemporaryFile(dir=place)


def run(command: Command) -> Completed:
    """Start a program, wait for it and tell how it ended.

    Raises:
        FileNotFoundError: there is no such program.
        StorageError: what it prints cannot be kept.
    """
    start = time.monotonic()
    with _output_file() as out, _output_file() as err:
        process = subprocess.Popen(
            command.argv,
            cwd=command.cwd,
            env=None if command.env is None else dict(command.env),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        _running.add(process)
        if command.nice:
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, process.pid, command.nice)
        if command.tidies:
            _tidying[process.pid] = 0.0
        meter.watch(process.pid)
        try:
            timed_out = not _ended_within(process.pid, command.timeout)
            if timed_out:
                _end(process)
            # wait4 and not Popen.wait: it alone tells this child's CPU time.
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        except BaseException:
            _end(process)
            process.wait()
            raise
        finally:
            _running.discard(process)
            _tidying.pop(process.pid, None)
            seen = meter.leave(process.pid)
        return Completed(
            returncode=process.returncode,
            stdout=_read(out),
            stderr=_read(err),
            wall_s=time.monotonic() - start,
            cpu_s=usage.ru_utime + usage.ru_stime,
            timed_out=timed_out,
            peak_bytes=max(seen.peak, _told_peak(usage)),
        )


_LONGEST_LINE = 1 << 20
_PROCESS_CLOCK = 2  # CPUCLOCK_SCHED of the kernel: all threads, user and system time.


class PipedProcess:
    """A program that receives and sends lines over a pair of pipes, apart from its own output.

    The last two words of its argv are the numbers of its ends: where it reads, where it writes. It
    leads a process group, which can be stopped and continued as a whole.

    Args:
        command: what to start; its timeout is not used.

    Raises:
        FileNotFoundError: there is no such program.
    """

    def __init__(self, command: Command) -> None:
        their_in, self._to = os.pipe()
        self._from, their_out = os.pipe()
        self._output = _output_file()
        self._rest = b""
        try:
            self._process = subprocess.Popen(
                (*command.argv, str(their_in), str(their_out)),
                cwd=command.cwd,
                env=None if command.env is None else dict(command.env),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=(their_in, their_out),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._to)
            os.close(self._from)
            self._output.close()
            raise
        finally:
            os.close(their_in)
            os.close(their_out)
        _running.add(self._process)

    def send(self, line: str) -> None:
        """Send a line; nothing happens when the program has ended."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._to, line.encode() + b"\n")

    def receive(self, timeout: float) -> str | None:
        """The next line, of at most a mebibyte.

        None when the program ended, sent a longer one, or sent none for so many seconds.
        """
        until = time.monotonic() + timeout
        while b"\n" not in self._rest:
            if len(self._rest) > _LONGEST_LINE:
                return None
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._from], [], [], left)[0]:
                return None
            if not (more := os.read(self._from, 1 << 16)):
                return None
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace")

    def pause(self) -> None:
        """Stop every thread of its process group where it is."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused program go on."""
        self._signal(signal.SIGCONT)

    def cpu_ns(self) -> int:
        """Nanoseconds of processor time that the program's threads have taken; 0 when it ended.

        The clock's number is made of the process id as Linux does (``clock_getcpuclockid(3)``).
        """
        with contextlib.suppress(OSError):
            return time.clock_gettime_ns((~self._process.pid << 3) | _PROCESS_CLOCK)
        return 0

    def ended(self) -> int | None:
        """Its exit status, negative the signal that ended it; None while it runs."""
        return self._process.poll()

    def wait(self) -> int:
        """Wait for its end; returns its exit status as ``ended`` does."""
        return self._process.wait()

    def last_words(self) -> str:
        """What it printed last, at most ten lines."""
        return "\n".join(_read(self._output).splitlines()[-10:])

    def kill(self) -> None:
        """End its process group at once: none of its exit hooks runs."""
        _kill_group(self._process)
        self._process.wait()
        _running.discard(self._process)
        os.close(self._to)
        os.close(self._from)
        self._output.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def attached(command: Command) -> int:
    """Run a program on our own terminal to its end; returns its exit code, as a shell would.

    An interrupt at the terminal is the program's: we wait on.

    Raises:
        FileNotFoundError: there is no such program.
    """
    env = None if command.env is None else dict(command.env)
    with subprocess.Popen(command.argv, cwd=command.cwd, env=env) as process:
        # Only now, or the program would inherit that it is ignored.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            code = process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
    return code if code >= 0 else _SIGNALLED - code


meter = Meter()
"""Watches every program that ``run`` starts."""

_running: set[subprocess.Popen[bytes]] = set()
# Those that tidy up -> when they were told to; 0: not yet.
_tidying: dict[int, float] = {}


def kill_all() -> None:
    """Kill every program that is still running; for an interrupt in another thread.

    One that tidies up is told to, and killed by a call some seconds later.
    """
    for process in tuple(_running):
        told = _tidying.get(process.pid)
        if told == 0:
            _tidying[process.pid] = time.monotonic()
            _signal_group(process, signal.SIGTERM)
        elif told is None or time.monotonic() - told > _TIDY_S:
            _kill_group(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a program, after some seconds if it is one that tidies up."""
    if process.pid in _tidying:
        _signal_group(process, signal.SIGTERM)
        _ended_within(process.pid, _TIDY_S)
    _kill_group(process)


def _told_peak(usage: resource.struct_rusage) -> int:
    """Peak of the largest single process as the system tells it, where that can be believed.

    A child's figure begins with what its parent had used, so a smaller one says nothing.
    """
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage.ru_maxrss * 1024 if usage.ru_maxrss > own else 0


def _ended_within(pid: int, seconds: float | None) -> bool:
    """Wait until the process has ended, without reaping it; False when time runs out first."""
    handle = os.pidfd_open(pid)
    try:
        ready, _, _ = select.select([handle], [], [], seconds)
        return bool(ready)
    finally:
        os.close(handle)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    _signal_group(process, signal.SIGKILL)


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _read(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode(errors="replace")
