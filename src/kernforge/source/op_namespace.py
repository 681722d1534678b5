# SPDX-License-Identifier: Apache-2.0
"""How a unit gets the op namespace, which changes with every edit of any source.

A source can name it anywhere, as a macro, and then must be compiled for each name. One that names
it only in the macros of the ``registration.h`` that kernforge brings takes it from an object of its
own at link time: its result serves every build. See docs/decisions/0036.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SOURCE = "namespace.cpp"
AT_LINK = "-DKERNFORGE_NAMESPACE_AT_LINK"
_MACROS = ("TORCH_EXTENSION_NAME", "TVM_FFI_EXTENSION_NAME")
_REGISTERS = re.compile(r"\bREGISTER_EXTENSION\s*\(\s*TORCH_EXTENSION_NAME\s*\)")
_LIBRARY = re.compile(
    r"\b(?:STABLE_)?TORCH_LIBRARY(?:_IMPL)?_EXPAND\s*\(\s*TORCH_EXTENSION_NAME\s*,"
)
# The macros with another name in them, or as somebody else defines them.
_OTHERWISE = re.compile(r"\b(?:(?:STABLE_)?TORCH_LIBRARY(?:_IMPL)?_EXPAND|REGISTER_EXTENSION)\b")
_STABLE = re.compile(r"\bSTABLE_TORCH_LIBRARY")
_STABLE_SINCE = (2, 10)
_TEXT = """// The op namespace of one build, and Python's way into it.
extern "C" {{
struct _object;
extern const char kernforge_namespace[] __attribute__((visibility("hidden")));
const char kernforge_namespace[] = "{name}";
__attribute__((visibility("hidden"))) struct _object* kernforge_module();
__attribute__((visibility("default"))) struct _object* PyInit_{name}() {{
  return kernforge_module();
}}
}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What a unit wants of the op namespace.

    Attributes:
        compiled: whether it must be compiled with the name.
        linked: whether it takes the name at link time.
    """

    compiled: bool = False
    linked: bool = False


def use(texts: Iterable[str], *, bundled: bool, torch: tuple[int, int] | None) -> Use:
    """How a unit uses the op namespace.

    Args:
        texts: every file of the project that it may read, without the bundled header.
        bundled: whether it reads kernforge's ``registration.h``.
        torch: the torch whose headers it reads.
    """
    known = list(texts)
    if not any(name in text for text in known for name in _MACROS):
        return Use()
    registers = sum(len(_REGISTERS.findall(text)) for text in known)
    if not bundled or registers != 1 or torch is None:
        return Use(compiled=True)
    if torch < _STABLE_SINCE and any(_STABLE.search(text) for text in known):
        return Use(compiled=True)
    rest = [_LIBRARY.sub("", _REGISTERS.sub("", text)) for text in known]
    plain = not any(_OTHERWISE.search(text) or any(m in text for m in _MACROS) for text in rest)
    return Use(compiled=not plain, linked=plain)


def source(name: str) -> str:
    """Text of the object that holds the namespace."""
    return _TEXT.format(name=name)
