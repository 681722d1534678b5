# SPDX-License-Identifier: Apache-2.0
"""A fresh git checkout of a recorded commit."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from kernforge.errors import UsageError
from kernforge.project import git

_HINT = "give --source a checkout that has the commit that the artifact was built from"
# A transport may start any program: git has one, ext::, that does nothing else.
_TRANSPORTS = ("https", "http", "ssh", "git", "file")
_ADDRESS = re.compile(rf"(?:{'|'.join(_TRANSPORTS)})://[^-].*|(?:[\w.-]+@)?[\w.-]+:[^:].*")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
# What reaches a repository: the user's agent and proxies.
_NETWORK = ("SSH_AUTH_SOCK", "*_proxy", "*_PROXY", "GIT_SSL_*", "SSL_CERT_*", "GIT_SSH*")


def top(path: Path) -> Path | None:
    """Top of the git checkout that holds a directory; None where there is none."""
    found = git.find(path)
    return found.top if found else None


def below(root: Path, folder: str) -> Path:
    """A directory of a checkout, by its path there with ``/``.

    Raises:
        UsageError: the path leads out of the checkout, as a link that is committed there may.
    """
    path = root / folder
    if not path.resolve().is_relative_to(root.resolve()):
        raise UsageError(
            f"the folder {folder!r} leads out of the checkout",
            hint="nothing was read or written there; the statement or the repository is not honest",
        )
    return path


def clone(repository: str | None, commit: str, into: Path) -> None:
    """Clone a repository and check a commit out.

    No program of the repository's is started: no hook, and no transport but git's own.

    Args:
        repository: its address, or the path of a checkout; None where it is not known.

    Raises:
        UsageError: it cannot be had.
    """
    if not repository:
        raise UsageError(
            "the artifact names no repository of its sources",
            hint=f"give --source a checkout that has commit {commit}",
        )
    url = repository.removeprefix("git+")
    if not _COMMIT.fullmatch(commit):
        raise UsageError(f"{commit!r} is not a commit", hint=_HINT)
    with _place(url) as place:
        options = ("--quiet", "--no-checkout", "--template=", "--no-recurse-submodules")
        _require(f"{url} cannot be cloned", "clone", *options, "--", place, str(into))
        problem = f"{url} has no commit {commit}"
        _require(problem, "-C", str(into), "checkout", "--quiet", "--detach", commit)


@contextlib.contextmanager
def _place(url: str) -> Iterator[str]:
    """What git clones: an address, or a repository of ours that lends a checkout's objects."""
    if Path(url).is_dir() and (found := git.find(Path(url))):
        with git.lent(found) as directory:
            yield str(directory)
    elif Path(url).exists() or _ADDRESS.fullmatch(url):
        yield url
    else:
        raise UsageError(
            f"{url} cannot be cloned: it is not an address that git may be given here",
            hint=f"name a repository as {', '.join(f'{t}://' for t in _TRANSPORTS)} or a directory",
        )


def _require(problem: str, *arguments: str) -> None:
    done = git.attempt(git.command(*arguments, transports=_TRANSPORTS, inherited=_NETWORK))
    if done.returncode != 0:
        words = done.stderr.strip().splitlines()
        raise UsageError(f"{problem}: {words[-1] if words else 'git refuses'}", hint=_HINT)
