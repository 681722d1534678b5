# SPDX-License-Identifier: Apache-2.0
"""The environment variables that kernforge reads, as one frozen value.

A door (a command, ``get_kernel``, a worker) reads the variables and hands them on; what decides
takes them as an argument. What other programs read (pip's options, a compiler's search path) is in
``Environment.variables``, which child processes inherit too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self, overload

from kernforge.errors import UsageError


class Variable:
    """A variable as an attribute of ``Environment``: its text, None where it is not set."""

    def __init__(self, name: str, meaning: str) -> None:
        self.name = name
        self.meaning = meaning

    @overload
    def __get__(self, environment: None, owner: type[Environment]) -> Self: ...
    @overload
    def __get__(self, environment: Environment, owner: type[Environment]) -> str | None: ...
    def __get__(
        self,
        environment: Environment | None,
        owner: type[Environment],
    ) -> Self | str | None:
        return self if environment is None else environment.variables.get(self.name)


@dataclass(frozen=True, slots=True)
class Environment:
    """The variables of one moment, all of them by name and not only those below."""

    variables: Mapping[str, str]

    kernforge_home = Variable("KERNFORGE_HOME", "directory of kernforge's store and other files")
    kernforge_store_size = Variable(
        "KERNFORGE_STORE_SIZE", "bytes that the store may take, as `100GB`; 30 GB by default"
    )
    kernforge_shared_store = Variable(
        "KERNFORGE_SHARED_STORE", "URL of the store that builds share with others"
    )
    kernforge_store_builders = Variable(
        "KERNFORGE_STORE_BUILDERS",
        "file with the public keys of builders whose results are taken from the shared store",
    )
    kernforge_store_sign_key = Variable(
        "KERNFORGE_STORE_SIGN_KEY",
        "private key that signs what this machine puts into the shared store",
    )
    kernforge_store_trust = Variable(
        "KERNFORGE_STORE_TRUST",
        "`all-writers`: the shared store is trusted without signatures: every host that can "
        "write to it",
    )
    kernforge_registry = Variable("KERNFORGE_REGISTRY", "path or URL of the default registry")
    kernforge_kernels_version = Variable(
        "KERNFORGE_KERNELS_VERSION",
        "version of `kernels` that kernforge claims to be, and whose kernels it accepts; 0.18.2 by "
        "default",
    )
    kernforge_trust = Variable("KERNFORGE_TRUST", "file of the user's trust policy")
    kernforge_build_trusted = Variable(
        "KERNFORGE_BUILD_TRUSTED",
        "1: `get_kernel(build=True)` builds a published project as if it were your own, without a "
        "sandbox where this machine has none",
    )
    local_kernels = Variable(
        "LOCAL_KERNELS",
        "directories in the place of published kernels: `owner/name=path[:owner/name=path]`",
    )
    disable_kernel_mapping = Variable(
        "DISABLE_KERNEL_MAPPING",
        "1: `kernelize` leaves every layer its own forward",
    )
    hf_endpoint = Variable("HF_ENDPOINT", "address of the Hugging Face hub")
    hf_hub_offline = Variable("HF_HUB_OFFLINE", "1: no hub is asked, its cache answers")
    transformers_offline = Variable("TRANSFORMERS_OFFLINE", "older name of `HF_HUB_OFFLINE`")
    kernels_cache = Variable("KERNELS_CACHE", "the hub's cache, for kernels alone")
    hf_hub_cache = Variable("HF_HUB_CACHE", "the hub's cache")
    hf_home = Variable("HF_HOME", "directory of the hub's tools; their cache is `hub` in it")
    xdg_cache_home = Variable("XDG_CACHE_HOME", "the user's cache, where no other variable says it")
    xdg_data_home = Variable(
        "XDG_DATA_HOME", "the user's data: `kernforge/registry` in it is your own registry"
    )
    xdg_config_home = Variable("XDG_CONFIG_HOME", "the user's configuration: `kernforge/` in it")

    kernforge_sign_passphrase = Variable(
        "KERNFORGE_SIGN_PASSPHRASE",
        "passphrase of the key that `sign` and `publish --sign` use, empty for none",
    )
    source_date_epoch = Variable(
        "SOURCE_DATE_EPOCH",
        "time of the files in wheels, in seconds since 1970; 0 by default",
    )

    cuda_home = Variable("CUDA_HOME", "directory of the installed CUDA toolkit")
    cuda_path = Variable("CUDA_PATH", "the same, if `CUDA_HOME` is not set")
    kernforge_cuda_home = Variable(
        "KERNFORGE_CUDA_HOME", "directory of an installed CUDA toolkit that projects are built with"
    )
    cutlass_src_dir = Variable(
        "CUTLASS_SRC_DIR", "directory of CUTLASS, for projects that depend on it"
    )
    torch_cuda_arch_list = Variable(
        "TORCH_CUDA_ARCH_LIST",
        "what `kernforge.load` and setup.py projects compile for, as `9.0;10.0+PTX`",
    )
    max_jobs = Variable(
        "MAX_JOBS", "compilers that `kernforge.load` and setup.py projects run at once"
    )
    kernforge_torch = Variable(
        "KERNFORGE_TORCH",
        "torch that a setup.py project is built for, as `2.11`; by default the installed one",
    )
    kernforge_cuda = Variable(
        "KERNFORGE_CUDA",
        "CUDA of the torch that a setup.py project is built for, as `13.0`, or `cpu`",
    )
    kernforge_python = Variable(
        "KERNFORGE_PYTHON", "Python that a setup.py project is built for, as `3.12`"
    )
    kernforge_progress = Variable(
        "KERNFORGE_PROGRESS",
        "file to which a build within pip also writes its progress, which pip does not show",
    )
    kernforge_stub = Variable(
        "KERNFORGE_STUB",
        "directory of the package that `kernforge pip` and `kernforge wheel` put in torch's place",
    )
    kernforge_no_compile = Variable(
        "KERNFORGE_NO_COMPILE",
        "1: no compiler runs; `load`, `load_inline` and builds take what the store has",
    )

    kernforge_kernel_dir = Variable(
        "KERNFORGE_KERNEL_DIR",
        "variant or directory of variants that pytest tests; `build/` of the project by default",
    )

    @classmethod
    def read(cls) -> Self:
        """The variables of this process as they are now."""
        return cls(dict(os.environ))

    @classmethod
    def live(cls) -> Self:
        """The variables of this process as they are at each look.

        For a caller that looks at one or two and has no time to copy all: that takes some 30 us.
        """
        return cls(os.environ)

    @property
    def home(self) -> Path:
        """Where kernforge keeps its files for this user. It may not exist yet."""
        if self.kernforge_home:
            return expanded(self.kernforge_home)
        return _user_directory("cache", self.xdg_cache_home, "~/.cache")

    @property
    def store(self) -> Path:
        """The store of toolchains and results on this machine."""
        return self.home / "store"

    @property
    def compilers(self) -> Path:
        """In the store: records of compilers and of installed headers."""
        return self.store / "compilers"

    @property
    def may_compile(self) -> bool:
        """Whether compilers may run, and not only results of the store be used."""
        return self.kernforge_no_compile != "1"

    @property
    def own_registry(self) -> Path:
        """Directory of the user's own registry: data, not a cache. It may not exist yet."""
        if self.kernforge_home:
            return self.home / "registry"
        return _user_directory("data", self.xdg_data_home, "~/.local/share") / "registry"

    @property
    def user_config(self) -> Path:
        """Where this user's configuration lies. It may not exist yet."""
        return _user_directory("config", self.xdg_config_home, "~/.config")


def _user_directory(kind: str, chosen: str | None, usual: str) -> Path:
    """Kernforge's directory as ``platformdirs`` finds it, whose import takes 17 ms."""
    if sys.platform != "linux":
        import platformdirs  # noqa: PLC0415 - see above

        return Path(getattr(platformdirs, f"user_{kind}_dir")("kernforge", appauthor=False))
    above = chosen if chosen and chosen.startswith("/") else usual
    return (user_file if kind == "config" else expanded)(above) / "kernforge"


def expanded(path: str) -> Path:
    """An absolute path, with the user's home directory in the place of ``~``."""
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError:
        raise UsageError(
            f"{path} is nowhere: this user has no home directory",
            hint="set HOME, or KERNFORGE_HOME for kernforge's files, to a directory that you may "
            "write to",
        ) from None


def user_file(path: str) -> Path:
    """A file or directory that the user may have; a user without a home directory has none.

    That is a path at which nothing can be: one below the working directory may be another's.
    """
    try:
        return expanded(path)
    except UsageError:
        return Path(os.devnull, path)


def is_terminal(stream: object) -> bool:
    """Whether a standard stream is a terminal; it may be None, closed, or a program's own."""
    try:
        return bool(stream.isatty())  # type: ignore[attr-defined]
    except (AttributeError, ValueError):
        return False
