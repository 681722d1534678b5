# SPDX-License-Identifier: Apache-2.0
"""The torch, CUDA and Python that an extension is built for.

``KERNFORGE_TORCH``, ``KERNFORGE_CUDA`` and ``KERNFORGE_PYTHON`` say it; ``kernforge pip`` and
``kernforge wheel`` set them. Else it is the torch that is installed where the extension will be:
pip hides it from an isolated build, so that it is looked for in the directories of this Python too.
It is not imported. Without one, it is the newest release that is known.
"""

from __future__ import annotations

import re
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from kernforge.artifact.version import Version2
from kernforge.errors import UsageError
from kernforge.system.environment import Environment
from kernforge.toolchain import installed
from kernforge.toolchain.releases import TOOLKITS, USUAL, torch_releases

STUB = "kernforge-stub"
"""File that marks a torch package as the stub."""
NO_CUDA = "cpu"
_PYTHON = re.compile(r"3\.(\d+)(t?)")
_RELEASE = re.compile(r"(\d+)\.(\d+)(?:\.\d+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchTarget:
    """Target of an extension.

    Attributes:
        torch: release series of torch.
        release: torch's version, as ``"2.11.0+cu130"``.
        cuda: CUDA that torch was built with; None for a CPU build of torch.
        python: Python that imports the extension, as ``"3.12"`` or ``"3.14t"``.
        installed: directory of the installed package; None for a release of the index.
    """

    torch: Version2
    release: str
    cuda: Version2 | None
    python: str
    installed: Path | None = None
    why: str = ""

    def __str__(self) -> str:
        return (
            f"torch {self.torch}, {f'CUDA {self.cuda}' if self.cuda else 'CPU'}, Python "
            f"{self.python}"
        )

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that select this target in another process."""
        return {
            "KERNFORGE_TORCH": self.release,
            "KERNFORGE_CUDA": str(self.cuda or NO_CUDA),
            "KERNFORGE_PYTHON": self.python,
        }


def running_python() -> str:
    """The running Python, as targets name it."""
    threads = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    return f"{sys.version_info.major}.{sys.version_info.minor}{threads}"


def find_target(environment: Environment) -> TorchTarget:
    """The target of the environment, else the installed torch, else the newest release."""
    python = parse_python(environment.kernforge_python or running_python())
    cuda = environment.kernforge_cuda
    if named := environment.kernforge_torch:
        return named_target(named, cuda, python, why="as asked for")
    if here := find_installed(_package_directories(), python):
        return replace(here, cuda=parse_cuda(cuda)) if cuda else here
    newest = max(torch_releases())
    return named_target(str(newest), cuda, python, why="the newest release; no torch is installed")


def named_target(torch: str, cuda: str | None, python: str, *, why: str = "") -> TorchTarget:
    """A release of the index as a target.

    Args:
        torch: as ``"2.11"`` or ``"2.11.0"``.
        cuda: as ``"13.0"``, or ``"cpu"``; None takes the newest of that release that is compiled
            here.
        python: as ``parse_python`` gives it.
    """
    number, _, local = torch.partition("+")
    match = _RELEASE.fullmatch(number)
    if not match:
        raise UsageError(f"{torch!r} is not a release of torch", hint="write it like 2.11")
    version = Version2(int(match[1]), int(match[2]))
    published = torch_releases().get(version) or (USUAL,)
    if not (cuda_name := cuda or local):
        toolkit: Version2 | None = max([c for c in published if c in TOOLKITS] or published)
    else:
        toolkit = parse_cuda(cuda_name)
        if toolkit and version in torch_releases() and toolkit not in published:
            raise UsageError(
                f"torch {version} was not published for CUDA {toolkit}",
                hint=f"it was for {', '.join(map(str, published))}; cpu is a build without CUDA",
            )
    build = f"cu{toolkit.major}{toolkit.minor}" if toolkit else NO_CUDA
    release = f"{version}.0+{build}"
    return TorchTarget(torch=version, release=release, cuda=toolkit, python=python, why=why)


def parse_cuda(text: str) -> Version2 | None:
    """``"13.0"`` or ``"cu130"``; None for ``"cpu"``."""
    if text.lower() in {NO_CUDA, "none"}:
        return None
    match = re.fullmatch(r"cu(\d+)(\d)", text) or re.fullmatch(r"(\d+)\.(\d+)", text)
    if not match:
        raise UsageError(f"{text!r} is not a CUDA version", hint="write it like 13.0, or cpu")
    return Version2(int(match[1]), int(match[2]))


def parse_python(text: str) -> str:
    """A version of Python, as ``"3.12"`` or ``"3.14t"``."""
    if not _PYTHON.fullmatch(text):
        raise UsageError(f"{text!r} is not a version of Python", hint="write it like 3.12 or 3.14t")
    return text


def python_tag(python: str) -> tuple[str, str]:
    """Python and ABI tag of a wheel with an extension, as ``("cp312", "cp312")``."""
    digits = python.replace(".", "")
    return f"cp{digits.removesuffix('t')}", f"cp{digits}"


def find_installed(places: Iterable[str], python: str) -> TorchTarget | None:
    """The first torch in some directories of packages; a stub does not count."""
    for place in places:
        package = Path(place) / "torch"
        here = None if (package / STUB).exists() else installed.read_torch(package)
        if here:
            return TorchTarget(
                torch=here.version,
                release=here.release,
                cuda=here.cuda,
                python=python,
                installed=package,
                why=f"installed in {place}",
            )
    return None


def _package_directories() -> Iterator[str]:
    """Directories of packages in import order, then those that an isolated build hides."""
    yield from (path for path in sys.path if path)
    yield from (sysconfig.get_path(name) for name in ("purelib", "platlib"))
    yield from site.getsitepackages()
    yield site.getusersitepackages()
