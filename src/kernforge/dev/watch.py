# SPDX-License-Identifier: Apache-2.0
"""``kernforge dev``: watch a project, and run a round for every change.

A file is changed if its content differs from that of the last finished round: saving a file without
an edit is not a change, and the work of a round that was ended is done by the next one.
"""

from __future__ import annotations

import contextlib
import queue
import stat
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from kernforge.dev import rounds
from kernforge.dev.report import View
from kernforge.dev.rounds import RoundEvents, StoppedError
from kernforge.dev.session import DevOptions, Session
from kernforge.errors import StorageError
from kernforge.project import api as projects
from kernforge.system import digest, files
from kernforge.toolchain.lockfile import FILE_NAME as LOCK

_DEBOUNCE_MS, _STEP_MS = 200, 20
_LARGE = 4 << 20


def place(root: Path, home: Path) -> Path:
    """The directory below ``KERNFORGE_HOME`` of a project's last good build."""
    return home / "dev" / f"{root.name}-{digest.sha256(str(root))[:12]}"


def once(options: DevOptions, view: View) -> int:
    """Run one round; returns its exit code."""
    with files.staging(options.place) as scratch:
        session, events = Session(options, scratch), RoundEvents(view.state)
        result = session.run(1, (), rounds.EVERYTHING, events)
        view.round(result, session.good)
        return result.exit_code


def watch(options: DevOptions, view: View) -> None:
    """Run a round now and one for every change, until an interrupt."""
    done: Mapping[str, str] = {}
    number = 0
    with files.staging(options.place) as scratch, _Changes(options.root) as changes:
        session = Session(options, scratch)
        while True:
            # After a round, too: of a file that was saved before the watch began nothing is told.
            now = snapshot(options.root)
            if now == done:
                changes.wait()
                continue
            changed = rounds.changed(done, now) if done else ()
            work = rounds.work(changed, built=session.built, passed=session.passed)
            work = work if done else rounds.EVERYTHING
            if work.nothing:
                done = now
                view.state("idle", work.reason)
                continue
            number += 1
            try:
                with changes.ending(RoundEvents(view.state), now) as events:
                    result = session.run(number, changed, work, events)
            except StoppedError:
                continue
            view.round(result, session.good)
            done = now
            view.state("idle", "")


class _Changes:
    """Watches a project in a thread, and ends the running round after a change of content."""

    def __init__(self, root: Path) -> None:
        import watchfiles  # noqa: PLC0415 - an extra's

        self._changes = watchfiles.watch
        self._root = root
        self._messages: queue.SimpleQueue[StorageError | None] = queue.SimpleQueue()
        self._round: tuple[RoundEvents, Mapping[str, str]] | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def wait(self) -> None:
        """Return when a file may have changed, or raise what ended the watch."""
        if error := self._messages.get():
            raise error

    @contextlib.contextmanager
    def ending(self, events: RoundEvents, seen: Mapping[str, str]) -> Iterator[RoundEvents]:
        """End the round of a block as soon as the files differ from these digests."""
        self._round = events, seen
        try:
            yield events
        finally:
            self._round = None
            events.over = True

    def _watch(self) -> None:
        try:
            for _ in self._changes(
                self._root,
                debounce=_DEBOUNCE_MS,
                step=_STEP_MS,
                stop_event=self._end,
                raise_interrupt=False,
                rust_timeout=_DEBOUNCE_MS,
                yield_on_timeout=False,
            ):
                self._messages.put(None)
                running = self._round
                if running and snapshot(self._root) != running[1]:
                    running[0].end()
        except Exception as error:  # noqa: BLE001 - after any error no change would be found
            hint = (
                "raise fs.inotify.max_user_watches (and max_user_instances) with sysctl, set "
                "WATCHFILES_FORCE_POLLING=1, or run single rounds: kernforge dev --once"
            )
            text = f"{self._root} cannot be watched: {error}"
            self._messages.put(StorageError(text, hint=hint))


def snapshot(root: Path) -> dict[str, str]:
    """Digest of every file that may matter, by path relative to the root.

    The lock, which a build writes, is left out.
    """
    digests = {}
    for name, path in projects.walk(root):
        # A file that cannot be read is not a change; the build reports a missing file.
        with contextlib.suppress(OSError):
            if path.name != LOCK and (file_digest := _digest(path)):
                digests[name] = file_digest
    return digests


def _digest(path: Path) -> str:
    """Digest of a file's content, or its size and time if it is large; empty for special files."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        return ""
    if status.st_size > _LARGE:
        return f"{status.st_size} {status.st_mtime_ns}"
    return files.sha256_file(path)
