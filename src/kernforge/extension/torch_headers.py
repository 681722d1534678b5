# SPDX-License-Identifier: Apache-2.0
"""Slim headers: reduce torch's headers to what a source uses, and detect a source that needs all.

``torch/types.h`` is 13 MB of text and ``torch/extension.h`` 16, and nvcc's two passes and the host
compiler each read it. Most of it is for the 2,500 operators that a source does not call. Here the
include is replaced by one of a header that is written for the source: ``ATen/core/Tensor.h`` (the
class with its methods), the functions of those operators that the source names, as the installed
headers define them, and torch's own names for types. If a source uses more than that, its compiler
misses a name, and the source is compiled again as it is. A source that defines an
``autograd::Function`` gets torch's header for that, which is half of all.

The functions in ``torch::`` that make tensors are those of the installed ``variable_factories.h``,
except that they set ``requires_grad`` by the tensor's method instead of
``autograd::make_variable``, whose header is as large as all of ATen's.

To compile again takes long, and is in vain if the mistake is the user's. Headers bring names: an
error is final if it is not about a name that is missing, if the name is in no header, or if what is
defined twice is not torch's. The messages are those of GCC, of Clang and of nvcc's front end.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from kernforge.extension.device.units import SLIM_DIRECTORY, ExtensionUnit
from kernforge.extension.plan import Extension
from kernforge.source import cpp_text, diagnostics
from kernforge.source.diagnostics import Diagnostic
from kernforge.source.includes import Closure
from kernforge.system.process import Command, run

ReadHeader = Callable[[str], str | None]
"""Text of a header below torch's ``include``; None if there is none."""

HEADER = "kernforge_torch.h"
PATH = f"{SLIM_DIRECTORY}/{HEADER}"
"""The written header, in an action's directory."""
_LARGE = ("torch/extension.h", "torch/torch.h", "torch/all.h", "torch/types.h", "ATen/ATen.h")
_LARGE_INCLUDE = re.compile(
    rf'^([ \t]*)#[ \t]*include[ \t]*[<"](?:{"|".join(map(re.escape, _LARGE))})[>"]', re.MULTILINE
)
# Other headers that are allowed. One that is not may define a second time what is written here.
_ALLOWED = re.compile(
    r"(?!torch/|ATen/|caffe2/|THC/).*|torch/library\.h|torch/csrc/utils/pybind\.h"
    r"|torch/csrc/autograd/custom_function\.h"
    r"|ATen/(?:Dispatch|AccumulateType|OpMathType|cuda/CUDAContext(?:Light)?|cuda/Exceptions)\.h"
)
# Parts of torch that are not in the written header.
_UNSUPPORTED = re.compile(
    r"\b(?:torch|at)\s*::\s*(?:nn|optim|jit|data|serialize|indexing|save|load|linalg|fft"
    r"|special|sparse|tensor|from_blob|manual_seed|parallel_for|native|globalContext)\b"
    r"|\b(?:NoGradGuard|GradMode|InferenceMode|AutoGradMode|Slice|Ellipsis)\b"
    r"|\.\s*index(?:_put_)?\s*\(\s*\{"
)
_PYTHON = re.compile(
    r"\bPYBIND11_\w+|\b(?:py|pybind11)\s*::|\bwrap_pybind_function|\bPyObject\b|\bTHP\w+"
)
_LIBRARY = re.compile(r"\bTORCH_LIBRARY")
_AUTOGRAD = re.compile(r"\bautograd\s*::")
# Torch's headers for autograd include all operators, unless this is defined: then those that they
# use.
_PER_OPERATOR = "#define AT_PER_OPERATOR_HEADERS"
_AUTOGRAD_HEADERS = (
    "torch/csrc/autograd/custom_function.h",
    "torch/csrc/autograd/autograd.h",
    "ATen/TensorOperators.h",
)
_CALLED = re.compile(r"(?:\b(?:at|torch)\s*::\s*|(?<![\w.>:]))([a-z]\w*)")
_DIRECTIVE = re.compile(
    r"^[ \t]*#[ \t]*(?:include|pragma once|if|else|endif|error)[^\n]*", re.MULTILINE
)
_FACTORIES = "torch/csrc/autograd/generated/variable_factories.h"
_FACTORY = re.compile(r"^inline at::Tensor (\w+)\(.*?^\}\n", re.DOTALL | re.MULTILINE)
_TYPES = "torch/csrc/api/include/torch/types.h"
# The operators of C++; they call this one.
_OPERATORS, _BY_OPERATORS = "ATen/TensorOperators.h", "empty_like"
_LISTS = "ITensorListRef"
_ALWAYS = (
    *("ATen/core/Tensor.h", "ATen/core/Generator.h", "ATen/core/LegacyTypeDispatch.h"),
    *("ATen/core/Reduction.h", "ATen/Dispatch.h"),
)
_NOT_FOUND = 1
_VARIABLE = """namespace torch { namespace kernforge {
inline at::Tensor variable(at::Tensor made, bool requires_grad) {
  if (requires_grad) made.set_requires_grad(true);
  return made;
}
}}
"""
_ABOUT_A_NAME = re.compile(
    r"declared|undefined|defin|member|does not name|incomplete|ambiguous|must be a class"
    r"|no (?:instance|match|suitable|operator)|expected|cannot convert|unknown type"
)
_REDEFINED = re.compile(r"redefinition|already been defined|conflicting declaration")
# Names of torch and Python that macros put together, and names that any header of C++ may bring.
_ANYWHERE = re.compile(r"k[A-Z]|_?Py")
_OF_STD = re.compile(r"""["']std\b""")
# Only a keyword, as static_cast, must have <. A specialization of a template may be in a header
# that is missing, and so may an operator of a type that is not plain.
_FINAL = re.compile(
    r"""expected (?:a )?['"]<['"]|[^\s:]+: No such file"""
    r"""|(?!.*<)(?!namespace).* has no member|(?!.*<)no member named .* in '"""
    r"""|(?![\s\S]*\b(?:at|c10|torch|std)::)no (?:match for 'operator|operator ")"""
)
# GCC: expected ',' or ';' before 'auto'. Clang and nvcc name only what they expect.
_EXPECTED = re.compile(r"""expected (?:a )?['"][,;)\]]['"](?: or '[;)]')?(?: before '(\w+)')?""")
_MACRO = re.compile(r"\s*_*[A-Z][A-Z0-9_]+\b")
_BODY = re.compile(r"\)\s*(?:const\s*|noexcept\s*|mutable\s*)*(?:->[^;{}]*)?$")
_MISSING = re.compile(
    r"""['"](?P<a>\w+)['"] (?:was not declared|has not been declared|does not name|is undefined)"""
    r"|'(?P<b>\w+)' (?:is not a member of '|in (?:namespace|class|struct) '[^']*' does not name)"
    r"|(?:use of undeclared identifier|unknown type name) '(?P<c>\w+)'"
    r"|no (?:member|type|template) named '(?P<d>\w+)' in (?:the global )?namespace"
    r'|(?:identifier|namespace "[^"]*" has no (?:actual )?member) "(?P<e>\w+)"'
)


def may_need_whole_headers(
    output: str, texts: Mapping[str, str], tree: str, directory: str
) -> bool:
    """Whether a source that failed with slim headers may compile with all of torch's.

    Args:
        output: what the compiler wrote.
        texts: the source and what it includes, by path.
        tree: name of torch's tree among those of the compiler's action.
        directory: what that tree is.
    """

    def occurs(name: str) -> bool:
        # Not in a line of a comment.
        pattern = rf"^\s*(([^[:space:]/*]|/[^/*]).*\b)?{name}\b"
        argv = ("grep", "-RqE", "-e", pattern, "--", f"{directory}/include", "/usr/include")
        try:
            return run(Command(argv=argv)).returncode != _NOT_FOUND
        except FileNotFoundError:
            return True

    users = {path: text for path, text in texts.items() if path != PATH}
    return may_lack_header(output, users, (f"/{tree}/", SLIM_DIRECTORY), occurs)


def may_lack_header(
    output: str,
    texts: Mapping[str, str],
    torch: Collection[str],
    occurs: Callable[[str], bool],
) -> bool:
    """Whether the first error may come from a header that the slim ones lack.

    The first error decides: all others may come of it.

    Args:
        output: what the compiler wrote.
        texts: the user's files by path.
        torch: parts of the paths of torch's headers, and of those that are in their place.
        occurs: whether a name is anywhere in torch's headers or in the system's.
    """
    error, *rest = diagnostics.errors(diagnostics.parse(output)) or (None,)
    if error is None or not _ABOUT_A_NAME.search(error.message):
        return False
    notes = itertools.takewhile(lambda each: each.severity == "note", rest)
    if "/" in error.file and error.file not in texts:
        return "incomplete" in error.message or any(part in error.file for part in torch)
    if _REDEFINED.search(error.message):
        places = (error.message, *(note.file for note in notes))
        return any(part in place for part in torch for place in places)
    if missing := _MISSING.match(error.message):
        name = next(filter(None, missing.groups()))
        anywhere = _ANYWHERE.match(name) or _OF_STD.search(error.message)
        return bool(anywhere) or occurs(name)
    return not _FINAL.match(error.message) and not _is_unfinished(error, texts)


def _is_unfinished(error: Diagnostic, texts: Mapping[str, str]) -> bool:
    """Whether a bracket or a semicolon is missing in the body of one of the user's functions.

    Outside of one, a macro whose header is missing looks like the declaration of a function.
    """
    expected = _EXPECTED.match(error.message)
    if expected is None:
        return False
    text = texts.get(error.file)
    if text is None:
        return False
    code = cpp_text.code(text)
    lines = code.splitlines(keepends=True)[: error.line - 1]
    offset = sum(map(len, lines)) + max(0, error.column - 1)
    return not _MACRO.match(expected[1] or code[offset:]) and _is_in_body(code[:offset])


def _is_in_body(code: str) -> bool:
    """Whether a text of code ends in the body of a function."""
    is_body: list[bool] = []
    for match in re.finditer(r"[{}]", code):
        if match[0] == "{":
            is_body.append(bool(_BODY.search(code[: match.start()].rstrip()[-300:])))
        elif is_body:
            is_body.pop()
    return any(is_body)


# -- the written header --------------------------------------------------------------------


@functools.lru_cache(1 << 12)
def read_header(torch: str, name: str) -> str | None:
    """Text of a header of an installed torch; None if there is none."""
    path = Path(torch, "include", name)
    return path.read_text(encoding="utf-8") if path.is_file() else None


def slim_extension(extension: Extension, torch: str | None, whole: Collection[str]) -> Extension:
    """An extension with slim headers in each source that compiles with them.

    Args:
        torch: directory of torch; None leaves the headers as they are.
        whole: paths of sources that need all headers.
    """
    if torch is None:
        return extension
    read = functools.partial(read_header, torch)
    units = (u if u.path in whole else slim_unit(u, read) or u for u in extension.units)
    return replace(extension, units=tuple(units))


def slim_unit(unit: ExtensionUnit, read: ReadHeader) -> ExtensionUnit | None:
    """A unit with slim headers; None if it uses more of torch."""
    given, closure = unit.texts, unit.closure
    others = [name for name in closure.foreign if name not in _LARGE]
    if closure.opaque or not all(_ALLOWED.fullmatch(name) for name in others):
        return None
    texts = {path: _LARGE_INCLUDE.sub(rf'\1#include "{HEADER}"', t) for path, t in given.items()}
    code = "\n".join(cpp_text.code(text) for text in given.values())
    if texts == given or _UNSUPPORTED.search(code):
        return None
    written = write_header(code, read)
    if written is None:
        return None
    text, included = written
    files = tuple(sorted((*closure.files, PATH)))
    foreign = tuple(sorted({*others, *included}))
    new = Closure(files=files, foreign=foreign, opaque=False)
    return replace(unit, texts={**texts, PATH: text}, closure=new)


def write_header(code: str, read: ReadHeader) -> tuple[str, tuple[str, ...]] | None:
    """Header for code without comments, and what it includes; None: torch's is not as expected."""
    types, factories, operators = read(_TYPES), read(_FACTORIES), read(_OPERATORS)
    if types is None or factories is None or operators is None:
        return None
    if "using namespace at;" not in types:
        return None
    words = sorted({*_CALLED.findall(code), _BY_OPERATORS})
    # Some files are no operator's, such as ATen/ops/tensor.h.
    bodies = {
        word: text
        for word in words
        if (text := read(f"ATen/ops/{word}.h")) and f"ATen/ops/{word}_ops.h>" in text
    }
    included = [*_ALWAYS, *(f"ATen/ops/{word}_ops.h" for word in bodies)]
    if any(_LISTS in text for text in bodies.values()):
        included.append("ATen/core/IListRef_inl.h")
    if _LIBRARY.search(code):
        included.append("torch/library.h")
    if _PYTHON.search(code):
        included += ["torch/csrc/utils/pybind.h", "torch/csrc/Exceptions.h"]
    tensor_makers = [m[0] for m in _FACTORY.finditer(factories) if m[1] in bodies]
    if _AUTOGRAD.search(code):
        # Autograd's headers bring what those of operators include, and some operators.
        included = [*_AUTOGRAD_HEADERS, *(f"ATen/ops/{word}.h" for word in bodies), *included]
        first, written = ["#pragma once", _PER_OPERATOR], [_without_directives(types)]
    else:
        first = ["#pragma once"]
        written = [*map(_without_directives, (*bodies.values(), operators, types)), _VARIABLE]
        make, ours = "autograd::make_variable(", "kernforge::variable("
        tensor_makers = [text.replace(make, ours) for text in tensor_makers]
    includes = (f"#include <{name}>" for name in included)
    parts = (*first, *includes, *written, "namespace torch {", *tensor_makers, "}", "")
    return "\n".join(parts), tuple(included)


def _without_directives(text: str) -> str:
    """A header without its directives, which are for other uses of it."""
    return _DIRECTIVE.sub("", text)
