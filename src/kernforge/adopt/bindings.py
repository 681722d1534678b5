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
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernforge.adopt import cpp
from kernforge.adopt.cpp import Function, TranslationError, Type
from kernforge.adopt.program import Remark
from kernforge.source import cpp_text, op_namespace, op_schema
from kernforge.source.python_api import Parameter

_BLOCK = re.compile(r"\bPYBIND11_MODULE\s*\(\s*\w+\s*,\s*(?P<handle>\w+)[^)]*\)\s*(?P<open>\{)")
_PYTHON_INCLUDE = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*[<\"](?P<name>torch/extension\.h|torch/python\.h|Python\.h"
    r"|pybind11/[^>\"]*|torch/csrc/utils/pybind\.h)[>\"][^\n]*$",
    re.MULTILINE,
)
_ALIAS = re.compile(r"^[ \t]*namespace\s+py\s*=\s*pybind11\s*;[^\n]*\n?", re.MULTILINE)
_OF_PYTHON = re.compile(r"\b(?:py|pybind11)\s*::\s*\w+|\bPYBIND11_(?!MODULE)\w+|\bPyInit_\w+")
_WHOLE_TORCH = re.compile(
    r"\btorch\s*::\s*(?:nn|optim|autograd|jit|data|serialize|save|load)\b|\bAutogradContext\b"
)
_ARG = re.compile(
    r'\s*(?:(?:py|pybind11)::arg\(\s*"(\w+)"\s*\)|"(\w+)"_a)\s*(?:=\s*(.*))?\s*', re.DOTALL
)
_POLICY = re.compile(
    r"\s*(?:py|pybind11)::(?:call_guard|return_value_policy|keep_alive|doc)\b.*", re.DOTALL
)
_WRAPPED = re.compile(r"torch::wrap_pybind_function(?:_no_gil)?\((.*)\)", re.DOTALL)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_LAUNCH = re.compile(r"<<<(?P<inside>[^;{}]*?)>>>")
_STREAM = 4  # number of the argument of a launch
_FRAGMENT = "TORCH_LIBRARY_FRAGMENT(TORCH_EXTENSION_NAME, ops) {"
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


@dataclass(slots=True, kw_only=True)
class _Source:
    """One source on its way; ``code`` is its text without comments and literals."""

    path: str
    text: str
    code: str
    texts: Mapping[str, str]
    keys: tuple[str, ...]
    prefix: str
    remarks: list[Remark]
    operators: list[Operator] = field(default_factory=list)

    def left(self, line: int, text: str, kind: str = "left") -> None:
        self.remarks.append(Remark(self.path, line, text, kind))


def binds(text: str) -> bool:
    """Whether a block of a source registers operators."""
    code = cpp_text.code(text)
    libraries = any(m["kind"] != "_IMPL" for m in op_namespace.LIBRARY.finditer(code))
    return libraries or _BLOCK.search(code) is not None


def translate(
    path: str,
    text: str,
    *,
    texts: Mapping[str, str],
    keys: tuple[str, ...],
    prefix: str,
    remarks: list[Remark],
) -> tuple[str, list[Operator]]:
    """Translate a source; returns its new text and the operators that it registers.

    Args:
        path: of the source, for remarks.
        text: its text.
        texts: texts of the sources in which bound functions may be, by path.
        keys: what the source is built for, some of ``CPU`` and ``CUDA``.
        prefix: what the names of operators begin with, where two modules have the same names.
        remarks: gets what the user should know.
    """
    code = cpp_text.code(text)
    source = _Source(
        path=path, text=text, code=code, texts=texts, keys=keys, prefix=prefix, remarks=remarks
    )
    result = _replace_libraries(source, _replace_blocks(source))
    result = _replace_includes(result, registers=bool(source.operators))
    for match in _LAUNCH.finditer(code):
        if len(cpp_text.split(match["inside"])) < _STREAM:
            source.left(
                cpp_text.line_of(text, match.start()),
                "the launch is on the default stream; give it at::cuda::getCurrentCUDAStream() as "
                "the fourth argument",
                "check",
            )
    return result, source.operators


def with_c_linkage(text: str, others: Iterable[str]) -> tuple[str, dict[str, int]]:
    """Add ``extern "C"`` to declarations whose definitions have it.

    Args:
        text: a C++ source.
        others: texts of the sources in which functions are defined.

    Returns:
        The text, and the line of each declaration that was changed, by name.
    """
    changed: dict[str, int] = {}
    functions = re.compile(r'\bextern\s*"C"\s*[^;{}()]*?\b(\w+)\s*\(')
    defined = {name for other in others for name in functions.findall(other)}
    for name in sorted(defined - {*functions.findall(text)}):
        pattern = rf"^(?P<indent>[ \t]*)(?=(?:[\w:<>]+[\s&*]+)+{name}\s*\([^;{{}}()]*\)\s*;)"
        if match := re.search(pattern, text, re.MULTILINE):
            changed[name] = cpp_text.line_of(text, match.end())
            text = f'{text[: match.end()]}extern "C" {text[match.end() :]}'
    return text, changed


# -- PYBIND11_MODULE ---------------------------------------------------------------------------


def _replace_blocks(source: _Source) -> str:
    text, code = source.text, source.code
    parts, last = [], 0
    for match in _BLOCK.finditer(code):
        opened = match.start("open")
        end = cpp_text.closing(code, opened)
        if end < 0:
            source.left(cpp_text.line_of(text, match.start()), "the block does not end")
            continue
        lines = list(_block(source, opened + 1, end, match["handle"]))
        parts += [text[last : match.start()], "\n".join([_FRAGMENT, *lines, "}"] if lines else [])]
        last = end + 1
    result = "".join((*parts, text[last:]))
    rest = cpp_text.code(_ALIAS.sub("", result))
    for what in dict.fromkeys(_OF_PYTHON.findall(rest)):
        line = cpp_text.line_of(text, max(0, code.find(what)))
        action = "REGISTER_EXTENSION makes the module: remove it"
        if not what.startswith("PyInit"):
            action = "a kernel has no pybind11: move it to Python"
        source.left(line, f"`{what}`: {action}")
    return result


def _block(source: _Source, begin: int, end: int, handle: str) -> Iterator[str]:
    """The lines of a library for the statements of a PYBIND11_MODULE block."""
    text, code = source.text, source.code
    define = re.compile(rf"{handle}\s*\.\s*def\s*(?=\()")
    position = begin
    while position < end:
        if code[position].isspace() or code[position] == ";":
            position += 1
        elif code[position] == "#":
            stop = text.find("\n", position, end)
            stop = end if stop < 0 else stop
            yield text[position:stop].rstrip()
            position = stop
        elif match := define.match(code, position):
            position = cpp_text.closing(code, match.end())
            inside = text[match.end() + 1 : position]
            at = match.end() + 1 + len(inside) - len(inside.lstrip())
            yield from _definition(source, cpp_text.split(inside), cpp_text.line_of(text, at))
            position += 1
        else:
            stop = _statement_end(code, position, end)
            words = " ".join(text[position:stop].split())[:60]
            if not re.match(rf"{handle}\s*\.\s*doc\b", words):
                reason = "is not a function that an operator can be; write it in Python"
                source.left(cpp_text.line_of(text, position), f"`{words}` {reason}")
            position = stop + 1


def _statement_end(code: str, position: int, end: int) -> int:
    """Position of the semicolon or of the block that ends a statement."""
    while position < end and code[position] != ";":
        if code[position] in "([{":
            closed = cpp_text.closing(code, position)
            if code[position] == "{" and not re.match(r"\s*[;,).]", code[closed + 1 :]):
                return closed
            position = closed
        position += 1
    return position


def _definition(source: _Source, parts: Sequence[str], line: int) -> Iterator[str]:
    """The lines that define and implement the operator that ``m.def(...)`` bound."""
    named = cpp_text.literal(parts[0])
    if not named or len(parts) < 2:  # noqa: PLR2004
        source.left(line, "the name of a function is not a literal")
        return
    name, doc, given = named[1], "", list[tuple[str, str | None]]()
    for part in parts[2:]:
        if text := cpp_text.literal(part):
            doc = text[1]
        elif match := _ARG.fullmatch(part):
            given.append((match[1] or match[2], match[3]))
        elif not _POLICY.fullmatch(part):
            source.left(line, f"{name}: `{' '.join(part.split())}` is not translated")
    operator = Operator(name=name, schema="", doc=doc, path=source.path, line=line)
    try:
        yield from _register(source, operator, parts[1], given)
    except TranslationError as error:
        source.left(line, f"{name}: {error}")


def _register(
    source: _Source,
    operator: Operator,
    expression: str,
    given: Sequence[tuple[str, str | None]],
) -> Iterator[str]:
    """The lines of an operator whose schema is not known yet.

    Args:
        expression: what is bound.
        given: names and defaults of arguments.

    Raises:
        TranslationError: an operator cannot be what is bound.
    """
    name = operator.name
    if not name.isidentifier() or keyword.iskeyword(name):
        raise TranslationError("it cannot be the name of a Python function")
    if any(each.name == name for each in source.operators):
        raise TranslationError("an operator of this name is there already: rename an overload")
    called = _WRAPPED.sub(r"\1", expression).strip().removeprefix("&").strip()
    found = _function(source, called)
    types = [cpp.argument_type(parameter) for parameter in found.parameters]
    returned = cpp.return_type(found.returns)
    arguments = list(_arguments(source, operator, found, types, given))
    results = returned.schema
    for mark, at in zip(string.ascii_lowercase, _written(found, types), strict=False):
        tensor, body = arguments[at], re.escape(found.parameters[at].name)
        marked = tensor.type.replace("Tensor", f"Tensor({mark}!)", 1)
        arguments[at] = replace(tensor, type=marked)
        if results == "Tensor" and re.search(rf"\breturn\s+{body}\s*;", found.body):
            results = f"Tensor({mark}!)"
    op = f"{source.prefix}{name}"
    listed = (f"{a.type} {a.name}{'' if a.default is None else f'={a.default}'}" for a in arguments)
    schema = f"{op}({', '.join(listed)}) -> {results}"
    source.operators.append(replace(operator, schema=schema))
    if found.returns == "void" and (named := [a.name for a in arguments if "!" in a.type]):
        source.left(
            operator.line,
            f"{name} returns nothing, so each of {', '.join(named)} is declared as written "
            "to (`!` in the schema); remove the mark of what it only reads",
            "check",
        )
    call = _adapter(called, [a.name for a in arguments], types, returned)
    tensors = any("Tensor" in argument.type for argument in arguments)
    if not tensors or "::apply(" in found.body:  # autograd's functions are of no device
        yield f"  ops.def({cpp_text.quoted(schema)}, {call});"
        return
    yield f"  ops.def({cpp_text.quoted(schema)});"
    for key in source.keys:
        yield f'  ops.impl("{op}", torch::k{key}, {call});'


def _function(source: _Source, called: str) -> Function:
    """The function that is bound by a name."""
    if called.startswith("["):
        raise TranslationError("a lambda is not translated: give the function a name")
    if not re.fullmatch(r"[\w:]+(?:<[^()]*>)?", called):
        raise TranslationError(f"`{' '.join(called.split())[:60]}` is not a function")
    last = re.sub(r"<.*", "", called).rpartition("::")[2]
    candidates = list(cpp.functions(source.text, last))
    if not any(f.body for f in candidates):
        candidates = [f for text in source.texts.values() for f in cpp.functions(text, last)]
    # A header may declare what no source defines any more.
    candidates = [f for f in candidates if f.body] or candidates
    bare = re.compile(r"\s+|\b(?:torch|at|c10|std)::")
    signatures = {tuple(bare.sub("", p.type) for p in f.parameters) for f in candidates}
    if not signatures:
        raise TranslationError(f"no declaration of {last} was found in the module's sources")
    if len(signatures) > 1:
        raise TranslationError(f"{last} is overloaded; give each function a name")
    best = max(candidates, key=lambda f: (bool(f.body), sum(bool(p.name) for p in f.parameters)))
    if best.is_template and "<" not in called:
        raise TranslationError(f"{last} is a template")
    return best


def _arguments(
    source: _Source,
    operator: Operator,
    found: Function,
    types: Sequence[Type],
    given: Sequence[tuple[str, str | None]],
) -> Iterator[Parameter]:
    """The arguments of an operator, with the names and defaults that its binding gives."""
    defaults = [_default(default or "") for _, default in given]
    # In a schema, an argument with a default has none without after it.
    required = [at for at in range(len(types)) if at >= len(given) or defaults[at] is None]
    for at, (parameter, kind) in enumerate(zip(found.parameters, types, strict=True)):
        word, written = given[at] if at < len(given) else ("", None)
        word = word or parameter.name or f"arg{at}"
        if keyword.iskeyword(word):
            text = f"{operator.name}: the argument {word} is {word}_ in Python"
            source.left(operator.line, text, "changed")
            word = f"{word}_"
        value = defaults[at] if at < len(given) else None
        if written is not None and value is None:
            text = f"{operator.name}: the default of {word}, `{written.strip()}`, is not a literal"
            source.left(operator.line, text)
        if value is not None and kind.schema == "float" and re.fullmatch(r"-?\d+", value):
            value = f"{value}."
        late = not required or at > required[-1]
        yield Parameter(name=word, type=kind.schema, default=value if late else None)


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
    literal = cpp_text.literal(plain)
    return cpp_text.quoted(literal[1]) if literal else None


def _written(found: Function, types: Sequence[Type]) -> Iterator[int]:
    """Numbers of the tensors that a function writes to; all that may be, if it returns nothing."""
    for at, (parameter, kind) in enumerate(zip(found.parameters, types, strict=True)):
        method = r"\.\s*(?!requires_grad_|is_|sizes_)\w*[a-z]_\s*\("
        in_place = re.search(rf"\b{re.escape(parameter.name or '?')}\s*{method}", found.body)
        fills = found.returns == "void" and "const" not in parameter.type
        if kind.schema.startswith("Tensor") and (in_place or fills):
            yield at


def _adapter(called: str, names: Sequence[str], types: Sequence[Type], returned: Type) -> str:
    """The function that is registered: the user's own, or a lambda that converts numbers."""
    if not returned.actual and not any(kind.actual for kind in types):
        return f"&{called}"
    taken = ", ".join(f"{kind.cpp} {name}" for kind, name in zip(types, names, strict=True))
    passed = ", ".join(
        f"static_cast<{kind.actual}>({name})" if kind.actual else name
        for kind, name in zip(types, names, strict=True)
    )
    call = f"{called}({passed})"
    if returned.actual:
        call = f"static_cast<{returned.cpp}>({call})"
    word = "" if returned.cpp == "void" else "return "
    return f"[]({taken}) {{ {word}{call}; }}"


# -- torch's own macros, and includes ----------------------------------------------------------


def _replace_libraries(source: _Source, text: str) -> str:
    """Give the namespaces that a source names the build's name."""
    code = source.code
    for match in op_namespace.LIBRARY.finditer(code):
        line = cpp_text.line_of(code, match.start())
        if match["name"] != "TORCH_EXTENSION_NAME":
            text_ = f"the op namespace {match['name']} becomes the build's own"
            source.left(line, text_, "changed")
        if match["kind"] == "_IMPL":
            continue
        opened = code.find("{", match.end())
        block = source.text[opened : cpp_text.closing(code, opened)]
        for schema in op_schema.schemas_in(block):
            head, bracket, rest = schema.partition("(")
            op = head.rpartition("::")[2].strip()
            operator = Operator(
                name=op.partition(".")[0],
                schema=f"{op}{bracket}{rest}",
                path=source.path,
                line=line,
            )
            source.operators.append(operator)

    def replacement(match: re.Match[str]) -> str:
        if text[match.start() - 1 : match.start()] == '"':
            return match[0]
        kind = match["kind"] or "_FRAGMENT"
        return f"{match['stable'] or ''}TORCH_LIBRARY{kind}(TORCH_EXTENSION_NAME,"

    return op_namespace.LIBRARY.sub(replacement, text)


def _replace_includes(text: str, *, registers: bool) -> str:
    """Headers of Python become headers of torch."""
    wanted = WHOLE_HEADER if _WHOLE_TORCH.search(cpp_text.code(text)) else TYPES_HEADER
    lines = iter([f"#include <{wanted}>"])

    def replacement(match: re.Match[str]) -> str:
        return next(lines, "") if match["name"] == "torch/extension.h" else ""

    text = _PYTHON_INCLUDE.sub(replacement, _ALIAS.sub("", text))
    library = "#include <torch/library.h>"
    if not registers or library in text:
        return text
    includes = list(re.finditer(r"^[ \t]*#[ \t]*include[^\n]*\n", text, re.MULTILINE))
    first = next((m for m in includes if "torch/" in m[0]), includes[0] if includes else None)
    at = first.end() if first else 0
    return f"{text[:at]}{library}\n{text[at:]}"
