# SPDX-License-Identifier: Apache-2.0
"""Ask git about a checkout without obeying what its repository says.

A repository's configuration names programs that git starts: ``core.fsmonitor``, hooks, filters,
transports. So git never sees it. It works in a git directory of ours, which holds the commit that
is checked out and the tags, and borrows objects, index and files from the checkout. Only the
user's own configuration counts, and of the environment what finds that and git itself.

What git itself would find is not looked for: a checkout is a directory with an entry ``.git``, so
that a bare repository in a subdirectory is none.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.artifact.metadata import GitState
from kernforge.errors import IntegrityError
from kernforge.system import files, untrusted
from kernforge.system.process import Command, Completed, run

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

# What a repository may say of itself: how its files are stored, and nothing that names a program.
_SETTINGS = {
    *("core.repositoryformatversion", "core.filemode", "core.ignorecase", "core.symlinks"),
    *("core.autocrlf", "core.eol", "core.precomposeunicode", "extensions.objectformat"),
}
_VALUE = re.compile(r"[A-Za-z0-9]+")
_GUARDS = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"),
    *("-c", "safe.bareRepository=explicit", "-c", "submodule.recurse=false"),
    *("-c", "core.pager=cat", "-c", "core.alternateRefsCommand=true", "-c", "gc.auto=0"),
)
# What finds git and the user's own configuration.
_INHERITED = ("PATH", "HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_*", "GIT_ALLOW_PROTOCOL")
_FIXED_VARIABLES = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
}
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SMALL = 1 << 20
_LARGEST_REFS = 64 << 20
_SYMBOLIC = 5
_TIMEOUT_S = 120.0
_SUBMODULE = "160000"


@dataclass(frozen=True, slots=True, kw_only=True)
class GitCheckout:
    """A checkout of a repository.

    Attributes:
        directory: its own part of the repository: ``HEAD`` and the index.
        common: the part that all checkouts of the repository share.
        head: the commit that is checked out.
    """

    top: Path
    directory: Path
    common: Path
    head: str


def find(path: Path) -> GitCheckout | None:
    """The checkout that holds a directory; None where there is none, or no commit in it."""
    start = path.resolve()
    for top in (start, *start.parents):
        entry = top / ".git"
        if entry.is_dir():
            return _repository(top, entry)
        if entry.is_file():
            with contextlib.suppress(OSError, IntegrityError):
                text = _small(top, ".git").strip()
                return _repository(top, top / text.removeprefix("gitdir:").strip())
            return None
    return None


def state(repository: GitCheckout, path: Path, sources: Collection[str] = ()) -> GitState | None:
    """Commit of a checkout, and whether what lies below a directory differs from it.

    None on a machine without git, and where git cannot say.

    Args:
        sources: files below the directory that differ also where git does not track them.
    """
    top = path.resolve()
    changed = _changed(repository, top, depth=0)
    if changed is False and sources:
        with _own_directory(repository) as directory:
            paths = (str(top / name) for name in sources)
            words = ("--literal-pathspecs", "ls-files", "--others", "-z", "--", *paths)
            changed = bool(_git(directory, repository, *words).stdout)
    return None if changed is None else GitState(commit=repository.head, dirty=changed)


def tags(repository: GitCheckout) -> tuple[str, ...]:
    """Names of the tags of the commit that is checked out."""
    with _own_directory(repository) as directory:
        done = _git(directory, repository, "tag", "--points-at", "HEAD")
    return tuple(done.stdout.split()) if done.returncode == 0 else ()


@contextlib.contextmanager
def lent(repository: GitCheckout) -> Iterator[Path]:
    """A bare repository with a checkout's objects and its commit, to clone from."""
    with _own_directory(repository) as directory:
        alternates = f"{repository.common / 'objects'}\n"
        files.write_new(directory / "objects" / "info" / "alternates", alternates)
        files.write_new(directory / "refs" / "heads" / "lent", f"{repository.head}\n")
        yield directory


def command(
    *arguments: str,
    cwd: Path | None = None,
    added: Mapping[str, str] | None = None,
    transports: tuple[str, ...] = (),
    inherited: tuple[str, ...] = (),
    timeout: float | None = None,
) -> Command:
    """A command of git that starts no program that a repository names.

    Args:
        transports: ways to other repositories that it may use.
        inherited: variables that it inherits besides those that find the user's configuration.
        timeout: seconds after which it is killed.
    """
    allowed = [f"protocol.{name}.allow=always" for name in transports]
    options = [word for each in ("protocol.allow=never", *allowed) for word in ("-c", each)]
    return Command(
        argv=("git", *_GUARDS, *options, *arguments),
        cwd=cwd,
        inherited=(*_INHERITED, *inherited),
        added={**_FIXED_VARIABLES, **(added or {})},
        timeout=timeout,
    )


def _repository(top: Path, directory: Path) -> GitCheckout | None:
    with contextlib.suppress(OSError, IntegrityError):
        directory = directory.resolve(strict=True)
        common = directory
        if (directory / "commondir").is_file():
            common = (directory / _small(directory, "commondir").strip()).resolve(strict=True)
        head = _head(directory, common)
        if head and (common / "objects").is_dir():
            return GitCheckout(top=top, directory=directory, common=common, head=head)
    return None


def _head(directory: Path, common: Path) -> str:
    """The commit that ``HEAD`` stands for; empty where it stands for none."""
    text, where = _small(directory, "HEAD").strip(), common
    for _ in range(_SYMBOLIC):
        if not text.startswith("ref:"):
            break
        name = text.removeprefix("ref:").strip()
        if ".." in name.split("/") or not name.startswith("refs/"):
            return ""
        try:
            text = _small(where, name).strip()
        except FileNotFoundError:
            text = dict(_packed(common)).get(name, "")
    return text if _HASH.fullmatch(text) else ""


def _packed(common: Path) -> Iterator[tuple[str, str]]:
    """Names and hashes of ``packed-refs``."""
    try:
        data = untrusted.read_bytes(common, "packed-refs", limit=_LARGEST_REFS, hard_links=True)
    except FileNotFoundError:
        return
    for line in data.decode(errors="replace").splitlines():
        found, _, name = line.partition(" ")
        if _HASH.fullmatch(found) and name:
            yield name, found


def _tags(common: Path) -> dict[str, str]:
    found = {name: value for name, value in _packed(common) if name.startswith("refs/tags/")}
    root = common / "refs" / "tags"
    for path in root.rglob("*") if root.is_dir() and not root.is_symlink() else ():
        name = path.relative_to(common).as_posix()
        with contextlib.suppress(OSError, IntegrityError):
            value = _small(common, name).strip()
            if _HASH.fullmatch(value) and not name.endswith(".lock"):
                found[name] = value
    return found


def _small(root: Path, name: str) -> str:
    data = untrusted.read_bytes(root, name, limit=_SMALL, hard_links=True)
    return data.decode(errors="replace")


@contextlib.contextmanager
def _own_directory(repository: GitCheckout) -> Iterator[Path]:
    """A git directory of ours that stands for a checkout's."""
    with files.staging(files.temporary()) as directory:
        files.write_new(directory / "HEAD", f"{repository.head}\n")
        found = _tags(repository.common)
        refs = "".join(f"{value} {name}\n" for name, value in sorted(found.items()))
        files.write_new(directory / "packed-refs", f"# pack-refs with: sorted \n{refs}")
        files.write_new(directory / "config", _settings(repository, directory))
        for name in ("refs", "objects"):
            files.make_dir(directory / name)
        for path in repository.directory.glob("sharedindex.*"):
            files.symlink(str(path), directory / path.name)
        yield directory


def _settings(repository: GitCheckout, directory: Path) -> str:
    """The harmless part of a repository's configuration, as git's options."""
    copy = directory / "theirs"
    try:
        untrusted.copy_out(repository.common, "config", copy, limit=_SMALL, hard_links=True)
    except (FileNotFoundError, IntegrityError):
        return ""
    options = ("--file", str(copy), "--no-includes", "--null", "--list")
    done = attempt(command("config", *options, cwd=directory, timeout=_TIMEOUT_S))
    pairs = (entry.partition("\n")[::2] for entry in done.stdout.split("\0"))
    lines = []
    for name, value in pairs:
        if name.lower() in _SETTINGS and _VALUE.fullmatch(value):
            section, _, key = name.partition(".")
            lines.append(f"[{section}]\n\t{key} = {value}\n")
    return "".join(lines)


def _git(directory: Path, repository: GitCheckout, *arguments: str) -> Completed:
    env = {
        "GIT_DIR": str(directory),
        "GIT_OBJECT_DIRECTORY": str(repository.common / "objects"),
        "GIT_INDEX_FILE": str(repository.directory / "index"),
        "GIT_WORK_TREE": str(repository.top),
    }
    return attempt(command(*arguments, cwd=repository.top, added=env, timeout=_TIMEOUT_S))


def attempt(wanted: Command) -> Completed:
    """What a command of git prints; on a machine without git it fails."""
    try:
        return run(wanted)
    except FileNotFoundError:
        return Completed(returncode=127, stdout="", stderr="git is not installed")


def _changed(repository: GitCheckout, path: Path, *, depth: int) -> bool | None:
    """Whether tracked files below a path differ from the commit; None where git cannot say."""
    with _own_directory(repository) as directory:
        # Git would look into submodules with their own configuration: that is done below.
        options = ("--porcelain", "-uno", "--ignore-submodules=dirty", "--", str(path))
        done = _git(directory, repository, "--literal-pathspecs", "status", *options)
        if done.returncode != 0:
            return None
        if done.stdout.strip():
            return True
        entries = ("ls-files", "-s", "-z", "--", str(path))
        listed = _git(directory, repository, "--literal-pathspecs", *entries)
    for entry in listed.stdout.split("\0"):
        kind, _, rest = entry.partition(" ")
        submodule = repository.top / rest.partition("\t")[2]
        if kind != _SUBMODULE or not (submodule / ".git").exists() or depth > _SYMBOLIC:
            continue
        inner = find(submodule)
        if inner and inner.top == submodule.resolve():
            changed = _changed(inner, inner.top, depth=depth + 1)
            if changed or changed is None:
                return True
    return False
