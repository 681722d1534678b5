# SPDX-License-Identifier: Apache-2.0
"""Write the names of torch that its stub knows: ``templates/torch_stub/torch/names.json``.

    python scripts/generate_torch_names.py

Taken from the installed torch: for each module that a setup.py may read, its submodules, and its
public names with the values of those that are plain constants. ``torch.utils.cpp_extension`` is
listed with its private names, which setup.py files use.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import warnings
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "src/kernforge/templates/torch_stub/torch/names.json"
CPP = "torch.utils.cpp_extension"
MODULES = (
    *("torch", "torch.__config__", "torch.autograd", "torch.backends", "torch.backends.cuda"),
    *("torch.backends.cudnn", "torch.backends.mkl", "torch.backends.mps", "torch.backends.openmp"),
    *("torch.cuda", "torch.cuda.nccl", "torch.distributed", "torch.jit", "torch.library"),
    *("torch.nn", "torch.nn.functional", "torch.utils", CPP, "torch.utils.data"),
    *("torch.version", "torch.xpu"),
)
_LONG = 40  # of messages and paths


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


def main() -> None:
    """Read the installed torch and write the file."""
    with warnings.catch_warnings(action="ignore"):
        modules = {name: names_of(name) for name in MODULES}
    release = ".".join(importlib.import_module("torch").__version__.split(".")[:2])
    document = {"release": release, "modules": modules}
    TARGET.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
