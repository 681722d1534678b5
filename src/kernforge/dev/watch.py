# SPDX-License-Identifier: Apache-2.0
"""``kernforge dev``: watch a project, and do a round for every change.

What changed is what differs from the files that the last finished round saw, by content: saving a file
as it was is no change, and what a round leaves undone because it was ended is done by the next.
"""

from __future__ import annotations

import contextlib
import os
import queue
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias, Union

from kernforge.dev import rounds
from kernforge.dev.control import RoundEvents, Stop, StoppedError
from kernforge.dev.session import DevOptions, Session
from kernforge.dev.warm_pytest import Spare
from kernforge.errors import StorageError
from kernforge.store.local import Store
from kernforge.system import digest, files
from kernforge.system.paths import home
from kernforge.toolchain.lockfile import FILE_NAME as LOCK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kernforge.dev.rounds import Good, Round, Work

# A finished round, what broke one, or None: some file may have changed.
_Told: TypeAlias = Union["Round", BaseException, None]

_SKIPPED = {"node_modules", "__pycache__"}
_RESULTS = {"build", "dist", "result"}
_DEBOUNCE_MS, _STEP_MS = 200, 20
_LARGE = 4 << 20


class Watcher(Protocol):
    """Told how a session goes."""

    def state(self, state: str, words: str) -> None:
        """A stage begins, or goes on with something else."""
        ...

    def round(self, one: Round, good: Good | None) -> None:
        """A round ended."""
        ...


def place(root: Path) -> Path:
    """Where a project's last good build is kept."""
    return home() / "dev" / f"{root.name}-{digest.sha256(str(root))[:12]}"


def once(options: DevOptions, watcher: Watcher) -> int:
    """Do one whole round; returns its exit code.

    Raises:
        KeyboardInterrupt: passed on after every program was ended.
    """
    told: queue.Queue[_Told] = queue.Queue()
    with _session(options) as session, _Runner(session, watcher, told) as runner:
        runner.start(rounds.EVERYTHING, (), {})
        return _round(told.get()).exit_code


def watch(options: DevOptions, watcher: Watcher) -> None:
    """Do a round now and one for every change, until interrupted.

    Raises:
        KeyboardInterrupt: passed on after every program was ended.
    """
    import watchfiles  # noqa: PLC0415 - an extra's

    told: queue.Queue[_Told] = queue.Queue()
    end = threading.Event()

    def look() -> None:
        try:
            for _ in watchfiles.watch(
                options.root,
                watch_filter=watchfiles.DefaultFilter(ignore_paths=[options.root / "build"]),
                debounce=_DEBOUNCE_MS,
                step=_STEP_MS,
                stop_event=end,
                raise_interrupt=False,
                rust_timeout=_DEBOUNCE_MS,
                yield_on_timeout=False,
            ):
                told.put(None)
        except Exception as error:  # noqa: BLE001 - whatever it is, no change would be seen again
            told.put(_unwatched(options.root, error))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        with _session(options) as session:
            _rounds(session, options.root, watcher, told)
    finally:
        end.set()
        looking.join()


def _unwatched(root: Path, error: Exception) -> StorageError:
    return StorageError(
        f"{root} cannot be watched: {error}",
        hint=(
            "raise fs.inotify.max_user_watches (and max_user_instances) by sysctl, set "
            "WATCHFILES_FORCE_POLLING=1, or do single rounds: kernforge dev --once"
        ),
    )


def _rounds(
    session: Session,
    root: Path,
    watcher: Watcher,
    told: queue.Queue[_Told],
) -> None:
    """Rounds for ever."""
    done: Mapping[str, str] = {}
    with _Runner(session, watcher, told) as runner:
        runner.start(rounds.EVERYTHING, (), snapshot(root))
        while True:
            said = told.get()
            if said is not None:
                _round(said)
                done = runner.seen
                watcher.state("idle", "")
                session.prepare()
                continue
            now = snapshot(root)
            if runner.busy and now == runner.seen:
                continue
            runner.end()
            changed = rounds.changed(done, now)
            first = not done
            work = rounds.EVERYTHING if first else rounds.work(changed, built=session.built)
            if work.nothing:
                done = now
                watcher.state("idle", work.reason)
            else:
                runner.start(work, () if first else changed, now)


class _Runner:
    """Runs rounds, one at a time, in threads.

    Args:
        session: what they work on.
        watcher: is told.
        told: gets each finished round.
    """

    def __init__(self, session: Session, watcher: Watcher, told: queue.Queue[_Told]) -> None:
        self._session, self._watcher, self._told = session, watcher, told
        self._thread: threading.Thread | None = None
        self._stop = Stop()
        self._number = 0
        self.seen: Mapping[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def busy(self) -> bool:
        """Whether a round runs."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Work, changed: tuple[str, ...], seen: Mapping[str, str]) -> None:
        """Start a round on files of these contents."""
        self._number += 1
        self._stop, self.seen = Stop(), seen
        self._thread = threading.Thread(
            target=self._run, args=(self._number, work, changed, self._stop), daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """End the round that runs."""
        if self._thread is not None:
            self._stop.end(self._thread)
            self._thread = None

    def _run(self, number: int, work: Work, changed: tuple[str, ...], stop: Stop) -> None:
        try:
            one = self._session.run(
                number, changed, work, RoundEvents(self._watcher.state, stop), stop
            )
            self._watcher.round(one, self._session.good)
            self._told.put(one)
        except StoppedError:
            pass
        except BaseException as error:  # noqa: BLE001 - it is raised where the session is
            self._told.put(error)


def _round(said: _Told) -> Round:
    """A finished round; raises what went wrong in it beyond what rounds tell."""
    if said is None:
        raise TypeError("a change is no round")
    if isinstance(said, BaseException):
        raise said
    return said


@contextlib.contextmanager
def _session(options: DevOptions) -> Iterator[Session]:
    # What a killed session left; those that run now touch theirs every round.
    Store(home() / "store").sweep(options.place, "tmp-*")
    with files.staging(options.place) as scratch, Spare(options.root, scratch) as spare:
        yield Session(options, scratch, spare)


def snapshot(root: Path) -> dict[str, str]:
    """Digest of every file that may matter, by its path from the root.

    Left out are results, caches, what begins with a dot, and the lock, which a build completes.
    """
    found = {}
    for directory, names, inside in os.walk(root):
        at_top = directory == str(root)
        names[:] = sorted(
            name
            for name in names
            if not name.startswith(".")
            and name not in _SKIPPED
            and not name.endswith(".egg-info")
            and not (at_top and name in _RESULTS)
        )
        for name in sorted(inside):
            if name.startswith(".") or name.endswith((".pyc", "~")) or name == LOCK:
                continue
            path = Path(directory, name)
            # One that is gone or may not be read is no change; the build says what it lacks.
            with contextlib.suppress(OSError):
                if digested := _digest(path):
                    found[path.relative_to(root).as_posix()] = digested
    return found


def _digest(path: Path) -> str:
    """Of a file's content, or of its size and time; empty for a pipe and the like."""
    said = path.stat()
    if not stat.S_ISREG(said.st_mode):
        return ""
    if said.st_size > _LARGE:
        return f"{said.st_size} {said.st_mtime_ns}"
    return files.sha256_file(path)
