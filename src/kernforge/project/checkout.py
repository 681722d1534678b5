# SPDX-License-Identifier: Apache-2.0
"""A fresh git checkout of a recorded commit."""

from __future__ import annotations

from pathlib import Path

from kernforge.errors import UsageError
from kernforge.system.process import Command, Completed, run

_HINT = "give --source a checkout that has the commit that the artifact was built from"


def top(path: Path) -> Path | None:
    """Top of the git checkout that holds a directory; None where there is none."""
    done = _git("-C", str(path), "rev-parse", "--show-toplevel")
    return Path(done.stdout.strip()) if done.returncode == 0 else None


def clone(repository: str | None, commit: str, into: Path) -> None:
    """Clone a repository and check a commit out.

    Args:
        repository: its address, or the path of a checkout; None where it is not known.
        commit: the commit.
        into: the new directory.

    Raises:
        UsageError: it cannot be had.
    """
    if not repository:
        raise UsageError(
            "the artifact names no repository of its sources",
            hint=f"give --source a checkout that has commit {commit}",
        )
    url = repository.removeprefix("git+")
    _require(f"{url} cannot be cloned", "clone", "--quiet", "--no-checkout", "--", url, str(into))
    problem = f"{url} has no commit {commit}"
    _require(problem, "-C", str(into), "checkout", "--quiet", "--detach", commit)


def _require(problem: str, *arguments: str) -> None:
    done = _git(*arguments)
    if done.returncode != 0:
        words = done.stderr.strip().splitlines()
        raise UsageError(f"{problem}: {words[-1] if words else 'git refuses'}", hint=_HINT)


def _git(*arguments: str) -> Completed:
    """What git prints; on a machine without git it fails."""
    try:
        return run(Command(argv=("git", *arguments)))
    except FileNotFoundError:
        return Completed(returncode=127, stdout="", stderr="git is not installed")
