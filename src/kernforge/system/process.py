# SPDX-License-Identifier: Apache-2.0
"""The only module that starts programs.

A command is data. It runs without a shell, in its own process group, with exactly the given
environment; when this process is interrupted, the whole group is killed. It is also killed when
this process ends in any other way, SIGKILL included: a small program that is started once reads
from a pipe what runs, and kills what is left when the pipe ends.

Where this process ignores SIGCHLD, or another part of it reaps all children, the exit status of a
child is lost: there a program is the child of a small one, which reports how it ended.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, NoReturn, TypeAlias

from kernforge.system import files
from kernforge.system.forks import free_in_child
from kernforge.system.memory_meter import Meter, descendants

_PRINTED = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program to start.

    Attributes:
        cwd: working directory; None for that of this process.
        env: the environment of the program; None inherits that of this process.
        inherited: patterns of names of what it inherits then.
        added: variables that are set besides those of ``env``.
        stdin: a line that the program reads.
        timeout: seconds after which the program is killed; None for no limit.
    """

    argv: tuple[str, ...]
    cwd: Path | None = None
    env: Mapping[str, str] | None = None
    inherited: tuple[str, ...] = ("*",)
    added: Mapping[str, str] = field(default_factory=dict)
    stdin: str = ""
    timeout: float | None = None

    def variables(self) -> dict[str, str]:
        """The whole environment of the program."""
        if self.env is not None:
            return {**self.env, **self.added}
        ours = os.environ
        inherited = {n: ours[n] for n in ours if any(fnmatchcase(n, p) for p in self.inherited)}
        return {**inherited, **self.added}


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The result of a program.

    Attributes:
        returncode: exit status; the negative number of the signal that ended the program.
        cpu_s: user and system seconds of the program and of the children that it waited for.
        peak_bytes: highest memory of the program and of all processes that it started; 0 if it
            was too small to be measured.
    """

    returncode: int
    stdout: str
    stderr: str
    wall_s: float = 0.0
    cpu_s: float = 0.0
    timed_out: bool = False
    peak_bytes: int = 0


Runner: TypeAlias = Callable[[Command], Completed]
"""Runs a command to its end as ``run`` does; tests pass a table of answers."""


def run(command: Command) -> Completed:
    """Start a program and wait for its end.

    A program whose exit status is lost to another part of this process is run once more.

    Raises:
        FileNotFoundError: the program does not exist.
        StorageError: there is no space for its output.
    """
    global _reaped  # noqa: PLW0603 - one value of the process, as its children are
    if not _reaped and signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL:
        done = _run(command, command.argv)
        if done.returncode != _LOST:
            return done
        _reaped = True
    done = _run(command, (sys.executable, "-I", "-S", "-c", _KEEPER, _ENDED, *command.argv))
    stderr, said, report = done.stderr.rpartition(_ENDED)
    if not said:  # it was killed with its keeper
        return replace(done, returncode=-signal.SIGKILL)
    code, number, cpu_s, *_ = report.split()
    if number != "0":
        raise OSError(int(number), os.strerror(int(number)), command.argv[0])
    return replace(done, returncode=int(code), stderr=stderr, cpu_s=float(cpu_s))


def _run(command: Command, argv: tuple[str, ...]) -> Completed:
    """Run a program to its end; the exit status is ``_LOST`` where another has reaped it."""
    start = time.monotonic()
    directory = files.temporary()
    _guard.start()  # before the program, which would run unregistered meanwhile
    with files.scratch_file(directory) as out, files.scratch_file(directory) as err:
        process = subprocess.Popen(
            argv,
            cwd=command.cwd,
            env=command.variables(),
            stdin=subprocess.PIPE if command.stdin else subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        limit = math.inf if command.timeout is None else command.timeout
        timer = threading.Timer(limit, _end, (process,))
        meter.watch(process.pid)
        try:
            _running.add(process)
            if command.timeout is not None:
                timer.start()
            if process.stdin:
                with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
                    pipe.write(command.stdin.encode())
            _guard.tell("+", process.pid)
            try:
                # wait4 and not Popen.wait: only wait4 gives this child's CPU time.
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            except ChildProcessError:
                process.returncode, usage = _LOST, resource.struct_rusage((0,) * 16)
        except BaseException:
            _end(process)
            process.wait()
            raise
        finally:
            timer.cancel()
            _running.discard(process)
            _guard.tell("-", process.pid)
            measured = meter.leave(process.pid)
        wall_s = time.monotonic() - start
        return Completed(
            returncode=process.returncode,
            stdout=_read(out),
            stderr=_read(err),
            wall_s=wall_s,
            cpu_s=usage.ru_utime + usage.ru_stime,
            timed_out=process.returncode != 0 and wall_s >= limit,
            peak_bytes=max(measured.peak, _reported_peak(usage)),
        )


def replace_by(command: Command) -> NoReturn:
    """Run a program in the place of this process: it has its terminal, signals and exit status.

    Raises:
        FileNotFoundError: the program does not exist.
        PermissionError: it may not be executed.
    """
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    for name in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(name, signal.SIG_DFL)
    if command.cwd:
        os.chdir(command.cwd)
    try:
        os.execvpe(command.argv[0], command.argv, command.variables())  # noqa: S606 - as it says
    except OSError as error:
        error.filename = command.argv[0]  # not the last directory of PATH
        raise


def hand_on(number: int, _frame: object) -> NoReturn:
    """Handle a signal: hand it on to all that this process has started, and interrupt it."""
    for pid in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    raise KeyboardInterrupt


meter = Meter()
"""Measures every program that ``run`` starts."""

_running: set[subprocess.Popen[bytes]] = set()
os.register_at_fork(after_in_child=_running.clear)  # they are the parent's
_reaped = False  # whether another part of this process has reaped a child of ours

# Runs a program, then adds to its standard error: exit status, why it did not start, CPU seconds.
_ENDED, _LOST = "\x1ekernforge:", 1 << 16
_KEEPER = """
import os, signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
code = number = 0
try:
    code = subprocess.call(sys.argv[2:])
except OSError as error:
    number = error.errno
os.write(2, f"{sys.argv[1]}{code} {number} {sum(os.times()[2:4])} ".encode())
"""
# Kills the process groups that were registered and not unregistered, when its input is closed: when
# this process has ended.
_GUARD = """
while read -r sign group; do
  case $sign in
    +) running="$running $group " ;;
    -) running=${running%%" $group "*}${running#*" $group "} ;;
  esac
done
for group in $running; do kill -s KILL -- "-$group"; done
"""


class _Guard:
    """The program that kills running process groups when this process has ended."""

    def __init__(self) -> None:
        self._lock = free_in_child(threading.Lock())
        self._pipe: int | None = None
        os.register_at_fork(after_in_child=self._forget)

    def start(self) -> int:
        """Start the program unless it runs; returns the pipe to it."""
        with self._lock:
            if self._pipe is None:
                self._pipe = self._open()
            return self._pipe

    def tell(self, sign: str, group: int) -> None:
        """Register (``+``) or unregister (``-``) a process group."""
        pipe = self.start()
        # Without the program, groups are only killed by this process.
        with contextlib.suppress(OSError):
            os.write(pipe, f"{sign} {group}\n".encode())

    def _open(self) -> int:
        reads, writes = os.pipe()
        with contextlib.suppress(OSError):
            subprocess.Popen(
                ("/bin/sh", "-c", _GUARD),
                stdin=reads,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            ).returncode = 0  # It outlives this process and is not waited for.
        os.close(reads)
        return writes

    def _forget(self) -> None:
        """In a forked process, which has a guard of its own, or the parent's would not end."""
        if self._pipe is not None:
            os.close(self._pipe)
        self._pipe = None


_guard = _Guard()


def kill_all() -> None:
    """Kill every running program, and end waits for locks; for an interrupt in another thread."""
    files.cancel_waits()
    for process in tuple(_running):
        _kill_group(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and all that it started, also in other process groups."""
    started = descendants(process.pid)
    _kill_group(process)
    for pid in started:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _reported_peak(usage: resource.struct_rusage) -> int:
    """Peak memory of the largest process, as the system reports it; 0 if that is not reliable.

    A child's peak begins with the memory of its parent, so that only a larger value is its own.
    """
    own_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage.ru_maxrss * 1024 if usage.ru_maxrss > own_peak else 0


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _read(stream: IO[bytes]) -> str:
    """What a program printed; of more than anyone reads, the beginning and the end."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    if size <= 2 * _PRINTED:
        return stream.read().decode(errors="replace")
    first = stream.read(_PRINTED).decode(errors="replace")
    stream.seek(-_PRINTED, os.SEEK_END)
    left_out = f"\n... {size - 2 * _PRINTED:,} bytes are left out ...\n"
    return first + left_out + stream.read().decode(errors="replace")
