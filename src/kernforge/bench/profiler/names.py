# SPDX-License-Identifier: Apache-2.0
"""Names of kernels that fit into a table."""

from __future__ import annotations

_PAIRS = {"<": ">", "(": ")", "[": "]", "{": "}"}
_ANONYMOUS = ("(anonymous namespace)::", "<unnamed>::", "{anonymous}::")
_MOST = 48  # characters
_NOT_KERNELS = ("Memcpy", "Memset")  # as CUPTI names the driver's own


def shortened(name: str) -> str:
    """A kernel's name without its result, parameters and namespaces, with template arguments that fit.

    Args:
        name: the name in C++, such as ``void a::f<float, 4>(float*, int)``.
    """
    if name.startswith(_NOT_KERNELS):
        return name
    for each in _ANONYMOUS:
        name = name.replace(each, "")
    head, arguments = _split(name)
    plain = head.rpartition("::")[2].split(" ")[-1]
    short = f"{plain}<{', '.join(map(_unqualified, arguments))}>" if arguments else plain
    return short if len(short) <= _MOST else f"{short[: _MOST - 3].rstrip('.')}..."


def _split(name: str) -> tuple[str, list[str]]:
    """What stands before the template arguments of a kernel, and those arguments."""
    depth, first, begin = 0, len(name), 0
    arguments: list[str] = []
    for at, letter in enumerate(name):
        if letter in _PAIRS and name[at : at + 2] != "()":
            if depth == 0:
                first, begin = min(first, at), at + 1
                if letter == "(":
                    break
            depth += 1
        elif letter in _PAIRS.values() and name[at - 1 : at + 1] not in ("()", "->"):
            depth -= 1
            if depth == 0 and letter == ">":
                arguments.append(name[begin:at])
                break
        elif letter == "," and depth == 1:
            arguments.append(name[begin:at])
            begin = at + 1
    return name[:first], [each.strip() for each in arguments]


def _unqualified(argument: str) -> str:
    """A template argument: of a type its last name, of a value in parentheses its value."""
    kind, value = argument.partition(")")[::2]
    if kind.startswith("(") and value:  # (int)4, as the demangler writes it
        return value
    if "lambda" in argument:  # of the function that has it
        return argument.partition("(")[0].rpartition("::")[2].strip("{[") or "lambda"
    inner = argument.find("<")
    name = argument if inner < 0 else argument[:inner]
    return name.rpartition("::")[2] + ("<...>" if inner >= 0 else "")
