# SPDX-License-Identifier: Apache-2.0
"""What the program of a setup.py may ask for and what it gets, as tables.

Functions of Python and of the modules that such programs import, for a machine with CUDA on which no
variable is set: the machine of whoever adopts a project decides nothing in it. What makes a value
has a limit, because a hostile program would fill the memory.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
import posixpath
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGEST = 10_000
_LARGEST = 1 << 20  # characters or elements of a value that a program makes
_BITS = 64
# A width of five digits, or one that is an argument.
_WIDE_PERCENT = re.compile(r"%[^a-zA-Z%]*(\d{5}|\*)")
_WIDE_FORMAT = re.compile(r":[^}]*(\d{5}|\{)")


def _range(*limits: int) -> list[int]:
    numbers = range(*limits)
    if len(numbers) > _LONGEST:
        raise ValueError("too long to be followed")
    return list(numbers)


def _sized(count: int) -> None:
    """Check how many characters or elements a program makes of what it has.

    Raises:
        ValueError: it is too large: a hostile program would fill the memory.
    """
    if count > _LARGEST:
        raise ValueError("too large to be followed")


def text(*values: Any) -> str:
    """The values as one text; ``ValueError`` if it would be too large."""
    count, todo = 0, list(values)
    while todo:  # a list may have another one many times
        value = todo.pop()
        count += len(value) if isinstance(value, str) else 1
        _sized(count)
        if not isinstance(value, str):
            todo += iterated(value)
            todo += value.values() if isinstance(value, dict) else ()
    return "".join(map(str, values))


def extend(holder: list[Any], values: list[Any]) -> None:
    """Add values to a list; ``ValueError`` if it would be too large."""
    _sized(len(holder) + len(values))
    holder.extend(values)


def _sum(left: Any, right: Any) -> Any:
    if isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
        _sized(len(left) + len(right))
    return _small(left + right)


def _product(left: Any, right: Any) -> Any:
    for count, value in ((left, right), (right, left)):
        if isinstance(count, int) and isinstance(value, str | list | tuple):
            _sized(count * len(value))
    return _small(left * right)


def _remainder(left: Any, right: Any) -> Any:
    if isinstance(left, str):
        if _WIDE_PERCENT.search(left):
            raise ValueError("too wide to be followed")
        _sized(left.count("%") * len(text(right)))
    return left % right


def _small(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > _BITS:
        raise ValueError("too large to be followed")
    return value


def check_call(holder: Any, name: str, arguments: list[Any]) -> None:
    """Refuse a method's call whose result is far larger than what it is given."""
    if isinstance(holder, str) and name == "format":
        if _WIDE_FORMAT.search(holder):
            raise ValueError("too wide to be followed")
        _sized(holder.count("{") * len(text(arguments)))
    if isinstance(holder, str) and name == "replace":
        _sized(len(holder) + (holder.count(arguments[0]) + 1) * len(arguments[1]))
    if isinstance(holder, str) and name == "join":
        texts = iterated(arguments[0])
        _sized(sum(len(text) for text in texts) + len(holder) * len(texts))
    if isinstance(holder, list) and name == "extend":
        _sized(len(holder) + len(iterated(arguments[0])))


def _total(numbers: Any, start: Any = 0) -> Any:
    if not isinstance(start, int | float):
        _sized(sum(len(each) for each in numbers))
    return _small(sum(numbers, start))


def _listed(lists: tuple[Any, ...]) -> list[list[Any]]:
    """Lists that are small together."""
    _sized(sum(len(each) for each in lists))
    return [list(each) for each in lists]


def _all_pairs(*lists: Any, **_: Any) -> list[tuple[Any, ...]]:
    _sized(math.prod(len(each) for each in lists))
    return list(itertools.product(*lists))


# No variable is set: the machine of whoever adopts a project decides nothing in it.
_PATH = {"sep": "/", "curdir": ".", "pardir": ".."}
_OS = {"name": "posix", "environ": {}, **_PATH}
CONSTANTS: dict[str, Any] = {
    **{f"os.{name}": value for name, value in _OS.items()},
    **{f"os.path.{name}": value for name, value in _PATH.items()},
    "sys.argv": ["setup.py"],
    "sys.platform": "linux",
    "sys.version_info": (3, 11, 0),
    "torch.__version__": "2.10.0",
    "torch.version.cuda": "13.0",
    "torch.version.hip": None,
    "torch.utils.cpp_extension.CUDA_HOME": "/usr/local/cuda",
    "torch.utils.cpp_extension.ROCM_HOME": None,
    "torch.utils.cpp_extension.IS_HIP_EXTENSION": False,
    "torch.utils.cpp_extension.IS_WINDOWS": False,
    "typing.TYPE_CHECKING": False,
}
ANSWERS: dict[str, Callable[..., Any]] = {
    "torch.cuda.is_available": lambda: True,
    "torch.cuda.device_count": lambda: 1,
    "torch.__config__.parallel_info": lambda: "",
    "torch.utils.cpp_extension.include_paths": lambda *_, **__: [],
    "torch.utils.cpp_extension.library_paths": lambda *_, **__: [],
    "platform.system": lambda: "Linux",
    "platform.machine": lambda: "x86_64",
    **{f"os.{name}": lambda _name, default=None: default for name in ("getenv",)},
    "itertools.product": _all_pairs,
    "itertools.chain": lambda *lists: list(itertools.chain(*_listed(lists))),
    "warnings.warn": lambda *_, **__: None,
    "logging.info": lambda *_, **__: None,
    "logging.warning": lambda *_, **__: None,
    "os.path.join": posixpath.join,
    "os.path.dirname": posixpath.dirname,
    "os.path.basename": posixpath.basename,
    "os.path.splitext": posixpath.splitext,
    "os.path.split": posixpath.split,
    "os.path.normpath": posixpath.normpath,
    "os.path.isabs": posixpath.isabs,
    "setuptools.find_packages": lambda *_, **__: [],
}
BUILTINS: dict[str, Callable[..., Any]] = {
    "all": all,
    "any": any,
    "bool": bool,
    "dict": dict,
    "enumerate": lambda *a: list(enumerate(*a)),
    "float": float,
    "int": int,
    "isinstance": lambda value, kind: isinstance(value, kind) if isinstance(kind, type) else False,
    "len": len,
    "list": list,
    "max": max,
    "min": min,
    "print": lambda *_, **__: None,
    "range": _range,
    "reversed": lambda a: list(reversed(a)),
    "set": set,
    "sorted": sorted,
    "str": lambda value="": text(value),
    "sum": _total,
    "tuple": tuple,
    "zip": lambda *a, **_: list(zip(*a, strict=False)),
}
METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        [
            *("capitalize", "count", "endswith", "find", "format", "index", "isdigit", "join"),
            *("lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace"),
            *("rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip"),
            *("title", "upper"),
        ]
    ),
    list: frozenset(
        ["append", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"]
    ),
    dict: frozenset(["copy", "get", "items", "keys", "pop", "setdefault", "update", "values"]),
    set: frozenset(["add", "discard", "union", "update"]),
    tuple: frozenset(["count", "index"]),
}
PATH_METHODS = frozenset(
    [
        *("absolute", "as_posix", "exists", "glob", "is_dir", "is_file", "iterdir", "joinpath"),
        *("relative_to", "resolve", "rglob", "with_name", "with_suffix"),
    ]
)
PATH_VALUES = frozenset(["name", "parent", "stem", "suffix", "parts", "parents"])
OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: _sum,
    ast.Sub: operator.sub,
    ast.Mult: _product,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: _remainder,
    ast.BitOr: operator.or_,
}
COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
MISTAKES = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    TypeError,
    ValueError,
)


def is_iterable(value: Any) -> bool:
    """Whether a value has elements that are followed."""
    return isinstance(value, list | tuple | set | dict | str)


def iterated(value: Any) -> list[Any]:
    """The elements, in an order that is always the same."""
    if isinstance(value, set):
        return sorted(value, key=str)
    return list(value) if is_iterable(value) else []
