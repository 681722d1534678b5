# SPDX-License-Identifier: Apache-2.0
"""What is said of modules that compile slowly or twice."""

from __future__ import annotations

from collections.abc import Iterable

from kernforge.errors import page
from kernforge.extension.plan import ExtensionUnit
from kernforge.source import diagnostics
from kernforge.source.extension_source import is_stable, is_torch_header
from kernforge.source.message_names import MessageNames

_LONG_S = 3.0


def slow_hint(units: Iterable[ExtensionUnit], seconds: float, names: MessageNames) -> str:
    """One line on what made a build long; empty if it was not the choice of the sources."""
    if seconds < _LONG_S:
        return ""
    for unit in units:
        headers = [name for name in unit.closure.foreign if is_torch_header(name)]
        if not headers or any(is_stable(text) for text in unit.texts.values()):
            continue
        file = names.title(unit.path).rpartition("/")[2]
        return (
            f"{file} includes <{headers[0]}>, and compiling took {seconds:.0f} s. Kernels on raw "
            "pointers in a .cu without torch's headers and a binding on torch's stable ABI compile "
            f"in a few: {page('how-to/author/use-the-jit')} (KERNFORGE_JIT_HINT=0 hides this)"
        )
    return ""


def retry_notice(output: str) -> str:
    """One line on why a source is compiled again, by what the compilers wrote the first time."""
    errors = diagnostics.errors(diagnostics.parse(output))
    why = f"{diagnostics.title(errors[0])}; " if errors else ""
    return f"{why}compiling again with all of torch's headers, which takes longer"
