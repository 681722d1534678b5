# SPDX-License-Identifier: Apache-2.0
"""``kernforge dev``: watch a project, and run a round for every change.

A file is changed if its content differs from that of the last finished round: saving a file without
an edit is not a change, and the work of a round that was ended is done by the next one.
"""

from __future__ import annotations

import contextlib
import os
import queue
import stat
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from kernforge.dev import rounds
from kernforge.dev.rounds import GoodBuild, Round, RoundEvents, StoppedError, Work
from kernforge.dev.session import DevOptions, Session
from kernforge.errors import StorageError
from kernforge.project.api import is_skipped
from kernforge.system import digest, files
from kernforge.toolchain.lockfile import FILE_NAME as LOCK

_RESULTS = {"build", "dist", "result"}
_DEBOUNCE_MS, _STEP_MS = 200, 20
_LARGE = 4 << 20


class Watcher(Protocol):
    """Gets the state and the results of a session."""

    def state(self, state: str, words: str) -> None:
        """A stage begins or continues with another step."""
        ...

    def round(self, result: Round, good: GoodBuild | None) -> None:
        """A round ended."""
        ...


def place(root: Path, home: Path) -> Path:
    """The directory below ``KERNFORGE_HOME`` of a project's last good build."""
    return home / "dev" / f"{root.name}-{digest.sha256(str(root))[:12]}"


def once(options: DevOptions, watcher: Watcher) -> int:
    """Run one round; returns its exit code."""
    with _runner(options, watcher) as runner:
        runner.start(rounds.EVERYTHING, (), {})
        result = runner.messages.get()
        if not isinstance(result, Round):
            raise result or TypeError("a change ended the only round")
        return result.exit_code


def watch(options: DevOptions, watcher: Watcher) -> None:
    """Run a round now and one for every change, until an interrupt."""
    import watchfiles  # noqa: PLC0415 - an extra's

    end = threading.Event()

    def put_changes() -> None:
        try:
            for _ in watchfiles.watch(
                options.root,
                debounce=_DEBOUNCE_MS,
                step=_STEP_MS,
                stop_event=end,
                raise_interrupt=False,
                rust_timeout=_DEBOUNCE_MS,
                yield_on_timeout=False,
            ):
                runner.messages.put(None)
        except Exception as error:  # noqa: BLE001 - after any error no change would be found
            runner.messages.put(
                StorageError(
                    f"{options.root} cannot be watched: {error}",
                    hint="raise fs.inotify.max_user_watches (and max_user_instances) with sysctl, "
                    "set WATCHFILES_FORCE_POLLING=1, or run single rounds: kernforge dev --once",
                )
            )

    with _runner(options, watcher) as runner:
        thread = threading.Thread(target=put_changes, daemon=True)
        thread.start()
        try:
            _rounds(runner, options.root)
        finally:
            end.set()
            thread.join()


def _rounds(runner: _RoundRunner, root: Path) -> None:
    """Run rounds until an error or an interrupt."""
    done: Mapping[str, str] = {}
    runner.start(rounds.EVERYTHING, (), snapshot(root))
    while True:
        message = runner.messages.get()
        if isinstance(message, BaseException):
            raise message
        if message is not None:
            done = runner.seen
            runner.watcher.state("idle", "")
        # After a round, too: of a file that was saved before the watch began there is no message.
        now = snapshot(root)
        if now == runner.seen and (message is not None or runner.busy):
            continue
        runner.end()
        changed = rounds.changed(done, now)
        first = not done
        session = runner.session
        work = rounds.work(changed, built=session.built, passed=session.passed)
        work = rounds.EVERYTHING if first else work
        if work.nothing:
            done = now
            runner.watcher.state("idle", work.reason)
        else:
            runner.start(work, () if first else changed, now)


@contextlib.contextmanager
def _runner(options: DevOptions, watcher: Watcher) -> Iterator[_RoundRunner]:
    """A runner of a session, whose round ends with the block."""
    with files.staging(options.place) as scratch:
        runner = _RoundRunner(Session(options, scratch), watcher)
        try:
            yield runner
        finally:
            runner.end()


class _RoundRunner:
    """Runs rounds, one at a time, in threads.

    An interrupt reaches the main thread at any moment, also between a lock that it has taken and
    the block that releases it. So the main thread does nothing that takes Python's locks.

    Attributes:
        messages: gets each finished round, an error that ended one, and None where a file may have
            changed.
        seen: digests of the files that the last round began with.
    """

    def __init__(self, session: Session, watcher: Watcher) -> None:
        self.session, self.watcher = session, watcher
        self.messages: queue.SimpleQueue[Round | BaseException | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._events = RoundEvents(watcher.state)
        self._number = 0
        self.seen: Mapping[str, str] = {}

    @property
    def busy(self) -> bool:
        """Whether a round is running."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Work, changed: tuple[str, ...], seen: Mapping[str, str]) -> None:
        """Start a round; ``seen`` are the digests of the present files."""
        self._number += 1
        self._events, self.seen = RoundEvents(self.watcher.state), seen
        arguments = (self._number, changed, work, self._events)
        self._thread = threading.Thread(target=self._run, args=arguments, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the running round."""
        if self._thread is not None:
            self._events.end(self._thread)
            self._thread = None

    def _run(self, number: int, changed: tuple[str, ...], work: Work, events: RoundEvents) -> None:
        try:
            events.check()  # it may have been ended before this thread counted as running
            result = self.session.run(number, changed, work, events)
            self.watcher.round(result, self.session.good)
            self.messages.put(result)
        except StoppedError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self.messages.put(error)


def snapshot(root: Path) -> dict[str, str]:
    """Digest of every file that may matter, by path relative to the root.

    Results, caches, environments, names that begin with a dot, and the lock, which a build writes,
    are left out.
    """
    digests = {}
    for directory, names, files_ in os.walk(root):
        at_top = directory == str(root)
        names[:] = sorted(
            name
            for name in names
            if not is_skipped(Path(directory, name))
            and not name.endswith(".egg-info")
            and not (at_top and name in _RESULTS)
        )
        for name in sorted(files_):
            if name.startswith(".") or name.endswith((".pyc", "~")) or name == LOCK:
                continue
            path = Path(directory, name)
            # A file that cannot be read is not a change; the build reports a missing file.
            with contextlib.suppress(OSError):
                if file_digest := _digest(path):
                    digests[path.relative_to(root).as_posix()] = file_digest
    return digests


def _digest(path: Path) -> str:
    """Digest of a file's content, or its size and time if it is large; empty for special files."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        return ""
    if status.st_size > _LARGE:
        return f"{status.st_size} {status.st_mtime_ns}"
    return files.sha256_file(path)
