# SPDX-License-Identifier: Apache-2.0
"""The public modules, names and parameters of an installed `kernels`, and what of them we answer.

``python client_names.py`` prints those of the `kernels` that it imports, as JSON; ``compare``
compares them with ``kernforge.compat``. A name is public if it and its module begin with a letter,
and the client itself defines it or hands it on.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FLAGS = ("has_", "KNOWN_", "CACHE_")  # constants of the client


def _parameters(function: Any) -> list[str] | None:
    """Names of the parameters; with a * those that are given by name only."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    kinds = inspect.Parameter
    return [
        ("*" if p.kind is kinds.KEYWORD_ONLY else "") + p.name
        for p in found
        if p.kind not in {kinds.VAR_KEYWORD, kinds.VAR_POSITIONAL}
    ]


def _described(value: Any) -> dict[str, Any]:
    """What of a value is compared: parameters, and the public members that the client wrote."""
    entry: dict[str, Any] = {"parameters": _parameters(value) if callable(value) else None}
    if inspect.isclass(value):
        entry["members"] = sorted(
            name
            for base in value.__mro__
            if base.__module__.startswith("kernels")
            for name, member in vars(base).items()
            if name[0] != "_"
            and getattr(member, "__module__", "kernels").startswith("kernels")
            # huggingface_hub's `strict` adds it
            and not name.startswith("validate")
        )
    return entry


def collect() -> dict[str, dict[str, Any]]:
    """The public names of each public module of the `kernels` of this process."""
    import kernels  # noqa: PLC0415 - one of several versions

    found: dict[str, dict[str, Any]] = {}
    modules = ["kernels", *(m.name for m in pkgutil.walk_packages(kernels.__path__, "kernels."))]
    for full in modules:
        if any(part.startswith("_") for part in full.split(".")):
            continue
        try:
            module = importlib.import_module(full)
        except ImportError:  # it needs an extra
            continue
        found[full] = {
            name: _described(value)
            for name, value in vars(module).items()
            if name[0] != "_"
            and not inspect.ismodule(value)
            and (
                str(getattr(value, "__module__", "")).startswith("kernels")
                or name.startswith(_FLAGS)
            )
            and type(value).__name__ != "TypeVar"
        }
    return found


def of_client(path: str) -> dict[str, dict[str, Any]]:
    """``collect`` in a program of its own, with a PYTHONPATH."""
    argv = [sys.executable, "-P", __file__]  # its own directory has a module named kernels
    done = subprocess.run(
        argv, env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"}, capture_output=True, check=True
    )
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


def compare(wanted: Mapping[str, Mapping[str, Any]], version: str) -> dict[str, list[str]]:
    """What ``import kernels``, as that version, lacks of each public module and name of the client.

    Returns:
        Each module as ``kernels.module`` and each name as ``kernels.module.name``, with what it
        lacks: itself, ``.member`` or ``(parameter)``; empty where it is answered whole.
    """
    from kernforge.compat import names  # noqa: PLC0415 - the collector runs without it

    found: dict[str, list[str]] = {}
    for full, table in wanted.items():
        below = full.partition(".")[2]
        there = below in names.MODULES
        homes = names.homes(below, version) if there else {}
        found[full] = [] if there else ["the module"]
        for name, entry in table.items():
            if name in homes:
                home, ours = homes[name]
                value = getattr(importlib.import_module(f"kernforge.{home}"), ours)
                found[f"{full}.{name}"] = list(_lacking(entry, value))
            else:
                found[f"{full}.{name}"] = ["the name"]
    return found


def _lacking(entry: Mapping[str, Any], value: Any) -> Iterator[str]:
    for member in entry.get("members", ()):
        if not hasattr(value, member):
            yield f".{member}"
    wanted, mine = entry["parameters"], _parameters(value)
    if not wanted or mine is None:
        return
    kinds = {p.kind for p in inspect.signature(value).parameters.values()}
    by_name = inspect.Parameter.VAR_KEYWORD in kinds
    by_place = inspect.Parameter.VAR_POSITIONAL in kinds
    for parameter in wanted:
        name = parameter.removeprefix("*")
        only_by_name = parameter != name
        # What may be given by place must be one by place here too.
        given = name in mine or (only_by_name and f"*{name}" in mine) or by_name
        if not given and not (by_place and not only_by_name):
            yield f"({name})"


if __name__ == "__main__":
    json.dump(collect(), sys.stdout)
