# SPDX-License-Identifier: Apache-2.0
"""``kernforge new``: a kernel project that builds and passes its tests.

The files are in ``templates/``: ``common`` for every project and a folder for each backend;
``minimal`` has those of the smallest project, ``ci`` workflows and images. What a backward kernel
adds stands between ``[gradient]`` and ``[end]``, each in a line of comment. Some words in their
names and texts stand for what the user chose: ``__HUB_NAME__``, ``__PYTHON_NAME__`` and
``__LICENSE__``; ``__BACKENDS__`` is the list in build.toml. A backend's ``build.toml`` is appended
to the common one.
"""

from __future__ import annotations

import importlib.resources
import keyword
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

from kernforge.errors import UsageError
from kernforge.system import untrusted_tree
from kernforge.system.files import publish_tree, staging, write_new
from kernforge.system.tables import page

BACKENDS = ("cpu", "cuda")
"""What a new project can be made for."""
MANIFEST = "build.toml"
Layout = Literal["full", "gradient", "minimal"]
"""Which files a project starts with: ``gradient`` is ``full`` with a backward kernel."""
Forge = Literal["github", "gitlab"]
"""Who runs the jobs."""
FORGES: tuple[Forge, ...] = ("github", "gitlab")

_WORD = re.compile(r"__[A-Z]+(?:_[A-Z]+)*__")
_PART = re.compile(r"^# <(\w+)>\n(.*?)^# </\1>\n", re.DOTALL | re.MULTILINE)
_PATTERNS = {"cpu": "*-cpu-*", "cuda": "*-cu1*"}
_ADDED = re.compile(
    r"^[ \t]*(?:#|//) \[gradient\]\n(.*?)^[ \t]*(?:#|//) \[end\]\n", re.MULTILINE | re.DOTALL
)
# The rule of build.toml's general.name.
_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
# SPDX expressions; nothing that would end a TOML string or a comment.
_LICENSED = "Apache-2.0"
_LICENSE = re.compile(r"[A-Za-z0-9][-A-Za-z0-9.+() ]*")
# Names that the generated module uses itself.
_TAKEN = frozenset({"add_op_namespace_prefix", "annotations", "ops", "torch"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """Files that ``new --here`` wrote, and files that it left as they were."""

    written: tuple[Path, ...]
    kept: tuple[Path, ...]


def create(files: Mapping[str, str], dest: Path) -> tuple[Path, ...]:
    """Write a new kernel project; it appears whole or not at all.

    Args:
        dest: the project's directory, which must not exist yet or must be empty.
    """
    check_free(dest)
    with staging(dest.absolute().parent) as stage:
        tree = stage / "project"
        for path, text in files.items():
            write_new(tree / path, text)
        if not publish_tree(tree, dest):
            raise occupied(dest)
    return tuple(dest / path for path in files)


def fill(files: Mapping[str, str], dest: Path) -> Filled:
    """Make a directory a kernel project; no file that is there is changed."""
    if (dest / MANIFEST).exists():
        raise UsageError(
            f"{dest / MANIFEST} exists already: {dest} is a kernel project",
            hint=f"one more operator in it: {page('how-to/author/add-an-operator')}",
        )
    return add_files(files, dest)


def add_files(files: Mapping[str, str], dest: Path) -> Filled:
    """Write the files that are not there yet, by path relative to ``dest``."""
    existing = {path for path in files if (dest / path).exists() or (dest / path).is_symlink()}
    untrusted_tree.refuse_links(dest, files.keys() - existing)
    # build.toml comes last: with it the directory is a project.
    for path in sorted(files.keys() - existing, key=lambda path: (path == MANIFEST, path)):
        untrusted_tree.write(dest, path, files[path])
    return Filled(
        written=tuple(dest / path for path in sorted(files.keys() - existing)),
        kept=tuple(dest / path for path in sorted(existing)),
    )


def name_for(directory: Path) -> str:
    """Derive a kernel name from that of a directory: lower case, with dashes."""
    return re.sub(r"[^a-z0-9]+", "-", directory.resolve().name.lower()).strip("-")


def render(parts: tuple[str, ...], *, words: Mapping[str, str]) -> dict[str, str]:
    """Fill the templates of some folders: text by path, in order.

    A file of a later folder takes the place of an earlier one's; a ``build.toml`` is appended.
    """
    root = importlib.resources.files("kernforge") / "templates"
    files: dict[str, str] = {}

    def value(word: re.Match[str]) -> str:
        return words.get(word[0], word[0])

    for part in parts:
        for path, text in _texts(root.joinpath(*part.split("/")), prefix=""):
            target = re.sub(r"(^|/)dot-", r"\1.", _WORD.sub(value, path))
            before = files.get(target, "") if target == MANIFEST else ""
            files[target] = before + _WORD.sub(value, text)
    return dict(sorted(files.items()))


def project_files(
    name: str,
    *,
    backends: tuple[str, ...] = BACKENDS,
    layout: Layout = "full",
    more: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Text of each file of a new project, in the order of their paths.

    Args:
        name: the kernel's name on a registry, as in ``"scaled-relu"``; the Python package has
            underscores for dashes.
    """
    check_project(name, license=_LICENSED)
    chosen = [backend for backend in BACKENDS if backend in backends]
    words = {
        "__HUB_NAME__": name,
        "__PYTHON_NAME__": name.replace("-", "_"),
        "__LICENSE__": _LICENSED,
        "__BACKENDS__": ", ".join(f'"{backend}"' for backend in chosen),
    }
    folder = "minimal/" if layout == "minimal" else ""
    files = render(tuple(f"{folder}{part}" for part in ("common", *chosen)), words=words)
    added = r"\1" if layout == "gradient" else ""
    files = {path: f"{_ADDED.sub(added, text).rstrip()}\n" for path, text in files.items()}
    return dict(sorted({**files, **(more or {})}.items()))


def _texts(folder: Traversable, *, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _texts(entry, prefix=f"{prefix}{entry.name}/")
        elif entry.is_file():
            yield prefix + entry.name, entry.read_text(encoding="utf-8")


def check_project(name: str, *, license: str) -> None:  # noqa: A002
    """Refuse a kernel's name or a license that build.toml cannot have."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a kernel name",
            hint="a name has lower-case letters, digits and dashes, at least two of them; "
            "it begins with a letter and does not end with a dash",
        )
    function = name.replace("-", "_")
    if keyword.iskeyword(function) or function in _TAKEN:
        raise UsageError(
            f"{function!r} cannot be the name of a function next to others in a Python module",
            hint=f"choose another name, such as 'my-{name}'",
        )
    if not _LICENSE.fullmatch(license):
        raise UsageError(
            f"{license!r} is not a license expression",
            hint="write an SPDX expression, such as Apache-2.0 or MIT",
        )


def is_license(text: str) -> bool:
    """Whether build.toml can have a license expression: one word, or words joined by operators."""
    words = text.split()
    return bool(_LICENSE.fullmatch(text)) and all(w in {"AND", "OR", "WITH"} for w in words[1::2])


def check_free(dest: Path) -> None:
    """Refuse a directory that holds something."""
    if dest.is_symlink() or (dest.exists() and (not dest.is_dir() or any(dest.iterdir()))):
        raise occupied(dest)


def occupied(dest: Path) -> UsageError:
    """The error for a directory that holds something, with the names."""
    names = sorted(path.name for path in dest.iterdir()) if dest.is_dir() else []
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")  # noqa: PLR2004
    return UsageError(
        f"{dest} exists already" + (f" and holds {shown}" if names else ""),
        hint="choose another name or directory, or remove it first; `kernforge new --here` makes a "
        "project of a directory and overwrites nothing",
    )


def ci_files(forge: Forge, name: str, backends: Collection[str]) -> dict[str, str]:
    """Workflows with which a forge builds, tests and publishes a project, by path.

    They are ``common`` and the forge's folder of ``templates/ci``. Between ``# <cpu>`` and
    ``# </cpu>`` lies what only a project with that backend has.

    Args:
        backends: of the project; those other than ``cpu`` and ``cuda`` have no jobs of their own.
    """
    built = [backend for backend in _PATTERNS if backend in backends]
    rows = {backend: _PATTERNS[backend] for backend in built} or {"all": "*"}
    tests = [job for job, part in (("test-cpu", "cpu"), ("test-gpu", "cuda")) if part in built]
    words = {
        "__HUB_NAME__": name,
        "__GITHUB_MATRIX__": _rows(rows, "          - {{backend: {}, variants: '{}'}}"),
        "__GITLAB_MATRIX__": _rows(rows, "      - {{BACKEND: {}, VARIANTS: '{}'}}"),
        "__NEEDS__": ", ".join(["build", *tests]),
    }
    files = render(("ci/common", f"ci/{forge}"), words=words)
    return {
        path: _PART.sub(lambda part: part[2] if part[1] in built else "", text)
        for path, text in files.items()
    }


def _rows(rows: dict[str, str], form: str) -> str:
    return "\n".join(form.format(backend, pattern) for backend, pattern in rows.items())
