# SPDX-License-Identifier: Apache-2.0
"""Tells a plain mistake from a name that the cut headers lack, without compiling all headers.

A source that failed with fewer headers than torch's is compiled again with all of them, which takes
long, and in vain where a name is only misspelt. The preprocessor reads the same headers in an eighth
of the time and knows no meaning, but every word: a name that no compiler knew and that occurs in none
of them, neither as a word nor as a macro, stays unknown. What is less sure than that is compiled.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kernforge.build.execute import action as execute_action
from kernforge.source import diagnostics
from kernforge.source.extension_source import CUDA_SUFFIXES
from kernforge.system import files
from kernforge.system.process import Command, run

if TYPE_CHECKING:
    from collections.abc import Collection

    from kernforge.build.plan.graph import Action
    from kernforge.jit.machine import Shop
    from kernforge.jit.plan import Made

# GCC's words and clang's.
_UNKNOWN = re.compile(
    r"['\u2018](\w+)['\u2019] was not declared in this scope.*"
    r"|use of undeclared identifier '(\w+)'.*"
)
# What is compiled may depend on which headers were read.
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:el)?if", re.MULTILINE)
_PLACE = re.compile(rb'^# \d+ "([^"\n]*)"', re.MULTILINE)
_TEXT = re.compile(rb'"(?:\\.|[^"\\\n])*"')
_SEEN = "seen.ii"


def is_certain(made: Made, shop: Shop, output: str) -> bool:
    """Whether sources that failed with fewer headers would fail with all of them too.

    Args:
        made: the plan with all of them.
        shop: what it is made with.
        output: what the compilers wrote of the sources with fewer.
    """
    names = unknown(output)
    compiled = [a for a in made.plan.actions if "-c" in a.argv and not _is_cuda(a)]
    texts = [made.plan.texts[one.name] for a in compiled for one in a.inputs]
    if not names or any(map(_CONDITION.search, texts)):
        return False
    used: set[str] = set()
    for action in compiled:
        seen = _preprocessed(action, made, shop)
        if seen is None:
            return False
        own = {one.path for one in action.inputs}
        for name in names:
            places = occurrences(seen, name, own)
            if places is None:
                return False
            used |= {name} if places else set()
    return used == names


def unknown(output: str) -> set[str]:
    """The names that a C++ compiler did not know; none where it complained of anything else too."""
    found = diagnostics.errors(diagnostics.parse(output))
    errors = [one for one in found if one.severity == "error"]
    matches = [_UNKNOWN.fullmatch(one.message) for one in errors]
    if any(one.file.endswith(CUDA_SUFFIXES) for one in errors):
        return set()
    names = {match[1] or match[2] for match in matches if match}
    return names if all(matches) else set()


def occurrences(seen: bytes, name: str, own: Collection[str]) -> int | None:
    """How often the user's files use a name; None where it stands anywhere else.

    Args:
        seen: what the preprocessor wrote, with the macros' definitions.
        name: the name.
        own: paths of the user's files.
    """
    count = 0
    for match in re.finditer(rb"\b" + re.escape(name.encode()) + rb"\b", seen):
        start = seen.rfind(b"\n", 0, match.start()) + 1
        before = seen.rfind(b"\n# ", 0, match.start())
        place = _PLACE.match(seen, before + 1)
        if place is None or place[1].decode(errors="replace") not in own:
            return None
        # A macro may have made a text of it.
        line = seen[start : match.start()]
        count += _TEXT.sub(b"", line).count(b'"') == 0
    return count


def _is_cuda(action: Action) -> bool:
    return any(word.endswith(CUDA_SUFFIXES) for word in action.argv)


def _preprocessed(action: Action, made: Made, shop: Shop) -> bytes | None:
    """What a unit's compiler reads; None where it cannot."""
    with files.staging(shop.store.root / "work") as room:
        for one in action.inputs:
            files.write_new(room / one.path, made.plan.texts[one.name])
        done = run(Command(argv=_argv(action, shop), cwd=room))
        return (room / _SEEN).read_bytes() if done.returncode == 0 else None


def _argv(action: Action, shop: Shop) -> tuple[str, ...]:
    """Its compiler's, that reads only: the last two words say where the object goes."""
    roots = {name: shop.roots[name] for name in action.roots}
    words = (execute_action.resolve(word, roots) for word in action.argv[:-2] if word != "-c")
    return (*words, "-E", "-dD", "-o", _SEEN)
