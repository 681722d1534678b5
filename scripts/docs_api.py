# SPDX-License-Identifier: Apache-2.0
"""Reference pages of the Python API and of the packages, from docstrings."""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import pprint
import re
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WIDTH = 100
_SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields):")
_TITLES = {"Args": "Parameters", "Yields": "Returns"}
_ITEM = re.compile(r"([\w*.]+): (.*)")

# Names of kernforge by the package that has them.
_GROUPS = {
    "loader": "Load kernels",
    "artifact": "Load kernels",
    "jit": "JIT",
    "layers": "Kernelize models",
    "bench": "Measure kernels",
}


def api_page(module: str) -> str:
    """Every public name of a module, with its signature and its docstring."""
    public = importlib.import_module(module)
    parts = [f"# {module}\n", *_docstring(inspect.getdoc(public) or "")]
    for title, names in _grouped(public).items():
        parts += [f"## {title}\n"] if title else []
        for name in names:
            parts += _entry(f"{module}.{name}", name, getattr(public, name), title)
    return "\n".join(parts)


def _grouped(public: Any) -> dict[str, list[str]]:
    """The names below their titles; of a module without groups, all below none."""
    grouped: dict[str, list[str]] = {}
    for name in _names(public):
        if not name.startswith("__"):
            home = getattr(getattr(public, name), "__module__", "") if _has_groups(public) else ""
            group = _GROUPS[home.split(".")[1]] if home else ""
            grouped.setdefault(group, []).append(name)
    order = [*dict.fromkeys(_GROUPS.values()), ""]
    for names in grouped.values():
        names.sort(key=lambda name: inspect.isclass(getattr(public, name)))  # functions first
    return {group: grouped[group] for group in order if group in grouped}


def _names(public: Any) -> list[str]:
    """What a module offers: its ``__all__``, or else the classes and functions that it defines."""
    own = [n for n, v in vars(public).items() if getattr(v, "__module__", "") == public.__name__]
    return list(getattr(public, "__all__", own))


def _has_groups(public: Any) -> bool:
    return public.__name__ == "kernforge"


def _entry(path: str, name: str, value: Any, title: str) -> Iterator[str]:
    yield f"{'###' if title else '##'} `{name}`\n"
    if not callable(value):
        yield f"```text\n{_value(path, value)}\n```\n"
        return
    if not _is_enum(value):
        yield f"```python\n{_signature(path, value)}\n```\n"
    yield from _docstring(inspect.getdoc(value) or "")
    if inspect.isclass(value):
        for method, member in vars(value).items():
            if not method.startswith("_") and member.__doc__:
                yield from _member(f"{name}.{method}", member)


def _is_enum(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, enum.Enum)


def _member(path: str, member: Any) -> Iterator[str]:
    """A method or a property of a class."""
    function = getattr(member, "__func__", member)
    if inspect.isfunction(function):
        yield f"```python\n{_signature(path, function, method=True)}\n```\n"
    elif isinstance(member, property):
        yield f"```python\n{path}\n```\n"
    else:
        return
    yield from _docstring(inspect.getdoc(member) or "")


def _value(path: str, value: object) -> str:
    return f"{path} = {pprint.pformat(value, width=WIDTH, sort_dicts=False, compact=True)}"


def _signature(path: str, value: Any, *, method: bool = False) -> str:
    """A call as it is written, one parameter a line where it is long."""
    signature = inspect.signature(value)
    parameters = [p for i, p in enumerate(signature.parameters.values()) if i or not method]
    words: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        words.append(_parameter(parameter))
    returned = signature.return_annotation
    shown = inspect.isclass(value) or returned is signature.empty
    end = ")" if shown else f") -> {_annotation(returned)}"
    line = f"{path}({', '.join(words)}{end}"
    if len(line) <= WIDTH:
        return line
    return "\n".join((f"{path}(", *(f"    {word}," for word in words), end))


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{stars}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        default = "..." if "object at" in (d := repr(parameter.default)) or "<" in d else d
        text += f" = {default}"
    return text


def _annotation(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _docstring(text: str) -> Iterator[str]:
    """A docstring in Google's style as Markdown."""
    section, lines = "", []
    for line in [*text.splitlines(), "Returns:"]:
        if match := _SECTION.fullmatch(line):
            yield from _section(section, lines)
            section, lines = match[1], []
        else:
            lines.append(line)


def _section(section: str, lines: list[str]) -> Iterator[str]:
    body = textwrap.dedent("\n".join(lines)).strip("\n")
    body = re.sub(r"``([^`]+)``", r"`\1`", body).replace("::\n", ":\n")
    body = re.sub(r"^( +)(?=- )", r"\1\1", body, flags=re.MULTILINE)  # as Markdown nests lists
    if not body:
        return
    if not section:
        yield f"{body}\n"
        return
    yield f"**{_TITLES.get(section, section)}**\n"
    if section in ("Returns", "Yields"):
        yield f"{body}\n"
        return
    yield from _items(body)
    yield ""


def _items(body: str) -> Iterator[str]:
    """One list item for each ``name: text`` of a section."""
    for item in re.split(r"\n(?=\S)", body):
        text = " ".join(item.split())
        match = _ITEM.fullmatch(text)
        text = f"- `{match[1]}`: {match[2]}" if match else f"- {text}"
        yield textwrap.fill(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def packages_page(source: Path) -> str:
    """Every package with its purpose and its modules."""
    parts = [
        "# Packages\n",
        "The packages of `src/kernforge`, from their docstrings.",
        "[How a build works](../explanation/flow.md) shows how they work together.\n",
    ]
    for init in sorted(source.rglob("__init__.py")):
        modules = [path for path in sorted(init.parent.glob("*.py")) if path != init]
        if init.parent == source or "templates" in init.parts:
            continue
        parts += [f"## `{'.'.join(init.parent.relative_to(source.parent).parts)}`\n"]
        parts += [f"{_first_line(init)}\n", "| module | content |", "|---|---|"]
        parts += [f"| `{path.stem}` | {_first_line(path)} |" for path in modules]
        parts += [""]
    return "\n".join(parts)


def _first_line(path: Path) -> str:
    """The first sentence of a module's docstring, which may take several lines."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.partition("\n\n")[0].split()).replace("``", "`").replace("|", r"\|")
