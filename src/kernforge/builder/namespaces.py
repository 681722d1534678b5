# SPDX-License-Identifier: Apache-2.0
"""Run one program in namespaces of its own: a program by itself, started by ``sandbox``.

``python -I -S enter.py SPEC PROGRAM [ARGUMENT...]``, where SPEC is JSON: ``binds`` as [source,
target, writable], ``links`` as [text, path], ``cwd``, ``tmp`` as the bytes of its /tmp, ``file``
and ``seconds`` as the most bytes of a file and CPU seconds of a process. The program sees a new
file system with exactly these binds, its own process numbers (it is number 2), no network and no
other process. Its exit status is passed on; a signal N that ends it, or a status 128 + N as of a
shell, ends this program too. What the machine forbids ends with status 126 and one line that says
which step it was.

It imports nothing but the standard library, and little of it: it starts once for every action.
Constants are those of Linux's headers.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys

_NEWNS, _NEWUTS, _NEWIPC = 0x00020000, 0x04000000, 0x08000000
_NEWUSER, _NEWPID, _NEWNET = 0x10000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _REMOUNT = 1, 2, 4, 32
_BIND, _REC, _PRIVATE = 4096, 16384, 1 << 18
_DETACH = 2
_PDEATHSIG = 1
_NO_NEW_PRIVILEGES = 38
# What a remount of a mount from outside must repeat: statvfs says it with these same bits.
_LOCKED = _RDONLY | _NOSUID | _NODEV | 8 | 1024 | 2048
_RELATIME = (4096, 1 << 21)  # statvfs's bit and mount's
INNER_ID = 1000
_FORBIDDEN = 126
_SIGNALLED, _LAST_SIGNAL = 128, 64
_STAGE = "/tmp"  # any directory; it is covered by a tmpfs in our own namespace only

_libc = ctypes.CDLL(None, use_errno=True)


def main(spec: dict[str, object], argv: list[str]) -> int:
    """Enter the namespaces, build the view, run the program, return its status."""
    _libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    uid, gid = os.geteuid(), os.getegid()
    flags = _NEWUSER | _NEWNS | _NEWPID | _NEWNET | _NEWIPC | _NEWUTS
    _check(_libc.unshare(flags), "unshare")
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{INNER_ID} {uid} 1")
    _write("/proc/self/gid_map", f"{INNER_ID} {gid} 1")
    _view(spec["binds"], spec["links"], f"size={spec['tmp']}")  # type: ignore[arg-type]
    os.chdir(str(spec["cwd"]))
    for what, most in ((resource.RLIMIT_FSIZE, "file"), (resource.RLIMIT_CPU, "seconds")):
        resource.setrlimit(what, (spec[most], spec[most]))  # type: ignore[arg-type]
    init = os.fork()
    if init == 0:
        os._exit(_init(argv))
    return _status(os.waitpid(init, 0)[1])


def _init(argv: list[str]) -> int:
    """Be process 1: start the program, reap whatever is orphaned, end when the program ends."""
    _libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _check(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no new privileges")
    program = os.fork()
    if program == 0:
        try:
            os.execv(argv[0], argv)  # noqa: S606 - a program is what this is for
        except OSError as error:
            print(f"{argv[0]}: {error.strerror}", file=sys.stderr, flush=True)
            os._exit(127)
    while True:
        pid, status = os.wait()
        if pid == program:
            return _status(status)


def _view(binds: list[tuple[str, str, bool]], links: list[tuple[str, str]], tmp: str) -> None:
    """Replace the file system by one that holds the binds and links and nothing else."""
    _mount(None, "/", None, _REC | _PRIVATE)
    # The old root is moved below a stage first, so that the stage hides none of its directories.
    _mount("tmpfs", _STAGE, "tmpfs", _NOSUID | _NODEV)
    for name in ("old", "new"):
        os.mkdir(f"{_STAGE}/{name}")
    _pivot(_STAGE, f"{_STAGE}/old")
    os.chdir("/")
    _mount("tmpfs", "/new", "tmpfs", _NOSUID | _NODEV, "mode=0755")
    os.makedirs("/new/tmp", exist_ok=True)
    _mount("tmpfs", "/new/tmp", "tmpfs", _NOSUID | _NODEV, tmp)
    for text, path in links:
        os.makedirs(os.path.dirname(f"/new{path}"), exist_ok=True)
        os.symlink(text, f"/new{path}")
    for source, target, writable in binds:
        _bind(f"/old{source}", f"/new{target}", writable=writable)
    _mount(None, "/new", None, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)
    os.chdir("/new")
    _pivot(".", ".")
    _check(_libc.umount2(b".", _DETACH), "umount of the old root")
    os.chdir("/")


def _bind(source: str, target: str, *, writable: bool) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    _mount(source, target, None, _BIND | _REC)
    if writable:
        return
    for mounted in (target, *_mounts_below(target)):
        flags = os.statvfs(mounted).f_flag
        keep = (flags & _LOCKED) | (_RELATIME[1] if flags & _RELATIME[0] else 0)
        _mount(None, mounted, None, _REMOUNT | _BIND | _RDONLY | keep)


def _mounts_below(target: str) -> list[str]:
    with open("/old/proc/self/mountinfo") as stream:
        points = [line.split()[4] for line in stream]
    decoded = [p.encode().decode("unicode_escape") if "\\" in p else p for p in points]
    return [point for point in decoded if point.startswith(f"{target}/")]


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, data: str | None = None
) -> None:
    texts = [None if t is None else os.fsencode(t) for t in (source, target, kind, data)]
    done = _libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])
    _check(done, f"mount {source or ''} on {target}")


def _pivot(new: str, old: str) -> None:
    numbers = {"x86_64": 155, "aarch64": 41}
    number = numbers[os.uname().machine]
    _check(_libc.syscall(number, os.fsencode(new), os.fsencode(old)), "pivot_root")


def _write(path: str, text: str) -> None:
    with open(path, "w") as stream:
        stream.write(text)


def _check(returned: int, step: str) -> None:
    if returned != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{step}: {os.strerror(number)}")


def _status(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else _SIGNALLED - code


if __name__ == "__main__":
    try:
        code = main(json.loads(sys.argv[1]), sys.argv[2:])
    except OSError as error:
        print(f"sandbox: {error.strerror or error}", file=sys.stderr)
        code = _FORBIDDEN
    if _SIGNALLED < code <= _SIGNALLED + _LAST_SIGNAL:
        os.kill(os.getpid(), code - _SIGNALLED)
    sys.exit(code)
