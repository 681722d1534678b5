# SPDX-License-Identifier: Apache-2.0
"""Mistakes that the text of a kernel surely has: compilers take minutes to say them, or never do.

They are only named where no include, macro or condition that is not read could make the text right.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from kernforge.source import cpp_text, op_namespace, op_schema, op_types
from kernforge.source.includes import Closure

_PYBIND = re.compile(r"\bPYBIND11_MODULE\s*\(\s*\w+\s*,")
_PYBIND_PROBLEM = (
    "PYBIND11_MODULE makes a module for one Python and one torch; a kernel project registers "
    "operators, and one build serves every Python"
)
_PYBIND_FIX = (
    "write TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def(...); ops.impl(...); } and "
    "REGISTER_EXTENSION(TORCH_EXTENSION_NAME) in its place, with "
    '#include "registration.h"; a project that keeps pybind11 keeps its setup.py'
)
# A copy of registration.h has these words, too: ``check`` looks at what was built.
_MODULE = re.compile(
    r"\bPyInit_|\w*MODULE\w*\s*\(|\b\w+\s*\(\s*TORCH_EXTENSION_NAME\s*\)|\bREGISTER_EXTENSION\s*\("
)
_MODULE_FIX = (
    "write REGISTER_EXTENSION(TORCH_EXTENSION_NAME) at the end of one of the sources, with "
    '#include "registration.h"'
)
_NAMESPACE_FIX = (
    "write TORCH_EXTENSION_NAME for the namespace where operators are defined and where they are "
    'implemented: TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops), with #include "registration.h"'
)
_SCHEMA_FIX = (
    "a schema is name(Type argument, Type argument=default) -> Type, with the types Tensor, int, "
    "float, bool, str, and Tensor? or int[] of them"
)
_TYPES_FIX = (
    "write int64_t for int, double for float, std::string for str, std::optional<T> for T? and "
    "std::vector<T> for T[], or change the schema: torch does not convert one type to another"
)
_UNIT_FIX = "no compiler was started: the text alone shows it"
_EXPAND = re.compile(
    r"\b((?:STABLE_)?TORCH_LIBRARY(?:_IMPL|_FRAGMENT)?_EXPAND|REGISTER_EXTENSION)\s*\("
)
_DEFINES_EXPAND = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(?:STABLE_)?TORCH_LIBRARY\w*_EXPAND", re.MULTILINE
)
# Headers of torch, pybind11, CUDA and the standard libraries define none of these names.
_KNOWN = re.compile(
    r"(?:torch|ATen|c10|pybind11|cub|thrust|cuda)/.*|cuda\w*\.h(?:pp)?|\w+"
    r"|(?:assert|float|limits|math|std\w+|string|time)\.h"
)
_CUDA_HEADER = re.compile(r"cuda_runtime(?:_api)?\.h|vector_types\.h|(?:ATen|c10)/cuda/.*")
_CUDA_TYPE = re.compile(
    r"\b(?:struct|class|union)\s+((?:u?(?:char|short|int|long|longlong)|float|double)[1-4]|dim3)"
    r"\s*(?:final\s*)?[{:]"
)
_WORD = re.compile(r"[A-Za-z_]\w*")
_DECLARED = re.compile(
    r"\b(?!return\b|else\b|new\b)[A-Za-z_][\w:]*(?:<[^;{}()]*>)?[\s&*]+([A-Za-z_]\w*)\s*\("
)
# Where the operators of a build are in its Python, and what defines further ones there.
_OPS_MODULE, _OPS, _PREFIX = "_ops", "ops", "add_op_namespace_prefix"
_PYTHON_DEFINES = {"custom_op", "triton_op", "define"}


class Mistake(NamedTuple):
    """Something wrong in a line of a source; ``path`` is relative to the project."""

    path: str
    line: int
    problem: str
    fix: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}"


def fixes(mistakes: Iterable[Mistake]) -> str:
    """What to do about mistakes, each once."""
    return "\n".join(dict.fromkeys(mistake.fix for mistake in mistakes))


# -- units -------------------------------------------------------------------------------------


def of_units(units: Iterable[tuple[str, Closure, Mapping[str, str]]]) -> Iterator[Mistake]:
    """Macros of ``registration.h`` without it, and types that CUDA has already.

    Args:
        units: path of each, the files that it reads, and the texts of those that are known.
    """
    for path, closure, known in units:
        texts = {name: known[name] for name in closure.files if name in known}
        read_all = not closure.opaque and all(map(_KNOWN.fullmatch, closure.foreign))
        has_macros = any(name.endswith("registration.h") for name in closure.files) or any(
            map(_DEFINES_EXPAND.search, texts.values())
        )
        if read_all and not has_macros:
            for name, line, match in _matches(_EXPAND, texts):
                problem = f'{match[1]} is a macro: #include "registration.h" before it'
                yield Mistake(name, line, problem, _UNIT_FIX)
        is_cuda = path.endswith(cpp_text.CUDA_SUFFIXES)
        if is_cuda or any(map(_CUDA_HEADER.fullmatch, closure.foreign)):
            for name, line, match in _matches(_CUDA_TYPE, texts):
                before = cpp_text.code(texts[name])[: match.start()]
                macro = re.compile(rf"#\s*define\s+{match[1]}\b")
                is_global = before.count("{") == before.count("}")
                if is_global and not any(map(macro.search, texts.values())):
                    problem = f"CUDA defines {match[1]} itself: give this type another name"
                    yield Mistake(name, line, problem, _UNIT_FIX)


def _matches(
    pattern: re.Pattern[str], texts: Mapping[str, str]
) -> Iterator[tuple[str, int, re.Match[str]]]:
    """Path, line and match of a pattern in code that no ``#if`` may leave out."""
    for name, text in texts.items():
        for match in cpp_text.unconditional(pattern, text):
            yield name, cpp_text.line_of(text, match.start()), match


def unbound(names: Iterable[str], cpp: str, cuda: str) -> str:
    """Why a function that ``functions=`` names cannot be bound; empty if it may be.

    Args:
        cpp: the text of the C++ sources, which must declare it.
        cuda: the text of the CUDA sources.
    """
    code, device = cpp_text.code(cpp), cpp_text.code(cuda)
    includes = re.findall(r'#\s*include\s*[<"]([^>"\n]+)', code)
    if "##" in code or not all(map(_KNOWN.fullmatch, includes)):
        return ""
    words, declared = set(_WORD.findall(code)), set(_DECLARED.findall(f"{code}\n{device}"))
    for name in names:
        plain = re.fullmatch(r"(?:\w+::)*(\w+)", name.strip())
        if plain is None or plain[1] in words:
            continue
        if plain[1] in declared:
            return (
                f"functions= names {name}, which only cuda_sources has: declare it in cpp_sources, "
                f"torch::Tensor {name}(...);"
            )
        if near := difflib.get_close_matches(plain[1], sorted(declared), 1):
            return f"functions= names {name}, which no source has: is {near[0]} meant?"
    return ""


# -- operators ---------------------------------------------------------------------------------


def of_types(sources: Mapping[str, str]) -> Iterator[Mistake]:
    """Functions that cannot implement their operators."""
    for path, line, problem in op_types.disagreements(sources):
        yield Mistake(path, line, problem, _TYPES_FIX)


def of_operators(
    sources: Mapping[str, str], everything: Mapping[str, str], python: Mapping[str, str]
) -> Iterator[Mistake]:
    """Modules of pybind11 or none, and operators that torch or the package cannot call.

    Args:
        sources: text of the sources that are compiled, by path.
        everything: text of the sources of all backends.
        python: text of the package's modules.
    """
    for path, line, _ in _matches(_PYBIND, sources):
        yield Mistake(path, line, _PYBIND_PROBLEM, _PYBIND_FIX)
    for path, text in sources.items():
        for line, schema in op_schema.schema_lines(text):
            if reason := op_schema.mistake(schema):
                problem = f"torch cannot read the schema {schema!r}: {reason}"
                yield Mistake(path, line, problem, _SCHEMA_FIX)
    yield from of_types(sources)
    blocks = _blocks(sources)
    imported = any(_OPS_MODULE in text for text in python.values())
    if imported and not any(_MODULE.search(cpp_text.code(text)) for text in sources.values()):
        for path, block in blocks[:1]:
            problem = "no source has REGISTER_EXTENSION, so that Python cannot import what is built"
            yield Mistake(path, block.line, problem, _MODULE_FIX)
    for path, block in blocks:
        spaces = {b.namespace for _, b in blocks if b.defines and b.names & block.names}
        if not block.defines and spaces and block.namespace not in spaces:
            problem = f"{block.macro} implements operators that are defined in another namespace"
            yield Mistake(path, block.line, problem, _NAMESPACE_FIX)
    yield from _undefined(everything, python)


def _blocks(sources: Mapping[str, str]) -> list[tuple[str, op_namespace.Block]]:
    """The blocks that register operators, but for those whose namespace a macro may name."""
    macros = set(re.findall(r"#[ \t]*define\s+(\w+)", "\n".join(sources.values())))
    found = [(p, block) for p, text in sources.items() for block in op_namespace.blocks(text)]
    return [(path, block) for path, block in found if block.namespace not in macros]


def _undefined(sources: Mapping[str, str], python: Mapping[str, str]) -> Iterator[Mistake]:
    """Uses of operators that no source defines, or not in the namespace of the build."""
    names = op_schema.names(sources.values())
    blocks = _blocks(sources)
    spaces = {block.namespace for _, block in blocks if block.defines}
    if not names or not spaces or not all(block.whole for _, block in blocks):
        return
    read = {path: _calls(text) for path, text in python.items() if _OPS_MODULE in text}
    known = names.union(*(defined for _, defined in read.values()))
    own = {n for _, b in blocks if b.defines and not b.namespace for n in b.names}
    elsewhere = {n: (p, b) for p, b in blocks if b.defines for n in b.names - own}
    for path, block in blocks:
        for name in sorted(block.names - known) if block.namespace in spaces else ():
            problem = f"{block.macro} implements {name}, and no source defines that operator"
            yield Mistake(path, block.line, problem, _near(name, known))
    for path, (lines, _) in read.items():
        for name, line in lines.items():
            if name in elsewhere:
                where, block = elsewhere[name]
                problem = f"{block.macro} defines {name}, which {path}:{line} calls in this build's"
                yield Mistake(where, block.line, f"{problem} namespace", _NAMESPACE_FIX)
            elif name not in known:
                problem = f"no source defines the operator {name}, which is called here"
                yield Mistake(path, line, problem, _near(name, known))


def _near(name: str, known: Collection[str]) -> str:
    """What to do about an operator that is not known."""
    near = difflib.get_close_matches(name, known, 1)
    return f"write {near[0]}" if near else f"define {name}, or remove its use"


def _calls(text: str) -> tuple[dict[str, int], set[str]]:
    """The operators of its build that a module of Python uses, with lines, and those it defines.

    A question whether there is an operator counts as its definition. Nothing is found where the
    text is not Python or makes libraries of torch itself.
    """
    lines: dict[str, int] = {}
    defined: set[str] = set()
    if "Library(" in text:
        return lines, defined
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the import says more
        return lines, defined
    spaces = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.level and node.module == _OPS_MODULE
        for alias in node.names
        if alias.name == _OPS
    }
    spaces -= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    spaces.add(f"{_OPS_MODULE}.{_OPS}")
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name() | ast.Attribute(value=ast.Name()), attr=name):
                is_torchs = name == "name" or name.startswith("__")
                if ast.unparse(node.value) in spaces and not is_torchs:
                    lines.setdefault(name, node.lineno)
            case ast.Call(
                func=ast.Name(id=function) | ast.Attribute(attr=function), args=[first, *_]
            ):
                if function == _PREFIX and isinstance(first, ast.Constant):
                    lines.setdefault(str(first.value).partition(".")[0], node.lineno)
                elif function in _PYTHON_DEFINES and isinstance(first, ast.Call) and first.args:
                    defined.add(str(getattr(first.args[0], "value", "")).partition("(")[0])
                elif function in {"hasattr", "getattr"}:
                    defined.add(str(getattr(node.args[-1], "value", "")))
            case _:
                pass
    return lines, defined
