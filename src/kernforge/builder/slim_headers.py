# SPDX-License-Identifier: Apache-2.0
"""Compile with slim headers of torch, which are written where the headers are.

The plan of a build does not read the toolchain, so that it needs no download. An action that may
have slim headers is marked in the plan, and they are written when it runs. Whether they suffice
follows from its inputs alone: the same key gives the same result.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kernforge.builder.graph import PLACEHOLDER, Action, Input, Plan
from kernforge.source import torch_headers
from kernforge.system import digest
from kernforge.system.process import Command, run

TORCH = re.compile(r"(^|-)torch-")
"""Name of a tree of torch's headers, for this machine's processor or another."""
_NOT_FOUND = 1
# Kernels for a GPU, some with a program in a string.
_NO_API = "--exclude-dir=native"


@dataclass(frozen=True, slots=True)
class InstalledHeaders:
    """The headers of a torch on the disk; ``directory`` has ``include``."""

    directory: str

    def read(self, name: str) -> str | None:
        """Text of a header below ``include``; None if there is none."""
        return _read(self.directory, name)

    def defines(self, macros: Collection[str]) -> bool:
        """Whether a header defines one of these macros."""
        pattern = rf"^[[:space:]]*#[[:space:]]*define[[:space:]]+({'|'.join(sorted(macros))})\b"
        return _occurs(pattern, _NO_API, f"{self.directory}/include")

    def may_lack_header(self, output: str, texts: Mapping[str, str], tree: str) -> bool:
        """Whether a unit that failed with slim headers may compile with all of torch's.

        Args:
            tree: name of torch's tree among those of the action.
        """

        def occurs(name: str) -> bool:
            # Not in a line of a comment.
            pattern = rf"^\s*(([^[:space:]/*]|/[^/*]).*\b)?{name}\b"
            return _occurs(pattern, f"{self.directory}/include", "/usr/include")

        slim = (f"/{tree}/", torch_headers.SLIM_DIRECTORY)
        return torch_headers.may_lack_header(output, texts, slim, occurs)


@functools.lru_cache(1 << 12)
def _read(directory: str, name: str) -> str | None:
    path = Path(directory, "include", name)
    return path.read_text(encoding="utf-8") if path.is_file() else None


@functools.lru_cache(1 << 8)
def _occurs(pattern: str, *where: str) -> bool:
    """Whether a line of a file matches; True where no grep can say it."""
    options = [word for word in where if word.startswith("-")]
    paths = [word for word in where if not word.startswith("-")]
    try:
        argv = ("grep", "-RqE", *options, "-e", pattern, "--", *paths)
        return run(Command(argv=argv)).returncode != _NOT_FOUND
    except OSError:  # there is none, or a project tests more macros than fit an argument
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class SlimAction:
    """An action with slim headers among its inputs.

    Attributes:
        action: in the place of the planned one.
        plan: with the texts of its inputs.
        texts: the project's files that it reads, by path.
    """

    action: Action
    plan: Plan
    headers: InstalledHeaders
    tree: str
    texts: Mapping[str, str]

    def may_lack_header(self, output: str) -> bool:
        """Whether the action as it is planned may succeed where this one failed."""
        return self.headers.may_lack_header(output, self.texts, self.tree)


def slim_action(action: Action, plan: Plan, trees: Mapping[str, str]) -> SlimAction | None:
    """An action with slim headers; None if it needs all of torch's."""
    if not action.slim:
        return None
    names = [name for part in action.argv for name in PLACEHOLDER.findall(part)]
    tree = next(name for name in names if TORCH.search(name))
    headers = InstalledHeaders(trees[tree])
    texts = {file.path: _text(file, plan) for file in action.inputs}
    slim = torch_headers.slim_texts(texts, headers.read, headers.defines)
    if slim is None:
        return None
    contents = {digest.sha256(text): text for text in slim[0].values()}
    inputs = (Input(path=path, digest=digest.sha256(text)) for path, text in slim[0].items())
    program, *words = action.argv
    argv = (program, f"-I{torch_headers.SLIM_DIRECTORY}", *words)
    return SlimAction(
        action=replace(action, argv=argv, inputs=tuple(inputs)),
        plan=replace(plan, texts={**plan.texts, **contents}),
        headers=headers,
        tree=tree,
        texts=texts,
    )


def _text(file: Input, plan: Plan) -> str:
    text = plan.texts.get(file.digest)
    if text is not None:
        return text
    # The compiler gets the same bytes, whatever their encoding.
    return plan.files[file.path].read_bytes().decode(errors="surrogateescape")
