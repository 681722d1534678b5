# SPDX-License-Identifier: Apache-2.0
"""A Python with the torch of a variant, for its shell: the running one, or one that is made and kept.

A virtual environment is made by uv, which fetches a Python that is not there, or else by ``venv``.
It is kept in ``environments`` of kernforge's directory until ``kernforge cache`` removes it.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.artifact.python_depends import python_depends
from kernforge.errors import ToolchainError, UsageError
from kernforge.system import digest, files
from kernforge.system.process import Command
from kernforge.toolchain import installed
from kernforge.toolchain.index.index import Index

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kernforge.artifact.version import Version2
    from kernforge.export.shell import Setting
    from kernforge.manifest.document import Manifest
    from kernforge.project.targets import Target
    from kernforge.system.environment import Environment
    from kernforge.system.process import Completed, Runner
    from kernforge.toolchain.index import pip_config
    from kernforge.toolchain.installed import TorchHere

_TIMEOUT_S = 3600
ENVIRONMENTS, ENVIRONMENT_USED = "environments", "kernforge-torch"
_LINES_SHOWN = 6
# With one of these the user says where uv takes torch from.
UV_INDEX = ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchRequest:
    """The Python and torch that a variant wants.

    Attributes:
        newer: whether newer releases serve the variant too (the stable ABI).
        cuda: the CUDA that torch must be built for; None takes any build.
        python: the release of Python, as ``3.12``.
        packages: what else is installed.
        index: URL of the package index that has torch; empty takes the user's own.
    """

    torch: Version2
    newer: bool
    cuda: Version2 | None
    python: str
    packages: tuple[str, ...]
    index: str

    def fits(self, torch: TorchHere) -> bool:
        """Whether a torch serves the variant."""
        release = torch.version >= self.torch if self.newer else torch.version == self.torch
        return release and self.cuda in {None, torch.cuda}

    @property
    def name(self) -> str:
        """Name of the directory of an environment."""
        build = f"cu{self.cuda}" if self.cuda else "cpu"
        rest = digest.key("environment", packages=list(self.packages), index=self.index)[:8]
        return f"torch{self.torch}-{build}-python{self.python}-{rest}"


def request(target: Target, manifest: Manifest, *, python: str, index: str) -> TorchRequest:
    """What a variant wants.

    Args:
        manifest: of its project, for the packages that it depends on.
        python: a release of Python; empty for that of this process.
        index: URL of the package index that has torch; empty for the user's own.

    Raises:
        UsageError: the variant is for no release of torch.
    """
    if target.torch is None:
        raise UsageError(
            f"{target.name} is not for one release of torch",
            hint="leave --with-torch out: it runs with the packages of your own environment",
        )
    known = python_depends(target.backend)
    names = manifest.general.python_depends_for(target.backend)
    packages = {"numpy", "pytest", *(known[name].package for name in names if name in known)}
    return TorchRequest(
        torch=target.torch,
        newer=target.variant.framework == "torch-stable-abi",
        cuda=target.cuda,
        python=python or sysconfig.get_python_version(),
        packages=tuple(sorted(packages)),
        index=index,
    )


def provide(
    wanted: TorchRequest,
    environment: Environment,
    run: Runner,
    note: Callable[[str], None],
    *,
    here: TorchHere | None,
) -> Path:
    """The program ``python`` of an environment that has the wanted torch.

    A caller that holds a lease of the store keeps it from being removed.

    Args:
        environment: says where environments are kept, and which indexes the user has.

    Raises:
        ToolchainError: there is no such Python, or no index has such a torch.
    """
    same_python = wanted.python == sysconfig.get_python_version()
    if here is not None and same_python and wanted.fits(here) and not wanted.index:
        return Path(sys.executable)
    root = environment.home / ENVIRONMENTS / wanted.name
    with files.locked(root.with_name(f"{root.name}.lock")):
        complete = root / ENVIRONMENT_USED
        if complete.is_file():
            files.touch(complete)
        else:
            files.remove_tree(root)
            note(
                f"installing torch {wanted.torch} for Python {wanted.python} in {root}, once: a build "
                "for CUDA takes 5 GB, one for the CPU 1 GB"
            )
            try:
                _make(root, wanted, environment.variables, run)
            except BaseException:
                files.remove_tree(root)
                raise
            files.write_new(complete, f"{wanted.name}\n")
    return root / "bin" / "python"


def extend(setting: Setting, python: Path) -> Setting:
    """The setting of a variant with this ``python`` before all others."""
    root = python.parent.parent
    values = dict(setting.values)
    if (root / "pyvenv.cfg").is_file():
        values["VIRTUAL_ENV"] = str(root)
    path = (str(python.parent), *setting.before.get("PATH", ()))
    return replace(setting, values=values, before={**setting.before, "PATH": path})


def _make(root: Path, wanted: TorchRequest, env: Mapping[str, str], run: Runner) -> None:
    """Make the environment, by uv if it is there."""
    own = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", "")])
    env = {**env, "PATH": own, "UV_NO_PROGRESS": "1"}

    def started(*argv: str, **added: str) -> Completed | None:
        """The result of a program; None where there is no such program."""
        try:
            return run(Command(argv=argv, env=env, added=added, timeout=_TIMEOUT_S))
        except FileNotFoundError:
            return None

    made, torch, packages = str(root / "bin/python"), f"torch=={wanted.torch}.*", wanted.packages
    if (version := started("uv", "--version")) and not version.returncode:
        python = _interpreter(wanted, env, started) or wanted.python
        _refuse_failure(started("uv", "venv", "--quiet", "--python", python, str(root)), wanted)
        install: tuple[str, ...] = ("uv", "pip", "install", "--quiet", "--python", made)
        config = Index.from_environment(env).config
        added = {"SSL_CERT_FILE": config.cert} if config.cert else {}
        own_index = _uv_options(config, env)
        of_torch = ["--index-url", wanted.index] if wanted.index else list(own_index)
        if not of_torch and not any(env.get(name) for name in UV_INDEX):
            # uv knows the index of each build of torch.
            digits = str(wanted.cuda).replace(".", "") if wanted.cuda else ""
            of_torch = ["--torch-backend", f"cu{digits}" if digits else "cpu"]
        _refuse_failure(started(*install, *of_torch, torch, **added), wanted)
        _refuse_failure(started(*install, *own_index, torch, *packages, **added), wanted)
    else:
        if not (python := _interpreter(wanted, env, started)):
            raise ToolchainError(
                f"Python {wanted.python} is not on this machine",
                hint="install uv, which fetches it (pip install uv), or install that Python; or give "
                f"--python {sysconfig.get_python_version()}",
            )
        _refuse_failure(started(python, "-m", "venv", str(root)), wanted)
        install = (made, "-m", "pip", "install")
        of_torch = ["--index-url", wanted.index] if wanted.index else []
        _refuse_failure(started(*install, *of_torch, torch), wanted)
        _refuse_failure(started(*install, torch, *packages), wanted)
    found = _torch_of(root)
    if found is None or not wanted.fits(found):
        build = f"for CUDA {found.cuda}" if found and found.cuda else "without CUDA"
        raise ToolchainError(
            f"your package index has torch {found.version if found else wanted.torch} {build}, and the "
            f"variant is for CUDA {wanted.cuda}",
            hint="name an index that has this build of torch, as pytorch.org lists them: "
            "--torch-index URL",
        )


def _uv_options(config: pip_config.PipConfig, env: Mapping[str, str]) -> Sequence[str]:
    """Pip's configuration as options of uv; none where pip has none or uv has its own."""
    from pypi_simple import PYPI_SIMPLE_ENDPOINT  # noqa: PLC0415

    plain = config.index_urls == (PYPI_SIMPLE_ENDPOINT,) and not config.find_links
    if plain or any(env.get(name) for name in UV_INDEX):
        return ()
    options: list[str] = []
    for number, url in enumerate(config.index_urls):
        options += ["--extra-index-url" if number else "--index-url", url]
    options += [] if config.index_urls else ["--no-index"]
    for place in config.find_links:
        options += ["--find-links", place]
    # As pip does: the best version of all indexes.
    return (*options, "--index-strategy", "unsafe-best-match")


def _interpreter(
    wanted: TorchRequest, env: Mapping[str, str], started: Callable[..., Completed | None]
) -> str:
    """The program of the wanted Python: this one, one on PATH, or one of pyenv; empty without."""
    if wanted.python == sysconfig.get_python_version():
        return sys.executable
    program = f"python{wanted.python}"
    pyenv = Path(env.get("PYENV_ROOT") or Path.home() / ".pyenv")
    places = [program, *map(str, sorted(pyenv.glob(f"versions/{wanted.python}*/bin/{program}")))]
    for place in places:
        if (found := started(place, "-c", "import venv")) and not found.returncode:
            return place
    return ""


def _torch_of(root: Path) -> TorchHere | None:
    """The torch that was installed in an environment."""
    for package in sorted(root.glob("lib/python*/site-packages/torch")):
        return installed.torch_in(package)
    return None


def _refuse_failure(done: Completed | None, wanted: TorchRequest) -> None:
    """Raise the error of a program that failed."""
    if done is None or done.returncode:
        lines = done.stderr.strip().splitlines()[-_LINES_SHOWN:] if done else ["it is not there"]
        raise ToolchainError(
            f"no environment with torch {wanted.torch} for Python {wanted.python} could be made:\n  "
            + "\n  ".join(lines),
            hint="another Python may have it (--python 3.12), or another index (--torch-index URL)",
        )
