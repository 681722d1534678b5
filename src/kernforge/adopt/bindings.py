# SPDX-License-Identifier: Apache-2.0
"""Bindings of pybind11 become ``TORCH_LIBRARY`` of the build.

``PYBIND11_MODULE`` is replaced where it stands by a fragment of the build's op namespace, so that
functions which only that source sees stay reachable. A schema comes from the C++ function; a type
that an operator cannot have (``float``, ``int``) is converted by a lambda. The common cases are
translated; the rest (lambdas, overloads, classes) is a remark with its line.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernforge.adopt import cpp
from kernforge.adopt.cpp import Function, Type
from kernforge.adopt.program import Remark
from kernforge.source import cpp_text, op_schema
from kernforge.source.python_api import Parameter

_BLOCK = re.compile(r"\bPYBIND11_MODULE\s*\(\s*\w+\s*,\s*(?P<handle>\w+)[^)]*\)\s*(?P<open>\{)")
_PYTHON_INCLUDE = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*[<\"](?P<name>torch/extension\.h|torch/python\.h|Python\.h"
    r"|pybind11/[^>\"]*|torch/csrc/utils/pybind\.h)[>\"][^\n]*$",
    re.MULTILINE,
)
_ALIAS = re.compile(r"^[ \t]*namespace\s+py\s*=\s*pybind11\s*;[^\n]*\n?", re.MULTILINE)
_PYBIND = re.compile(r"\b(?:py|pybind11)\s*::\s*\w+|\bPYBIND11_\w+")
_PYINIT = re.compile(r"\bPyInit_\w+")
_WHOLE_TORCH = re.compile(
    r"\btorch\s*::\s*(?:nn|optim|autograd|jit|data|serialize|save|load)\b|\bAutogradContext\b"
)
_ARG = re.compile(
    r'\s*(?:(?:py|pybind11)::arg\(\s*"(\w+)"\s*\)|"(\w+)"_a)\s*(?:=\s*(.*))?\s*', re.DOTALL
)
_POLICY = re.compile(
    r"\s*(?:py|pybind11)::(?:call_guard|return_value_policy|keep_alive|doc)\b.*", re.DOTALL
)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_CHOOSES_DEVICE = re.compile(
    r"\bif\s*\([^;{}]*?\b(?:is_cuda|is_cpu|device)\s*\(\)|#\s*ifdef\s+WITH_CUDA"
)
_KEYWORDS = frozenset(keyword.kwlist)
_LAUNCH = re.compile(r"<<<(?P<inside>[^;{}]*?)>>>")
_STREAM = 4  # number of the argument of a launch
WHOLE_HEADER, TYPES_HEADER = "torch/all.h", "torch/types.h"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator that a source registers.

    Attributes:
        name: of the Python function.
        schema: with the operator's name in the build's namespace, which is another one where
            modules have the same name; that name alone where the registration gives no schema.
        doc: docstring; may be empty.
        path: the source.
        line: where it was bound.
    """

    name: str
    schema: str
    doc: str = ""
    path: str
    line: int

    @property
    def op(self) -> str:
        """The operator's name, with that of its overload."""
        return self.schema.partition("(")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """A source after the translation."""

    text: str
    operators: tuple[Operator, ...]
    remarks: tuple[Remark, ...]


@dataclass(slots=True, kw_only=True)
class _Source:
    """One source on its way; ``code`` is its text without comments and literals."""

    path: str
    text: str
    code: str
    texts: Mapping[str, str]
    keys: tuple[str, ...]
    prefix: str
    operators: list[Operator] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)

    def left(self, line: int, text: str, kind: str = "left") -> None:
        self.remarks.append(Remark(self.path, line, text, kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bound:
    """One ``m.def``: ``given`` has the names and defaults of arguments."""

    name: str
    expression: str
    line: int
    doc: str = ""
    given: Sequence[tuple[str, str | None]] = ()


def binds(text: str) -> int:
    """How many blocks of a source register operators."""
    code = cpp_text.code(text)
    libraries = [m for m in cpp_text.LIBRARY.finditer(code) if m["kind"] != "_IMPL"]
    return len(libraries) + len(_BLOCK.findall(code))


def translate(
    path: str,
    text: str,
    *,
    texts: Mapping[str, str],
    keys: tuple[str, ...],
    header: str = "",
    prefix: str = "",
) -> Translated:
    """Translate a source.

    Args:
        path: of the source, for remarks.
        text: its text.
        texts: texts of the sources in which bound functions may be, by path.
        keys: what the source is built for, some of ``CPU`` and ``CUDA``.
        header: address of registration.h, as the source includes it, if this source has the only
            block of the project; empty for a fragment.
        prefix: what the names of operators begin with, where two modules have the same names.
    """
    code = cpp_text.code(text)
    source = _Source(path=path, text=text, code=code, texts=texts, keys=keys, prefix=prefix)
    result = _replace_blocks(source, header)
    result = _replace_libraries(source, result)
    result = _replace_includes(result, header, registers=bool(source.operators))
    if header and source.operators:
        result = f"{result.rstrip()}\n\nREGISTER_EXTENSION(TORCH_EXTENSION_NAME)\n"
    _leftovers(source, result)
    for match in _LAUNCH.finditer(code):
        if len(cpp_text.split(match["inside"])) < _STREAM:
            source.left(
                cpp_text.line_of(text, match.start()),
                "the launch is on the default stream; give it at::cuda::getCurrentCUDAStream() as "
                "the fourth argument",
                "check",
            )
    return Translated(
        text=result,
        operators=tuple(source.operators),
        remarks=tuple(dict.fromkeys(source.remarks)),
    )


def with_c_linkage(text: str, others: Iterable[str]) -> tuple[str, dict[str, int]]:
    """Add ``extern "C"`` to declarations whose definitions have it.

    Args:
        text: a C++ source.
        others: texts of the sources in which functions are defined.

    Returns:
        The text, and the line of each declaration that was changed, by name.
    """
    changed: dict[str, int] = {}
    defined = {name for source in others for name in _c_functions(source)}
    for name in sorted(defined - set(_c_functions(text))):
        pattern = rf"^(?P<indent>[ \t]*)(?=(?:[\w:<>]+[\s&*]+)+{name}\s*\([^;{{}}()]*\)\s*;)"
        if match := re.search(pattern, text, re.MULTILINE):
            changed[name] = cpp_text.line_of(text, match.end())
            text = f'{text[: match.end()]}extern "C" {text[match.end() :]}'
    return text, changed


def _c_functions(text: str) -> Iterator[str]:
    """Names of functions with C linkage."""
    code = cpp_text.code(text)
    for match in re.finditer(r'\bextern\s*"C"\s*', text):
        if code[match.end() : match.end() + 1] == "{":
            inside = code[match.end() + 1 : cpp_text.closing(code, match.end())]
            yield from re.findall(r"\b(\w+)\s*\([^;{}()]*\)\s*[;{]", inside)
        elif declared := re.match(r"[^;{}()]*?\b(\w+)\s*\(", code[match.end() :]):
            yield declared[1]


# -- PYBIND11_MODULE ---------------------------------------------------------------------------


def _replace_blocks(source: _Source, header: str) -> str:
    text, code = source.text, source.code
    parts, last = [], 0
    for match in _BLOCK.finditer(code):
        opened = match.start("open")
        end = cpp_text.closing(code, opened)
        if end < 0:
            source.left(cpp_text.line_of(text, match.start()), "the block does not end")
            continue
        lines = list(_block(source, opened + 1, end, match["handle"]))
        macro = "TORCH_LIBRARY_EXPAND" if header else "TORCH_LIBRARY_FRAGMENT"
        registered = [f"{macro}(TORCH_EXTENSION_NAME, ops) {{", *lines, "}"] if lines else []
        parts += [text[last : match.start()], "\n".join(registered)]
        last = end + 1
    return "".join((*parts, text[last:]))


def _block(source: _Source, begin: int, end: int, handle: str) -> Iterator[str]:
    """The lines of a library for the statements of a PYBIND11_MODULE block."""
    text, code = source.text, source.code
    position = begin
    while position < end:
        blank = re.compile(r"\s*").match(code, position, end)
        position = blank.end() if blank else position
        if position >= end:
            return
        if code[position] == "#":
            stop = text.find("\n", position, end)
            stop = end if stop < 0 else stop
            yield text[position:stop].rstrip()
        else:
            stop = _statement_end(code, position, end)
            yield from _statement(source, position, stop, handle)
        position = stop + 1


def _statement_end(code: str, begin: int, end: int) -> int:
    depth = 0
    for position in range(begin, end):
        if code[position] in "([{":
            depth += 1
        elif code[position] in ")]}":
            depth -= 1
            if (
                depth == 0
                and code[position] == "}"
                and not re.match(r"\s*[;,).]", code[position + 1 :])
            ):
                return position
        elif code[position] == ";" and depth == 0:
            return position
    return end


def _statement(source: _Source, begin: int, end: int, handle: str) -> Iterator[str]:
    text, code = source.text, source.code
    line = cpp_text.line_of(text, begin)
    statement = code[begin:end]
    if re.match(rf"{handle}\s*\.\s*doc\s*\(\)", statement):
        return
    if not re.match(rf"{handle}\s*\.\s*def\s*\(", statement):
        words = " ".join(text[begin:end].split())[:60]
        source.left(
            line, f"`{words}` is not a function that an operator can be; write it in Python"
        )
        return
    position = begin
    for match in re.finditer(r"\.\s*def\s*(\()", statement):
        opened = begin + match.start(1)
        if opened < position:
            continue  # inside the arguments of the one before
        position = cpp_text.closing(code, opened)
        inside = slice(opened + 1, position)
        first = text[opened + 1 : position]
        at = cpp_text.line_of(text, opened + 1 + len(first) - len(first.lstrip()))
        yield from _definition(source, cpp_text.split(text[inside]), at)


def _definition(source: _Source, parts: Sequence[str], line: int) -> Iterator[str]:
    """The lines that register what ``m.def(...)`` bound."""
    named = cpp_text.literal(parts[0])
    if not named or len(parts) < 2:  # noqa: PLR2004
        source.left(line, "the name of a function is not a literal")
        return
    name, doc, given = named[1], "", []
    for part in parts[2:]:
        if text := cpp_text.literal(part):
            doc = text[1]
        elif match := _ARG.fullmatch(part):
            given.append((match[1] or match[2], match[3]))
        elif not _POLICY.fullmatch(part):
            source.left(line, f"{name}: `{' '.join(part.split())}` is not translated")
    bound = _Bound(name=name, expression=parts[1], line=line, doc=doc, given=given)
    yield from _register(source, bound)


def _register(source: _Source, bound: _Bound) -> Iterator[str]:
    """The lines that define and implement one operator."""
    name, line = bound.name, bound.line
    if not name.isidentifier() or name in _KEYWORDS:
        source.left(line, f"{name!r} cannot be the name of a Python function")
        return
    if any(operator.name == name for operator in source.operators):
        source.left(
            line, f"{name}: an operator of this name is there already; overloads need names"
        )
        return
    found, called, reason = _function(source, bound.expression)
    if found is None:
        source.left(line, f"{name}: {reason}")
        return
    types = [cpp.argument_type(parameter.type) for parameter in found.parameters]
    returned = cpp.return_type(found.returns)
    for parameter, kind in zip(found.parameters, types, strict=True):
        if kind is None:
            source.left(
                line,
                f"{name}: an operator cannot take `{parameter.type} {parameter.name}`".rstrip(),
            )
            return
    if returned is None:
        source.left(line, f"{name}: an operator cannot return `{found.returns}`")
        return
    known = [kind for kind in types if kind is not None]
    arguments = _arguments(source, bound, found, known)
    marked, results = _marks(source, bound, found, arguments, returned.schema)
    op = f"{source.prefix}{name}"
    schema = f"{op}({', '.join(map(_written, marked))}) -> {results}"
    source.operators.append(
        Operator(name=name, schema=schema, doc=bound.doc, path=source.path, line=line)
    )
    call = _adapter(called, [a.name for a in marked], known, returned)
    tensors = any("Tensor" in argument.type for argument in marked)
    whole = not tensors or "::apply(" in found.body
    schema = cpp_text.quoted(schema)
    if whole:
        yield f"  ops.def({schema}, {call});"
        return
    yield f"  ops.def({schema});"
    chooses = "CUDA" in source.keys and _CHOOSES_DEVICE.search(found.body)
    for key in ("CPU", "CUDA") if chooses else source.keys:
        yield f'  ops.impl("{op}", torch::k{key}, {call});'


def _function(source: _Source, expression: str) -> tuple[Function | None, str, str]:
    """What is bound: its signature, how it is named, or why it cannot be said."""
    if match := re.fullmatch(
        r"torch::wrap_pybind_function(?:_no_gil)?\((.*)\)", expression, re.DOTALL
    ):
        expression = match[1].strip()
    if expression.startswith("["):
        return None, "", "a lambda is not translated: give the function a name"
    plain = expression.removeprefix("&").strip()
    if not re.fullmatch(r"[\w:]+(?:<[^()]*>)?", plain):
        return None, "", f"`{' '.join(expression.split())[:60]}` is not a function"
    last = re.sub(r"<.*", "", plain).rpartition("::")[2]
    candidates = list(cpp.functions(source.text, last))
    if not any(f.body for f in candidates):
        candidates = [f for text in source.texts.values() for f in cpp.functions(text, last)]
    # A header may declare what no source defines any more.
    candidates = [f for f in candidates if f.body] or candidates
    signatures = {tuple(_bare(p.type) for p in f.parameters) for f in candidates}
    if not signatures:
        return None, "", f"no declaration of {last} was found in the module's sources"
    if len(signatures) > 1:
        return None, "", f"{last} is overloaded; give each function a name"
    best = max(candidates, key=lambda f: (bool(f.body), sum(bool(p.name) for p in f.parameters)))
    if "template" in best.prefix and "<" not in plain:
        return None, "", f"{last} is a template"
    return best, f"&{plain}", ""


def _written(argument: Parameter) -> str:
    """An argument in a schema."""
    default = "" if argument.default is None else f"={argument.default}"
    return f"{argument.type} {argument.name}{default}"


def _bare(written: str) -> str:
    return re.sub(r"\s+|\b(?:torch|at|c10|std)::", "", written)


def _arguments(
    source: _Source, bound: _Bound, found: Function, types: Sequence[Type]
) -> list[Parameter]:
    name, line, given = bound.name, bound.line, bound.given
    arguments = []
    for position, (parameter, kind) in enumerate(zip(found.parameters, types, strict=True)):
        word, default = given[position] if position < len(given) else ("", None)
        word = word or parameter.name or f"arg{position}"
        if word in _KEYWORDS:
            source.left(line, f"{name}: the argument {word} is {word}_ in Python", "changed")
            word = f"{word}_"
        value = _default(default) if default is not None else None
        if default is not None and value is None:
            source.left(
                line, f"{name}: the default of {word}, `{default.strip()}`, is not a literal"
            )
        if value is not None and kind.schema == "float" and re.fullmatch(r"-?\d+", value):
            value = f"{value}."
        arguments.append(Parameter(name=word, type=kind.schema, default=value))
    # In a schema, an argument with a default has none without after it.
    last = max((i for i, a in enumerate(arguments) if a.default is None), default=-1)
    return [replace(a, default=None) if i < last else a for i, a in enumerate(arguments)]


def _default(text: str) -> str | None:
    """A C++ default in the words of a schema; None if it is not a literal."""
    plain = text.strip()
    words = {"true": "True", "false": "False"}
    if plain in words:
        return words[plain]
    if re.fullmatch(r"(?:py|pybind11)::none\(\)|(?:c10|std|at)::nullopt|nullptr", plain):
        return "None"
    number = re.sub(r"(?<=[\d.])[fFlLuU]+$", "", plain)
    if _NUMBER.fullmatch(number):
        return number
    string = cpp_text.literal(plain)
    return cpp_text.quoted(string[1]) if string else None


def _marks(
    source: _Source,
    bound: _Bound,
    found: Function,
    arguments: Sequence[Parameter],
    returns: str,
) -> tuple[tuple[Parameter, ...], str]:
    """Mark the tensors that a function writes to, and a result that is one of them."""
    marked: list[Parameter] = []
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    written = []
    for parameter, argument in zip(found.parameters, arguments, strict=True):
        plain = re.escape(parameter.name or "?")
        in_place = re.search(
            rf"\b{plain}\s*\.\s*(?!requires_grad_|is_|sizes_)\w*[a-z]_\s*\(", found.body
        )
        fills = found.returns == "void" and "const" not in parameter.type
        same = re.search(rf"\breturn\s+{plain}\s*;", found.body) and returns == "Tensor"
        if argument.type.startswith("Tensor") and (in_place or fills):
            letter = next(letters)
            marked.append(_aliased(argument, f"{letter}!"))
            written.append(argument.name)
            returns = f"Tensor({letter}!)" if same else returns
        elif argument.type == "Tensor" and same:
            letter = next(letters)
            marked.append(_aliased(argument, letter))
            returns = f"Tensor({letter})"
        else:
            marked.append(argument)
    if written and found.returns == "void":
        source.left(
            bound.line,
            f"{bound.name} returns nothing, so each of {', '.join(written)} is declared as written "
            "to (`!` in the schema); remove the mark of what it only reads",
            "check",
        )
    return tuple(marked), returns


def _aliased(argument: Parameter, mark: str) -> Parameter:
    return replace(argument, type=argument.type.replace("Tensor", f"Tensor({mark})", 1))


def _adapter(called: str, names: Sequence[str], types: Sequence[Type], returned: Type) -> str:
    """The function that is registered: the user's own, or a lambda that converts numbers."""
    if not returned.actual and not any(kind.actual for kind in types):
        return called
    taken = ", ".join(f"{kind.cpp} {name}" for kind, name in zip(types, names, strict=True))
    passed = ", ".join(
        f"static_cast<{kind.actual}>({name})" if kind.actual else name
        for kind, name in zip(types, names, strict=True)
    )
    call = f"{called.removeprefix('&')}({passed})"
    if returned.actual:
        call = f"static_cast<{returned.cpp}>({call})"
    word = "" if returned.cpp == "void" else "return "
    return f"[]({taken}) {{ {word}{call}; }}"


# -- torch's own macros ------------------------------------------------------------------------


def _replace_libraries(source: _Source, text: str) -> str:
    """Give the namespaces that a source names the build's name."""
    code = source.code
    blocks = [*cpp_text.LIBRARY.finditer(code)]
    named = [m for m in blocks if m["name"] != "TORCH_EXTENSION_NAME"]
    for match in named:
        line = cpp_text.line_of(code, match.start())
        source.left(line, f"the op namespace {match['name']} becomes the build's own", "changed")
    for match in blocks:
        if match["kind"] != "_IMPL":
            opened = code.find("{", match.end())
            line = cpp_text.line_of(code, opened)
            for schema in op_schema.schemas_in(
                source.text[opened : cpp_text.closing(code, opened)]
            ):
                head, bracket, rest = schema.partition("(")
                op = head.rpartition("::")[2].strip()
                source.operators.append(
                    Operator(
                        name=op.partition(".")[0],
                        schema=f"{op}{bracket}{rest}",
                        path=source.path,
                        line=line,
                    )
                )

    def replacement(match: re.Match[str]) -> str:
        if text[match.start() - 1 : match.start()] == '"':
            return match[0]
        kind = match["kind"] or "_FRAGMENT"
        return f"{match['stable'] or ''}TORCH_LIBRARY{kind}(TORCH_EXTENSION_NAME,"

    return cpp_text.LIBRARY.sub(replacement, text) if named else text


# -- the rest ----------------------------------------------------------------------------------


def _replace_includes(text: str, header: str, *, registers: bool) -> str:
    """Headers of Python become headers of torch."""
    wanted = WHOLE_HEADER if _WHOLE_TORCH.search(cpp_text.code(text)) else TYPES_HEADER
    lines = iter([f"#include <{wanted}>"])

    def replacement(match: re.Match[str]) -> str:
        return next(lines, "") if match["name"] == "torch/extension.h" else ""

    text = _ALIAS.sub("", text)
    text = _PYTHON_INCLUDE.sub(replacement, text)
    needed = ["#include <torch/library.h>"] if registers else []
    needed += [f'#include "{header}"'] if header and registers else []
    needed = [line for line in needed if line not in text]
    if not needed:
        return text
    includes = list(re.finditer(r"^[ \t]*#[ \t]*include[^\n]*\n", text, re.MULTILINE))
    first = next((m for m in includes if "torch/" in m[0]), includes[0] if includes else None)
    at = first.end() if first else 0
    return text[:at] + "\n".join(needed) + "\n" + text[at:]


def _leftovers(source: _Source, text: str) -> None:
    """Remarks on what still needs Python's headers."""
    code = source.code
    blocks = [(m.start(), cpp_text.closing(code, m.start("open"))) for m in _BLOCK.finditer(code)]
    for match in _PYBIND.finditer(code):
        inside = any(begin <= match.start() <= end for begin, end in blocks)
        if not inside and not re.search(r"namespace\s+py\s*=\s*$", code[: match.start()]):
            line = cpp_text.line_of(source.text, match.start())
            source.left(
                line,
                f"`{match[0]}` needs pybind11, which a kernel does not have; move it to Python",
            )
    init = _PYINIT.search(cpp_text.code(text))
    if init and "_WIN32" not in text[: init.start()]:
        line = cpp_text.line_of(source.text, max(0, source.text.find(init[0])))
        source.left(line, f"`{init[0]}`: remove it, REGISTER_EXTENSION makes the module")
