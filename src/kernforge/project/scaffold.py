# SPDX-License-Identifier: Apache-2.0
"""``kernforge new``: a kernel project that builds, passes its tests and is ready to be changed.

The files are in ``templates/``: ``common`` for every project, and a folder for each backend.
Three words in their names and texts stand for what the user chose: ``__HUB_NAME__``,
``__PYTHON_NAME__`` and ``__LICENSE__``; ``__BACKENDS__`` is the list in build.toml. A backend's
``build.toml`` is appended to the common one.
"""

from __future__ import annotations

import importlib.resources
import keyword
import re
from typing import TYPE_CHECKING

from kernforge.errors import UsageError
from kernforge.system.files import publish_tree, staging, write_new

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable
    from pathlib import Path

BACKENDS = ("cpu", "cuda")
"""What a new project can be made for."""

# The rule of build.toml's general.name.
_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
# SPDX expressions; nothing that would end a TOML string or a comment.
_LICENSE = re.compile(r"[A-Za-z0-9][-A-Za-z0-9.+() ]*")
# Names that the generated module uses itself.
_TAKEN = frozenset({"add_op_namespace_prefix", "annotations", "ops", "torch"})


def scaffold(
    name: str,
    *,
    dest: Path,
    backends: tuple[str, ...] = ("cuda", "cpu"),
    license: str = "Apache-2.0",  # noqa: A002 - the word that build.toml uses
) -> tuple[Path, ...]:
    """Write a new kernel project; it appears whole or not at all.

    Args:
        name: the kernel's name on a registry, as in ``"scaled-relu"``; the Python package has
            underscores for dashes.
        dest: the project's directory, which must not exist yet or must be empty.
        backends: some of ``BACKENDS``.
        license: an SPDX expression.

    Returns:
        The files, in the order of their names.

    Raises:
        UsageError: the name, a backend or the license is not usable, or something is at ``dest``.
    """
    chosen = _check(name, backends=backends, license=license)
    _check_free(dest)
    words = {
        "__HUB_NAME__": name,
        "__PYTHON_NAME__": name.replace("-", "_"),
        "__LICENSE__": license,
        "__BACKENDS__": ", ".join(f'"{backend}"' for backend in chosen),
    }
    files = render(chosen, words=words)
    with staging(dest.absolute().parent) as stage:
        tree = stage / "project"
        for path, text in files.items():
            write_new(tree / path, text)
        if not publish_tree(tree, dest):
            raise _occupied(dest)
    return tuple(dest / path for path in files)


def render(backends: tuple[str, ...], *, words: Mapping[str, str]) -> dict[str, str]:
    """The project's files, path to text, in the order of their paths."""
    root = importlib.resources.files("kernforge") / "templates"
    files: dict[str, str] = {}
    for part in ("common", *backends):
        for path, text in _texts(root / part, prefix=""):
            target = _fill(path, words).replace("gitignore", ".gitignore")
            # Only build.toml is in several parts.
            files[target] = files.get(target, "") + _fill(text, words)
    return dict(sorted(files.items()))


def _texts(folder: Traversable, *, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _texts(entry, prefix=f"{prefix}{entry.name}/")
        elif entry.is_file():
            yield prefix + entry.name, entry.read_text(encoding="utf-8")


def _fill(text: str, words: Mapping[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text


def _check(name: str, *, backends: tuple[str, ...], license: str) -> tuple[str, ...]:  # noqa: A002
    """The backends in one order; raises what ``scaffold`` says."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a kernel name",
            hint="a name has lower-case letters, digits and dashes, at least two of them; "
            "it begins with a letter and does not end with a dash",
        )
    python_name = name.replace("-", "_")
    if keyword.iskeyword(python_name) or python_name in _TAKEN:
        raise UsageError(
            f"{python_name!r} cannot be the name of a function next to others in a Python module",
            hint="choose another name, such as 'my-" + name + "'",
        )
    unknown = [backend for backend in backends if backend not in BACKENDS]
    if unknown or not backends:
        raise UsageError(
            f"{unknown[0]!r} is not a backend that a project can start with"
            if unknown
            else "no backend is chosen",
            hint=f"choose from {', '.join(BACKENDS)}; others can be added to build.toml by hand",
        )
    if not _LICENSE.fullmatch(license):
        raise UsageError(
            f"{license!r} is not a license expression",
            hint="write an SPDX expression, such as Apache-2.0 or MIT",
        )
    return tuple(backend for backend in BACKENDS if backend in backends)


def _check_free(dest: Path) -> None:
    if dest.is_symlink() or (dest.exists() and (not dest.is_dir() or any(dest.iterdir()))):
        raise _occupied(dest)


def _occupied(dest: Path) -> UsageError:
    """What stands in the way, by name."""
    found = sorted(path.name for path in dest.iterdir()) if dest.is_dir() else []
    shown = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")  # noqa: PLR2004
    return UsageError(
        f"{dest} exists already" + (f" and holds {shown}" if found else ""),
        hint="choose another name or directory, or remove it first",
    )
