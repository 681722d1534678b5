# SPDX-License-Identifier: Apache-2.0
"""State of a git checkout, and a fresh checkout of a recorded commit.

A repository's configuration names programs that git starts: ``core.fsmonitor``, hooks, filters.
libgit2 starts none of them, so that an untrusted checkout is read by it alone; git itself only
clones addresses.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.artifact.metadata import GitState
from kernforge.errors import UsageError
from kernforge.system import files
from kernforge.system.process import Command, Completed, run

if TYPE_CHECKING:
    from collections.abc import Collection

    from pygit2 import Repository

_HINT = "give --source a checkout that has the commit that the artifact was built from"
# A transport may start any program: git has one, ext::, that does nothing else.
_TRANSPORTS = ("https", "http", "ssh", "git", "file")
_ADDRESS = re.compile(rf"(?:{'|'.join(_TRANSPORTS)})://[^-].*|(?:[\w.-]+@)?[\w.-]+:[^:].*")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_GUARDS = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"),
    *("-c", "safe.bareRepository=explicit", "-c", "submodule.recurse=false"),
    *("-c", "protocol.allow=never"),
    *(word for name in _TRANSPORTS for word in ("-c", f"protocol.{name}.allow=always")),
)
# What finds git and the user's own configuration, agent and proxies.
_INHERITED = (
    *("PATH", "HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_*", "GIT_ALLOW_PROTOCOL"),
    *("SSH_AUTH_SOCK", "*_proxy", "*_PROXY", "GIT_SSL_*", "SSL_CERT_*", "GIT_SSH*"),
)
_VARIABLES = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"}
_DEEPEST = 5
_SUBMODULE = re.compile(r"^\s*path\s*=\s*(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GitCheckout:
    """A checkout of a repository."""

    top: Path
    head: str
    repository: Repository


def find(path: Path) -> GitCheckout | None:
    """The checkout that holds a directory; None where there is none, or no commit in it.

    A bare repository in a subdirectory is none: a checkout is a directory with an entry ``.git``.
    """
    start = path.resolve()
    top = next((each for each in (start, *start.parents) if (each / ".git").exists()), None)
    if top is None:
        return None
    import pygit2  # noqa: PLC0415 - 0.1 s, which a project outside of a checkout does not pay
    from pygit2.enums import Option, RepositoryOpenFlag  # noqa: PLC0415

    # Nothing of the repository is run, so that it does not matter whose it is.
    pygit2.option(Option.SET_OWNER_VALIDATION, False)
    try:
        repository = pygit2.Repository(str(top / ".git"), RepositoryOpenFlag.NO_SEARCH)
        repository.workdir = str(top)  # core.worktree may name another directory
        return GitCheckout(top=top, head=str(repository.head.target), repository=repository)
    except (pygit2.GitError, KeyError, ValueError, OSError):
        return None


def state(checkout: GitCheckout, path: Path, sources: Collection[str] = ()) -> GitState | None:
    """Commit of a checkout, and whether files below a directory differ from it.

    None where its index cannot be read.

    Args:
        sources: files below the directory that differ also where git does not track them.
    """
    import pygit2  # noqa: PLC0415 - see find

    try:
        below = path.resolve().relative_to(checkout.top).as_posix()
        prefix = "" if below == "." else f"{below}/"
        index = checkout.repository.index
        dirty = any(f"{prefix}{name}" not in index for name in sources)
        dirty = dirty or _is_changed(checkout, prefix)
    except (pygit2.GitError, OSError):
        return None
    return GitState(commit=checkout.head, dirty=dirty)


def _is_changed(checkout: GitCheckout, prefix: str, depth: int = 0) -> bool:
    """Whether tracked files below a path differ from the commit, those of submodules too."""
    from pygit2.enums import FileMode  # noqa: PLC0415 - see find

    modules = {
        entry.path: str(entry.id)
        for entry in checkout.repository.index
        if entry.mode == FileMode.COMMIT and entry.path.startswith(prefix)
    }
    changes = checkout.repository.status(untracked_files="no")
    if any(path.startswith(prefix) and path.rstrip("/") not in modules for path in changes):
        return True
    for path, commit in modules.items():
        place = checkout.top / path
        inner = find(place) if (place / ".git").exists() and depth < _DEEPEST else None
        if inner and (inner.head != commit or _is_changed(inner, "", depth + 1)):
            return True
    return False


def tags(checkout: GitCheckout) -> tuple[str, ...]:
    """Names of the tags of the checked-out commit."""
    import pygit2  # noqa: PLC0415 - see find

    tags = []
    for name in checkout.repository.references:
        with contextlib.suppress(pygit2.GitError, KeyError, ValueError):
            tagged = name.startswith("refs/tags/") and checkout.repository.references[name]
            if tagged and str(tagged.peel(pygit2.Commit).id) == checkout.head:
                tags.append(name.removeprefix("refs/tags/"))
    return tuple(tags)


def empty_submodules(start: Path) -> tuple[str, ...]:
    """Paths of empty submodules, relative to the top of the checkout."""
    for top in (start, *start.parents):
        listed = top / ".gitmodules"
        if listed.is_file():
            paths = _SUBMODULE.findall(listed.read_text(encoding="utf-8", errors="replace"))
            return tuple(path for path in paths if not any((top / path).glob("*")))
        if (top / ".git").exists():
            break
    return ()


def below(root: Path, folder: str) -> Path:
    """Directory of a checkout, never outside of it."""
    path = root / folder
    if not path.resolve().is_relative_to(root.resolve()):
        raise UsageError(
            f"the folder {folder!r} leads out of the checkout",
            hint="nothing was read or written there; do not trust the statement or the repository",
        )
    return path


def clone(repository: str | None, commit: str, into: Path) -> None:
    """Check a commit of a repository out into a new directory.

    No program of the repository's is started: no hook, and no transport but git's own.

    Args:
        repository: its address, or the path of a checkout, which must stay as long as the new one
            is used; None where it is not known.
    """
    if not repository:
        raise UsageError(
            "the provenance of the artifact names no source repository",
            hint=f"give --source a checkout that has commit {commit}",
        )
    url = repository.removeprefix("git+")
    if not _COMMIT.fullmatch(commit):
        raise UsageError(f"{commit!r} is not a commit", hint=_HINT)
    checkout = find(Path(url)) if Path(url).is_dir() else None
    if checkout:
        _borrow(checkout, into)
    elif Path(url).exists() or _ADDRESS.fullmatch(url):
        options = ("--quiet", "--no-checkout", "--template=", "--no-recurse-submodules")
        done = _git("clone", *options, "--", url, str(into))
        if done.returncode != 0:
            words = done.stderr.strip().splitlines()
            said = words[-1] if words else "git refuses"
            raise UsageError(f"{url} cannot be cloned: {said}", hint=_HINT)
    else:
        raise UsageError(
            f"{url} cannot be cloned: it is not an address that git may be given here",
            hint=f"name a repository as {', '.join(f'{t}://' for t in _TRANSPORTS)} or a directory",
        )
    import pygit2  # noqa: PLC0415 - see find
    from pygit2.enums import CheckoutStrategy  # noqa: PLC0415

    new = pygit2.Repository(str(into / ".git"))
    try:
        wanted = new.revparse_single(commit).peel(pygit2.Commit)
        new.checkout_tree(wanted, strategy=CheckoutStrategy.FORCE)  # type: ignore[no-untyped-call]
    except (pygit2.GitError, KeyError, ValueError) as error:
        raise UsageError(f"{url} has no commit {commit}: {error}", hint=_HINT) from error
    new.set_head(wanted.id)


def _borrow(checkout: GitCheckout, into: Path) -> None:
    """Make a repository that borrows the objects of a checkout."""
    import pygit2  # noqa: PLC0415 - see find

    pygit2.init_repository(str(into))
    own = Path(checkout.repository.path)
    link = own / "commondir"  # of a worktree
    common = own / link.read_text(encoding="utf-8").strip() if link.is_file() else own
    alternates = into / ".git" / "objects" / "info" / "alternates"
    files.write_atomic(alternates, f"{common.resolve() / 'objects'}\n")


def _git(*arguments: str) -> Completed:
    argv = ("git", *_GUARDS, *arguments)
    try:
        return run(Command(argv=argv, inherited=_INHERITED, added=_VARIABLES))
    except FileNotFoundError:
        return Completed(returncode=127, stdout="", stderr="git is not installed")
