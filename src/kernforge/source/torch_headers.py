# SPDX-License-Identifier: Apache-2.0
"""Slim headers: reduce torch's headers to what a source uses, and detect a source that needs all.

``torch/types.h`` is 13 MB of text and ``torch/extension.h`` 16, and nvcc's two passes and the host
compiler each read it. Most of it is for the 2,500 operators that a source does not call. Here the
include is replaced by one of a header that is written for the source: ``ATen/core/Tensor.h`` (the
class with its methods), the functions of those operators that the source names, as the installed
headers define them, and torch's own names for types. If a source uses more than that, its compiler
misses a name, and the source is compiled again as it is. A source that tests a macro of torch's
would not miss it, and keeps all headers. One that defines an ``autograd::Function`` gets torch's
header for that, which is half of all.

The functions in ``torch::`` that make tensors are those of the installed ``variable_factories.h``,
except that they set ``requires_grad`` by the tensor's method instead of
``autograd::make_variable``, whose header is as large as all of ATen's.

To compile again takes long, and is in vain if the mistake is the user's. Headers bring names: an
error is final if it is not about a name that is missing, or if the name is in no header. The
messages are those of GCC, of Clang and of nvcc's front end.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping

from kernforge.source import cpp_text, diagnostics
from kernforge.source.diagnostics import Diagnostic
from kernforge.source.includes import Closure

SLIM_DIRECTORY = "kernforge-slim"
"""Directory of a unit's slim headers, in the action's directory."""
HEADER = "kernforge_torch.h"
PATH = f"{SLIM_DIRECTORY}/{HEADER}"
"""The written header, in an action's directory."""
LARGE = ("torch/extension.h", "torch/torch.h", "torch/all.h", "torch/types.h", "ATen/ATen.h")
"""Headers with all operators."""
_LARGE_INCLUDE = re.compile(
    rf'^([ \t]*)#[ \t]*include[ \t]*[<"](?:{"|".join(map(re.escape, LARGE))})[>"]', re.MULTILINE
)
# Other headers that are allowed. One that is not may define a second time what is written here.
_ALLOWED = re.compile(
    r"(?!torch/|ATen/|caffe2/|THC/).*|torch/library\.h|torch/csrc/utils/pybind\.h|THC/THCAtomics\.cuh"
    r"|torch/csrc/autograd/custom_function\.h"
    r"|ATen/(?:Dispatch|AccumulateType|OpMathType|cuda/CUDAContext(?:Light)?|cuda/Exceptions)\.h"
    r"|ATen/(?:DeviceGuard\.h|cuda/Atomic\.cuh)"
)
# Parts of torch that are not in the written header.
_UNSUPPORTED = re.compile(
    r"\b(?:torch|at)\s*::\s*(?:nn|optim|jit|data|serialize|indexing|save|load|linalg|fft"
    r"|special|sparse|tensor|from_blob|manual_seed|parallel_for|native|globalContext)\b"
    r"|\b(?:NoGradGuard|GradMode|InferenceMode|AutoGradMode|Slice|Ellipsis)\b"
    r"|\.\s*index(?:_put_)?\s*\(\s*\{"
)
_PYBIND = re.compile(r"\bPYBIND11_\w+|\b(?:py|pybind11)\s*::|\bwrap_pybind_function|\bTHP\w+")
_PYTHON = re.compile(r"\bPy[A-Z_]\w*|\bPY_\w+")
_GUARD = re.compile(r"\bdevice_of\b")
_LIBRARY = re.compile(r"\bTORCH_LIBRARY|\btorch\s*::\s*Library\b")
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
    *("ATen/core/Reduction.h", "ATen/Dispatch.h", "torch/version.h"),
)
_TESTED = re.compile(r"^[ \t]*#[ \t]*(?:el)?if(?:n?def)?\b((?:\\\n|[^\n])*)", re.MULTILINE)
_DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*")
_FILE_TEST = re.compile(r"__has_include\w*\s*\([^()]*\)")
_VERSION = "TORCH_VERSION"
_PYTHON_HEADER = "Python.h"
_VARIABLE = """namespace torch { namespace kernforge {
inline at::Tensor variable(at::Tensor made, bool requires_grad) {
  if (requires_grad) made.set_requires_grad(true);
  return made;
}
}}
"""
_TWICE = re.compile(r"redefinition|already been (?:defined|declared)")
_ABOUT_A_NAME = re.compile(
    r"declared|undefined|defin|member|does not name|incomplete|ambiguous|must be a class"
    r"|no (?:instance|match|suitable|operator)|expected|cannot convert|unknown type|No such file"
)
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
_EXPECTED = re.compile(r"""expected (?:a )?['"][,;)\]]['"]""")
# A macro may be missing, but for those that slim headers always have.
_MACRO = re.compile(r"\b(?!TORCH_CHECK\b|AT_DISPATCH_)_*[A-Z][A-Z0-9_]+\b")
_MISSING = re.compile(
    r"""['"](?P<a>\w+)['"] (?:was not declared|has not been declared|does not name|is undefined)"""
    r"|'(?P<b>\w+)' (?:is not a member of '|in (?:namespace|class|struct) '[^']*' does not name)"
    r"|(?:use of undeclared identifier|unknown type name) '(?P<c>\w+)'"
    r"|no (?:member|type|template) named '(?P<d>\w+)' in (?:the global )?namespace"
    r'|(?:identifier|namespace "[^"]*" has no (?:actual )?member) "(?P<e>\w+)"'
)


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
    error, *others = diagnostics.errors(diagnostics.parse(output)) or (None,)
    if error is None or not _ABOUT_A_NAME.search(error.message):
        return False
    if _TWICE.search(error.message):  # no more headers cure it, unless a slim one has the other
        notes = itertools.takewhile(lambda each: each.severity == "note", others)
        places = [error.file, error.message, *(note.file for note in notes)]
        return any(part in place for part in torch for place in places)
    if "/" in error.file and error.file not in texts:
        return "incomplete" in error.message or any(part in error.file for part in torch)
    if missing := _MISSING.match(error.message):
        name = next(filter(None, missing.groups()))
        anywhere = _ANYWHERE.match(name) or _OF_STD.search(error.message)
        return bool(anywhere) or occurs(name)
    return not _FINAL.match(error.message) and not _is_unfinished(error, texts)


def _is_unfinished(error: Diagnostic, texts: Mapping[str, str]) -> bool:
    """Whether a bracket or a semicolon is missing, and no macro in this line or the one before."""
    lines = cpp_text.code(texts.get(error.file, "")).splitlines()
    near = lines[max(0, error.line - 2) : error.line]
    return bool(_EXPECTED.match(error.message) and near) and not any(map(_MACRO.search, near))


# -- the written header --------------------------------------------------------------------


def may_be_slim(closure: Closure) -> bool:
    """Whether slim headers can stand for those that a unit includes."""
    others = [name for name in closure.foreign if name not in LARGE]
    return (
        not closure.opaque
        and len(others) < len(closure.foreign)
        and all(_ALLOWED.fullmatch(name) for name in others)
    )


def slim_texts(
    texts: Mapping[str, str],
    read: Callable[[str], str | None],
    defines: Callable[[Collection[str]], bool],
) -> tuple[dict[str, str], tuple[str, ...]] | None:
    """The files of a unit with a slim header among them, and what that header includes.

    Args:
        texts: of a unit that ``may_be_slim``, by path.
        read: text of a header below torch's ``include``; None if there is none.
        defines: whether a header of torch defines one of these macros.

    Returns:
        None if the unit uses more of torch, or torch's headers are not as expected.
    """
    code = "\n".join(cpp_text.code(text) for text in texts.values())
    # The compiler's own begin with two underscores. The version is in every slim header, and
    # Python's are where they are named.
    tested = {n for n in tested_macros(texts.values()) if not n.startswith(("__", _VERSION))}
    asked = {name for name in tested if not _PYTHON.match(name)}
    if _UNSUPPORTED.search(code) or (asked and defines(asked)):
        return None
    written = write_header(code, read)
    if written is None:
        return None
    text, included = written
    if _PYTHON.search(code):  # torch/extension.h has it, torch/torch.h has not
        name = _PYTHON_HEADER
        text = f"#if __has_include(<{name}>)\n#include <{name}>\n#endif\n{text}"
        included = (name, *included)
    slim = {path: _LARGE_INCLUDE.sub(rf'\1#include "{HEADER}"', t) for path, t in texts.items()}
    return {**slim, PATH: text}, included


def tested_macros(texts: Iterable[str]) -> frozenset[str]:
    """Macros that the files of a unit test with ``#if`` and do not define themselves."""
    tested: set[str] = set()
    defined: set[str] = {"defined"}
    for text in texts:
        defined.update(_DEFINED.findall(text))
        for condition in _TESTED.findall(text):
            words = _FILE_TEST.sub("", cpp_text.code(condition))
            tested.update(_WORD.findall(words))
    return frozenset(tested - defined)


def write_header(
    code: str, read: Callable[[str], str | None]
) -> tuple[str, tuple[str, ...]] | None:
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
    if _GUARD.search(code):  # as much text as all of these together
        included.append("ATen/DeviceGuard.h")
    if _LIBRARY.search(code):
        included.append("torch/library.h")
    if _PYBIND.search(code):
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
