# SPDX-License-Identifier: Apache-2.0
"""Says once how a module that took long to compile can take a second: what it includes decides.

And, each time, that a source is compiled again with all of torch's headers, and why.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kernforge.errors import page
from kernforge.source import diagnostics
from kernforge.source.extension_source import is_stable, is_torch_header
from kernforge.system.console import Report

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernforge.jit.plan import Unit

_SWITCH = "KERNFORGE_JIT_HINT"
_LONG_S = 3.0
_said: set[str] = set()


def hint(units: Iterable[Unit], seconds: float) -> str:
    """One line on what made a build long; empty where nothing of the sources' own choice did.

    Args:
        units: the sources.
        seconds: what the build took.
    """
    if seconds < _LONG_S:
        return ""
    for unit in units:
        found = [name for name in unit.closure.foreign if is_torch_header(name)]
        if not found or any(is_stable(text) for text in unit.texts.values()):
            continue
        file = unit.path.rpartition("/")[2]
        return (
            f"{file} includes <{found[0]}>, and compiling took {seconds:.0f} s. Kernels on raw pointers "
            "in a .cu without torch's headers and a binding on torch's stable ABI compile in a few: "
            f"{page('how-to/author/use-the-jit')} ({_SWITCH}=0 hides this)"
        )
    return ""


def tell(units: Iterable[Unit], seconds: float, report: Report) -> None:
    """Say it, once in a process, unless ``KERNFORGE_JIT_HINT`` is 0."""
    if _said or os.environ.get(_SWITCH) == "0":
        return
    if text := hint(units, seconds):
        _said.add(text)
        report.note(text)


def again(output: str) -> str:
    """One line on why a source is compiled a second time.

    Args:
        output: what the compilers wrote of the first.
    """
    found = diagnostics.errors(diagnostics.parse(output))
    why = f"{diagnostics.title(found[0])}; " if found else ""
    return f"{why}compiling again with all of torch's headers, which takes longer"


def tell_again(output: str) -> None:
    """Say it, unless ``KERNFORGE_JIT_HINT`` is 0."""
    if os.environ.get(_SWITCH) != "0":
        Report().note(again(output))
