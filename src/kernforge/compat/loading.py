# SPDX-License-Identifier: Apache-2.0
"""The functions that load kernels, with what the client returns and raises where ours differ."""

from __future__ import annotations

from collections.abc import MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.compat import hub
from kernforge.compat.metadata import Metadata
from kernforge.errors import AbsentError, NotPublishedError, NoVariantError
from kernforge.loader import api as loader
from kernforge.loader import importer
from kernforge.loader.fitness import check_python_depends
from kernforge.loader.search import check_request, local_override
from kernforge.system.environment import Environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from kernforge.loader.importer import RepoInfo


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel in this process; ``repo_info`` is None for a local one."""

    metadata: Metadata
    module: ModuleType
    repo_info: RepoInfo | None


def _shaped(kernel: importer.LoadedKernel) -> LoadedKernel:
    return LoadedKernel(Metadata(kernel.metadata), kernel.module, kernel.repo_info)


def get_loaded_kernels() -> list[LoadedKernel]:
    """Every kernel that this process loaded, in a list of its own."""
    return list(loaded_kernels.values())


class _LoadedKernels(MutableMapping["Path", LoadedKernel]):
    """The kernels of this process by the directory of their variant.

    Removing one forgets it, so that the same directory is imported again.
    """

    def copy(self) -> dict[Path, LoadedKernel]:
        """A dictionary of its own."""
        return {kernel.path: _shaped(kernel) for kernel in importer.get_loaded_kernels()}

    def __getitem__(self, path: Path) -> LoadedKernel:
        return self.copy()[path]

    def __setitem__(self, path: Path, kernel: LoadedKernel) -> None:
        """Nothing: what was forgotten is loaded again when it is asked for."""

    def __delitem__(self, path: Path) -> None:
        loader.forget(path)

    def __len__(self) -> int:
        return len(self.copy())

    def __iter__(self) -> Iterator[Path]:
        return iter(self.copy())


loaded_kernels = _LoadedKernels()


@contextmanager
def _as_the_client(
    repo_id: str, version: int | None, *, trusted: bool | list[str] = True
) -> Iterator[None]:
    """Warn of a newer version, and raise what the client does where a hub lacks a kernel.

    Args:
        trusted: ``trust_remote_code``: the client asks about the publisher before all else.
    """
    try:
        yield
    except NotPublishedError as error:
        if isinstance(error, AbsentError):
            raise
        hub.check_trust_remote_code(repo_id, hub.is_offline(), trusted)
        raise hub.missing_error(error) from error
    except NoVariantError as error:
        # Of a revision without any variant the hub has no directory.
        if f" in {repo_id} at " in error.message and "\n\n" not in error.message:
            raise hub.missing_error(error, "RemoteEntryNotFoundError") from error
        raise
    if version is not None:
        hub.warn_if_outdated(repo_id, version)


def get_kernel(
    repo_id: str,
    *,
    revision: str | None = None,
    version: int | None = None,
    backend: str | None = None,
    user_agent: str | dict[str, str] | None = None,
    trust_remote_code: bool | list[str] = False,
    check_arch: bool = True,
) -> ModuleType:
    """``kernforge.get_kernel``."""
    with _as_the_client(repo_id, version, trusted=trust_remote_code):
        return loader.get_kernel(
            repo_id,
            version=version,
            revision=revision,
            backend=backend,
            trust_remote_code=trust_remote_code,
            check_arch=check_arch,
            user_agent=user_agent,
        )


def get_local_kernel(
    repo_path: Path,
    *,
    backend: str | None = None,
    trust_remote_code: bool | list[str] = False,
    user_agent: str | dict[str, str] | None = None,
) -> ModuleType:
    """``kernforge.get_local_kernel``; the GPU is not checked, as the client does not."""
    return loader.get_local_kernel(
        repo_path,
        backend=backend,
        trust_remote_code=trust_remote_code,
        check_arch=False,
        user_agent=user_agent,
    )


def get_locked_kernel(
    repo_id: str,
    *,
    lockfile: Path | None,
    trust_remote_code: bool | list[str] = False,
    user_agent: str | dict[str, str] | None = None,
) -> ModuleType:
    """``kernforge.get_locked_kernel``."""
    return loader.get_locked_kernel(
        repo_id,
        lockfile=lockfile,
        trust_remote_code=trust_remote_code,
        check_arch=False,
        user_agent=user_agent,
    )


def load_kernel(repo_id: str, *, lockfile: Path | None, backend: str | None = None) -> ModuleType:
    """``kernforge.load_kernel``."""
    return loader.load_kernel(repo_id, lockfile=lockfile, backend=backend, check_arch=False)


def has_kernel(
    repo_id: str,
    *,
    revision: str | None = None,
    version: int | None = None,
    backend: str | None = None,
    trust_remote_code: bool | list[str] = False,
    check_arch: bool = True,
) -> bool:
    """``kernforge.has_kernel``; a version that is not published is an error here.

    Raises:
        NotPublishedError: there is no such version; also a ValueError.
        KernforgeError: what ``kernforge.has_kernel`` raises.
    """
    check_request(version, revision)
    if version is not None and local_override(Environment.live(), repo_id) is None:
        with _as_the_client(repo_id, version):
            loader.find(repo_id, version=version)
    return loader.has_kernel(
        repo_id,
        version=version,
        revision=revision,
        backend=backend,
        trust_remote_code=trust_remote_code,
        check_arch=check_arch,
    )


def install_kernel(
    repo_id: str,
    *,
    revision: str | None = None,
    version: int | None = None,
    backend: str | None = None,
    local_files_only: bool = False,
    user_agent: str | dict[str, str] | None = None,
    trust_remote_code: bool | list[str] = False,
    validate_dependencies: bool = False,
) -> Path:
    """``kernforge.install_kernel``; ``validate_dependencies`` is the option of 0.16."""
    if validate_dependencies:
        registry, commit = loader.find(repo_id, version=version, revision=revision)
        decided = loader.get_kernel_variants(repo_id, revision=commit, backend=backend)
        for name in [decision.name for decision in decided if decision.accepted][:1]:
            document = registry.metadata(repo_id, commit, name)
            check_python_depends(Metadata.from_bytes(document).ours)
    with _as_the_client(repo_id, version):
        return loader.install_kernel(
            repo_id,
            version=version,
            revision=revision,
            backend=backend,
            local_files_only=local_files_only,
            trust_remote_code=trust_remote_code,
            user_agent=user_agent,
        )


def install_kernel_all_variants(
    repo_id: str,
    *,
    revision: str | None = None,
    version: int | None = None,
    local_files_only: bool = False,
) -> Path:
    """Fetch every variant of a kernel, and return the directory of them."""
    check_request(version, revision)
    registry, commit = loader.find(repo_id, version=version, revision=revision)
    if local_files_only:
        registry = registry.offline()
    paths = [registry.fetch(repo_id, commit, name) for name in registry.variants(repo_id, commit)]
    if not paths:
        raise NoVariantError(f"{repo_id} has no build variant at {commit}")
    hub.log.debug("fetched %d variants of %s", len(paths), repo_id)
    return paths[0].parent
