# SPDX-License-Identifier: Apache-2.0
"""The extra that installs a missing module, for error messages."""

from __future__ import annotations

from kernforge.errors import MissingPackageError

EXTRAS = {
    "build": (
        *("abi3audit", "abi3info", "auditwheel", "elftools", "pydantic", "pypi_simple"),
        *("requests", "rich", "tomlkit", "urllib3"),
    ),
    "trust": ("cryptography", "sigstore"),
    "bench": ("cuda",),
    "cluster": ("fsspec", "distributed", "dask"),
    "testing": ("pytest",),
    "completion": ("shtab",),
    "dev": ("watchfiles",),
    "jupyter": ("IPython",),
}
"""Modules that each extra installs."""

# Argument of ``pip install`` for a missing module. The user chooses a torch for the CPU or a GPU.
_INSTALL = {"torch": "torch"} | {
    module: f"'kernforge[{extra}]'" for extra, modules in EXTRAS.items() for module in modules
}


def missing(error: ModuleNotFoundError, what: str) -> MissingPackageError | None:
    """The error for a module that is not installed; None if no extra installs it.

    Args:
        error: the error that Python raised.
        what: what needs the module, such as "this command".
    """
    install = _INSTALL.get((error.name or "").partition(".")[0])
    if install is None:
        return None
    return MissingPackageError(
        f"{what} needs {error.name}, which is not installed", hint=f"pip install {install}"
    )
