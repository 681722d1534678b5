# SPDX-License-Identifier: Apache-2.0
"""Which extra brings a module that is missing, so that the error can say what to install."""

from __future__ import annotations

from kernforge.errors import MissingPackageError

EXTRAS = {
    "build": (
        *("abi3audit", "abi3info", "auditwheel", "elftools", "pydantic", "pypi_simple"),
        *("requests", "rich", "tomlkit", "urllib3"),
    ),
    "trust": ("cryptography", "sigstore"),
    "cluster": ("fsspec", "distributed", "dask"),
    "testing": ("pytest",),
    "completion": ("shtab",),
    "dev": ("watchfiles",),
    "jupyter": ("IPython",),
}
"""Modules that each extra brings."""

# What to tell pip when a module is missing. Which torch is the user's affair: for the CPU or a GPU.
_INSTALL = {"torch": "torch"} | {
    module: f"'kernforge[{extra}]'" for extra, modules in EXTRAS.items() for module in modules
}


def missing(error: ModuleNotFoundError, what: str) -> MissingPackageError | None:
    """What to tell the user of a module that is not installed; None when no extra brings it.

    Args:
        error: as Python raised it.
        what: that which needs it, as "this command".
    """
    install = _INSTALL.get((error.name or "").partition(".")[0])
    if install is None:
        return None
    return MissingPackageError(
        f"{what} needs {error.name}, which is not installed", hint=f"pip install {install}"
    )
