# SPDX-License-Identifier: Apache-2.0
"""``compile_commands.json`` for editors: how each source is compiled, with the store's headers.

Format: https://clang.llvm.org/docs/JSONCompilationDatabase.html. Editors use clang, which does not
have all options of GCC and nvcc, so that only options with a meaning for the source are kept:
definitions, search paths, the standard. Options for CUDA are those of clang.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kernforge.builder.execute import action as execute_action
from kernforge.builder.plan.graph import Action, Plan

_KEPT = ("-D", "-U", "-I", "-std=", "-include", "-isystem", "-iquote")
_PAIRS = ("-isystem", "-iquote", "-include", "-I", "-D", "-U")


def entries(
    plan: Plan, roots: Mapping[str, str], *, directory: str, bundled: Iterable[str]
) -> list[dict[str, object]]:
    """One entry for each source, of the first variant that compiles it.

    Args:
        roots: the real path of every root that a compile action names.
        directory: the project's root; paths of sources are relative to it.
        bundled: directories of the headers that kernforge brings.
    """
    entries_by_path: dict[str, dict[str, object]] = {}
    search = [f"-I{place}" for place in bundled]
    for action in compiling(plan):
        path = action.source
        argv = [*_compiler(action, roots), *_meaning(action, roots), *search, "-c", path]
        entries_by_path.setdefault(path, {"directory": directory, "file": path, "arguments": argv})
    return [entries_by_path[path] for path in sorted(entries_by_path)]


def compiling(plan: Plan) -> tuple[Action, ...]:
    """The actions that compile a source of the project."""
    return tuple(action for action in plan.actions if action.source)


def _compiler(action: Action, roots: Mapping[str, str]) -> list[str]:
    if action.kind != "cuda":
        return [roots["cxx"], "-x", "c++"]
    toolkit = execute_action.resolve(action.argv[0], roots).rpartition("/bin/")[0]
    codes = [a.rpartition("=")[2] for a in action.argv if a.startswith("arch=compute_")]
    # One is enough to edit with, and each costs a pass.
    newest = [code for code in codes if code.startswith("sm_")][-1:]
    arch = [f"--cuda-gpu-arch={code}" for code in newest]
    return ["clang++", "-x", "cuda", f"--cuda-path={toolkit}", *arch]


def _meaning(action: Action, roots: Mapping[str, str]) -> Iterator[str]:
    argv = iter(action.argv[1:-3])
    for argument in argv:
        if argument in _PAIRS:
            yield from (argument, execute_action.resolve(next(argv), roots))
        elif argument.startswith(_KEPT):
            yield execute_action.resolve(argument, roots)
