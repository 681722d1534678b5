# SPDX-License-Identifier: Apache-2.0
"""The extra that installs a missing module, for error messages."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

from kernforge.errors import MissingPackageError

EXTRAS = {
    "build": (
        *("abi3audit", "abi3info", "auditwheel", "elftools", "jinja2", "pydantic", "pypi_simple"),
        "tomlkit",
    ),
    "trust": ("cryptography", "sigstore"),
    "bench": ("matplotlib", "pynvml"),
    "cluster": ("fsspec", "distributed", "dask"),
    "hub": ("huggingface_hub",),
    "serve": ("granian", "markdown_it", "nh3", "prometheus_client", "starlette"),
    "objects": ("obstore",),
    "testing": ("pytest",),
    "completion": ("shtab",),
    "dev": ("rich", "watchfiles"),
    "jupyter": ("IPython",),
}
"""Modules that each extra installs."""

# Argument of ``pip install`` for a missing module. The user chooses a torch for the CPU or a GPU.
_INSTALL = {"torch": "torch"} | {
    module: f"'kernforge[{extra}]'" for extra, modules in EXTRAS.items() for module in modules
}


def missing(error: ImportError, what: str) -> MissingPackageError | None:
    """The error for a module that is not installed; None if no extra installs it.

    Args:
        what: what needs the module, such as "this command".
    """
    if not isinstance(error, ModuleNotFoundError):
        return None
    install = _INSTALL.get((error.name or "").partition(".")[0])
    if install is None:
        return None
    return MissingPackageError(
        f"{what} needs {error.name}, which is not installed", hint=f"pip install {install}"
    )


def require(modules: Iterable[str], what: str, *, otherwise: str = "") -> None:
    """Refuse to begin what would end with a missing module.

    Args:
        modules: names; they are looked for and not imported.
        otherwise: what else to do than to install them.
    """
    for name in modules:
        if importlib.util.find_spec(name) is None:
            install = _INSTALL.get(name, name)
            raise MissingPackageError(
                f"{what} needs {name}, which is not installed",
                hint=f"pip install {install}{f', or {otherwise}' if otherwise else ''}",
            )
