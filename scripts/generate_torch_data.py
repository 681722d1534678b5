# SPDX-License-Identifier: Apache-2.0
"""Write what kernforge knows of torch, from the installed one, which is the newest.

    python scripts/generate_torch_data.py --include DIR

``templates/torch_stub/torch/names.json`` has the names that the stub of torch knows: for each
module that a setup.py may read, its submodules, and its public names with the values of those that
are plain constants. ``torch.utils.cpp_extension`` is listed with its private names, which setup.py
files use.

``data/torch-shim.txt`` has the torch that brought each stable C function. The C shim headers guard
what is newer than 2.9 with ``#if TORCH_FEATURE_VERSION >= TORCH_VERSION_2_NN_0``; what has no guard
is older. DIR is the ``include`` folder of the newest torch.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import re
import warnings
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).parents[1] / "src" / "kernforge"
NAMES, SHIM = PACKAGE / "templates/torch_stub/torch/names.json", PACKAGE / "data/torch-shim.txt"
CPP = "torch.utils.cpp_extension"
MODULES = (
    *("torch", "torch.__config__", "torch.autograd", "torch.backends", "torch.backends.cuda"),
    *("torch.backends.cudnn", "torch.backends.mkl", "torch.backends.mps", "torch.backends.openmp"),
    *("torch.cuda", "torch.cuda.nccl", "torch.distributed", "torch.jit", "torch.library"),
    *("torch.nn", "torch.nn.functional", "torch.utils", CPP, "torch.utils.data"),
    *("torch.version", "torch.xpu"),
)
_LONG = 40  # of messages and paths
FOLDERS = ("torch/csrc/stable/c", "torch/csrc/inductor/aoti_torch")
HEADER = """\
# SPDX-License-Identifier: Apache-2.0
# Functions of torch's stable C interface, and the first torch that has them; others are in 2.9.
# Written by scripts/generate_torch_data.py from the headers' guards; do not edit.
"""
_GUARD = re.compile(r"#\s*if\s+TORCH_FEATURE_VERSION\s*>=\s*TORCH_VERSION_(\d+)_(\d+)_\d+")
_FUNCTION = re.compile(r"\b((?:aoti_)?torch_\w+)\s*\(")


def names_of(name: str) -> dict[str, object]:
    """Submodules, constants and other names of a module."""
    module = importlib.import_module(name)
    submodules = {each.name for each in pkgutil.iter_modules(getattr(module, "__path__", ()))}
    constants: dict[str, object] = {}
    others: set[str] = set()
    inner = getattr(module, "m", module)  # torch.backends.cudnn and others wrap a module
    for each in {*dir(module), *dir(inner)} - {"TYPE_CHECKING"}:
        if each.startswith("__") or (each.startswith("_") and name != CPP):
            continue
        value = getattr(module, each, None)
        if isinstance(value, ModuleType):
            submodules |= {each} if value.__name__ == f"{name}.{each}" else set()
        elif isinstance(value, bool | int | float | str) and len(str(value)) < _LONG:
            constants[each] = value
        else:
            others.add(each)
    listed = {each for each in submodules if each == "__config__" or not each.startswith("_")}
    return {
        "modules": " ".join(sorted(listed)),
        "constants": {} if name == "torch.version" else dict(sorted(constants.items())),
        "names": " ".join(sorted(others)),
    }


def guarded(text: str) -> dict[str, tuple[int, int]]:
    """Functions that a header declares behind a version guard."""
    found: dict[str, tuple[int, int]] = {}
    guards: list[tuple[int, int] | None] = []
    for line in text.splitlines():
        if match := _GUARD.match(line):
            guards.append((int(match[1]), int(match[2])))
        elif re.match(r"#\s*if", line):
            guards.append(None)
        elif re.match(r"#\s*endif", line):
            guards.pop()
        elif versions := [guard for guard in guards if guard]:
            code = line.partition("//")[0]
            found |= {name: max(versions) for name in _FUNCTION.findall(code)}
    return found


def shim(include: Path) -> str:
    """The table of functions, from torch's headers."""
    found: dict[str, tuple[int, int]] = {}
    for folder in FOLDERS:
        for header in sorted((include / folder).rglob("*.h")):
            for name, version in guarded(header.read_text()).items():
                found[name] = min(version, found.get(name, version))
    lines = [f"{name} {major}.{minor}\n" for name, (major, minor) in sorted(found.items())]
    return HEADER + "".join(lines)


def main() -> None:
    """Read torch and write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--include", type=Path, required=True)
    include = parser.parse_args().include
    with warnings.catch_warnings(action="ignore"):
        modules = {name: names_of(name) for name in MODULES}
    release = ".".join(importlib.import_module("torch").__version__.split(".")[:2])
    NAMES.write_text(json.dumps({"release": release, "modules": modules}, indent=1) + "\n")
    SHIM.write_text(shim(include))


if __name__ == "__main__":
    main()
