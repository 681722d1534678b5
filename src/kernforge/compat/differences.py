# SPDX-License-Identifier: Apache-2.0
"""Functions of the hub's client whose signature was another one before 0.17.

Versions 0.14 to 0.16 took these arguments by position, and SGLang and vLLM-Omni ask for such a
version. Each calls the function of that name in ``kernforge``, with the same checks.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Any

from kernforge.loader import api as loader
from kernforge.loader.resolve import Decision


def get_kernel(  # noqa: PLR0917 - the client's signature
    repo_id: str,
    revision: str | None = None,
    version: int | str | None = None,
    backend: str | None = None,
    user_agent: str | dict[str, str] | None = None,
    trust_remote_code: bool | list[str] = False,  # noqa: FBT001, FBT002
    check_arch: bool = True,  # noqa: FBT001, FBT002
    **named: Any,
) -> ModuleType:
    """Load a kernel from a registry."""
    return loader.get_kernel(
        repo_id,
        revision=revision,
        version=version,
        backend=backend,
        user_agent=user_agent,
        trust_remote_code=trust_remote_code,
        check_arch=check_arch,
        **named,
    )


def has_kernel(
    repo_id: str,
    revision: str | None = None,
    version: int | str | None = None,
    backend: str | None = None,
    **named: Any,
) -> bool:
    """Whether a registry has a build of a kernel for this process."""
    return loader.has_kernel(repo_id, revision=revision, version=version, backend=backend, **named)


def get_kernel_variants(
    repo_id: str,
    revision: str | None = None,
    version: int | str | None = None,
    backend: str | None = None,
    **named: Any,
) -> list[Decision]:
    """Every variant of a kernel with what speaks for or against it here."""
    return loader.get_kernel_variants(
        repo_id, revision=revision, version=version, backend=backend, **named
    )


def get_local_kernel(
    repo_path: str | os.PathLike[str], backend: str | None = None, **named: Any
) -> ModuleType:
    """Load a kernel from a directory."""
    return loader.get_local_kernel(repo_path, backend=backend, **named)


def get_locked_kernel(
    repo_id: str,
    local_files_only: bool = False,  # noqa: FBT001, FBT002 - the client's signature
    *,
    lockfile: Path | None = None,
    **named: Any,
) -> ModuleType:
    """Load a kernel at the commit in the caller's lock, or in ``lockfile``."""
    load = loader.load_kernel if local_files_only else loader.get_locked_kernel
    return load(repo_id, lockfile=lockfile, **named)
