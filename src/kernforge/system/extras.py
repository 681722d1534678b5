# SPDX-License-Identifier: Apache-2.0
"""The extra that installs a missing module, for error messages."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

from kernforge.errors import MissingPackageError

EXTRAS = {
    "build": (
        *("abi3audit", "abi3info", "auditwheel", "elftools", "jinja2", "pydantic", "pypi_simple"),
        *("requests", "rich", "tomlkit", "urllib3"),
    ),
    "trust": ("cryptography", "sigstore"),
    "bench": ("matplotlib", "pynvml"),
    "cluster": ("fsspec", "distributed", "dask"),
    "hub": ("huggingface_hub",),
    "testing": ("pytest",),
    "completion": ("shtab",),
    "dev": ("watchfiles",),
    "jupyter": ("IPython",),
}
"""Modules that each extra installs."""

TLS_HINT = (
    "use a Python of your distribution; or, if you built this one, install OpenSSL's headers "
    "(`apt install libssl-dev`, `dnf install openssl-devel`) and build it again"
)
_TLS = ("ssl", "_ssl")

# Argument of ``pip install`` for a missing module. The user chooses a torch for the CPU or a GPU.
_INSTALL = {"torch": "torch"} | {
    module: f"'kernforge[{extra}]'" for extra, modules in EXTRAS.items() for module in modules
}


def missing(error: ImportError, what: str) -> MissingPackageError | None:
    """The error for a module that is not installed; None if no extra installs it.

    Python's own module for TLS may be missing or broken, too.

    Args:
        what: what needs the module, such as "this command".
    """
    if error.name in _TLS:
        return MissingPackageError(
            f"{what} needs TLS, and the module ssl of this Python cannot be imported: {error}",
            hint=TLS_HINT,
        )
    if not isinstance(error, ModuleNotFoundError):
        return None
    install = _INSTALL.get((error.name or "").partition(".")[0])
    if install is None:
        return None
    return MissingPackageError(
        f"{what} needs {error.name}, which is not installed", hint=f"pip install {install}"
    )


def without_tls() -> ImportError | None:
    """Why this Python has no TLS; None if it has it."""
    try:
        import ssl  # noqa: F401, PLC0415 - some milliseconds, and it may fail
    except ImportError as error:
        return error
    return None


def require_tls(what: str) -> None:
    """Refuse to begin what would end with a traceback of a library.

    Args:
        what: what needs TLS, such as "this command".

    Raises:
        MissingPackageError: this Python has no TLS.
    """
    if (error := without_tls()) and (lacking := missing(error, what)):
        raise lacking from error


def require(modules: Iterable[str], what: str, *, otherwise: str = "") -> None:
    """Refuse to begin what would end with a missing module.

    Args:
        modules: names; they are looked for and not imported.
        what: what needs them, such as "this command".
        otherwise: what else to do than to install them.

    Raises:
        MissingPackageError: one is not installed.
    """
    for name in modules:
        if importlib.util.find_spec(name) is None:
            install = _INSTALL.get(name, name)
            raise MissingPackageError(
                f"{what} needs {name}, which is not installed",
                hint=f"pip install {install}{f', or {otherwise}' if otherwise else ''}",
            )
