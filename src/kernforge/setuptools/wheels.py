# SPDX-License-Identifier: Apache-2.0
"""Wheels of a setup.py project for every torch, CUDA and Python that is asked for.

Each wheel is built in a copy of the project with a stand-in for its torch, by the running Python:
another one lends its headers only. Objects that do not read torch's or Python's headers are
compiled once. Tags cannot express torch and CUDA, so that the local version does, as in
``1.0+torch2.11.cu130``; and the wheel requires the torch series that it was built for.
"""

from __future__ import annotations

import itertools
import os
import re
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from kernforge.check.api import beyond_limited_api
from kernforge.errors import CheckError, UsageError
from kernforge.project.api import is_skipped
from kernforge.setuptools import python_headers, target
from kernforge.setuptools.pip import ProjectBuilder, workplace
from kernforge.setuptools.target import TorchTarget
from kernforge.system import files
from kernforge.system.console import Console
from kernforge.system.environment import Environment
from kernforge.system.process import run
from kernforge.toolchain.releases import torch_releases
from kernforge.wheel import archive
from kernforge.wheel import plan as wheel_plan
from kernforge.wheel.needs import is_library, libraries
from kernforge.wheel.plan import WheelPlan

_RESULTS = {"build", "dist"}  # at the top: a package or a source below may have such a name
_BUILT = re.compile(r"\.(?:cpython-|abi3).*\.so$")
_INFO = re.compile(r"([^/]+)\.(dist-info|data)/(.*)")
_DIST_INFO = "dist-info"
_OURS = {"METADATA", "WHEEL", "RECORD", "RECORD.jws", "RECORD.p7s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionWheel:
    """A wheel of a setup.py project.

    Attributes:
        requires: its ``Requires-Dist`` lines.
        compiled: actions that were run for it.
        actions: actions that it needs; the other results came from the store.
        seconds: what its build took.
        serves: the Pythons that it serves, if its extensions keep to the limited API.
    """

    path: Path
    target: TorchTarget
    requires: tuple[str, ...]
    compiled: int
    actions: int
    seconds: float
    serves: tuple[str, ...] = ()


def targets(
    torch: Sequence[str], cuda: Sequence[str], python: Sequence[str], environment: Environment
) -> tuple[TorchTarget, ...]:
    """Every torch with every CUDA that it was published for, and every Python.

    Args:
        torch: releases, as ``2.11``; none takes the installed torch, else the newest.
        cuda: as ``13.0`` or ``cpu``; none takes the newest of each torch that is compiled here.
        python: as ``3.12``; none takes the running one.

    Raises:
        ToolchainError: the headers of a Python are not on this machine.
        UsageError: a text is not a version, or a torch was published for no CUDA that is asked for.
    """
    pythons = [target.parse_python(each) for each in python] or [target.running_python()]
    for each in pythons:
        python_headers.find(each, environment.variables)
    if not torch:
        found = replace(target.find_target(environment), installed=None)
        torch = [str(found.torch)]
        cuda = cuda or [str(found.cuda or target.NO_CUDA)]
    pairs = [(release, built_for) for release in torch for built_for in _published(release, cuda)]
    return tuple(
        target.named_target(release, built_for, each)
        for (release, built_for), each in itertools.product(pairs, pythons)
    )


def _published(torch: str, cuda: Sequence[str]) -> Iterator[str | None]:
    """Those of the CUDA versions that a torch was published for."""
    if not cuda:
        yield None
        return
    version = target.named_target(torch, None, "3.12").torch
    known = torch_releases().get(version)
    fitting = [
        each
        for each in cuda
        if known is None or (number := target.parse_cuda(each)) is None or number in known
    ]
    if not fitting:
        raise UsageError(
            f"torch {version} was published for none of CUDA {', '.join(cuda)}",
            hint=f"it was for {', '.join(map(str, known or ()))}, and there is cpu",
        )
    yield from fitting


def make_wheels(
    project: Path,
    wanted: Sequence[TorchTarget],
    out: Path,
    environment: Environment,
    console: Console,
    *,
    seconds: int = 0,
) -> Iterator[ExtensionWheel]:
    """Build the wheels of a project, one after the other; each uses all cores.

    Args:
        project: directory with ``setup.py`` or ``pyproject.toml``.
        seconds: time of all members in seconds since 1970, as in ``SOURCE_DATE_EPOCH``.

    Raises:
        BuildError: one could not be built; those before it are there.
        CheckError: one says that it keeps to Python's limited API, and does not.
        ToolchainError: a part of the toolchain is missing.
        UsageError: it is not a project, or it makes a wheel without extensions.
    """
    with workplace(environment) as place:
        limited: dict[tuple[str, str], str] = {}  # the oldest Python of a wheel, as cp39
        for number, each in enumerate(wanted):
            pair = (str(each.torch), str(each.cuda))
            if pair in limited:
                _note_unserved(each.python, limited[pair], console)
                continue
            start = time.monotonic()
            copy = place / str(number) / project.absolute().name
            _copy(project.absolute(), copy)
            builder = ProjectBuilder(
                each, environment, console, place / str(number), packages=place / "packages"
            )
            built = builder.wheel(copy)
            _audit(built)
            path, requires, tag = relabel(built, each, out, seconds=seconds)
            wheel = ExtensionWheel(
                path=path,
                target=each,
                requires=requires,
                compiled=builder.compiled,
                actions=builder.actions,
                seconds=time.monotonic() - start,
                serves=() if tag[1] != "abi3" else (f"{tag[0]} and newer",),
            )
            if wheel.serves:
                limited[pair] = tag[0]
                _note_unserved(each.python, tag[0], console)
            files.remove_tree(place / str(number))
            yield wheel


def _audit(wheel: Path) -> None:
    """Refuse a wheel whose tag promises the limited API, and whose libraries use more.

    Raises:
        CheckError: it is one; other Pythons would fail to import it.
    """
    if "abi3" not in {tag.abi for tag in parse_wheel_filename(wheel.name)[3]}:
        return
    for library, symbols in beyond_limited_api([wheel], run).items():
        raise CheckError(
            f"{wheel.name} says abi3, and {library} uses what is not in that limited API: "
            f"{', '.join(symbols)}",
            hint="define Py_LIMITED_API for the Python of bdist_wheel's py_limited_api and bind "
            "with TORCH_LIBRARY, or leave py_limited_api out",
        )


def _note_unserved(python: str, oldest: str, console: Console) -> None:
    """Say that a Python that was asked for loads no extension of the limited API of another."""
    interpreter, abi = target.python_tag(python)
    if interpreter != abi:  # free-threaded
        console.note(f"note: no wheel for Python {python}, which has no limited API")
    elif int(abi.removeprefix("cp3")) < int(oldest.removeprefix("cp3")):
        console.note(
            f"note: no wheel for Python {python}: setup.py says {oldest}-abi3, so that older ones "
            "are not served"
        )


def local_version(wanted: TorchTarget) -> str:
    """What tells wheels of one version apart, as ``torch2.11.cu130``."""
    build = f"cu{wanted.cuda.major}{wanted.cuda.minor}" if wanted.cuda else target.NO_CUDA
    return f"torch{wanted.torch}.{build}"


def relabel(
    wheel: Path, wanted: TorchTarget, out: Path, *, seconds: int = 0
) -> tuple[Path, tuple[str, ...], wheel_plan.Tag]:
    """Write a wheel again, with the version, requirements and tags of its target.

    Args:
        wheel: as setuptools made it.
        wanted: what its extensions were built for.
        out: directory of the new wheel.
        seconds: time of all members in seconds since 1970.

    Returns:
        The new wheel, its ``Requires-Dist`` lines and its tag.

    Raises:
        CheckError: a library is damaged.
        UsageError: there is no extension in it.
    """
    with zipfile.ZipFile(wheel) as opened:
        members = {n: opened.read(n) for n in opened.namelist() if not n.endswith("/")}
    _, version, _, tags = parse_wheel_filename(wheel.name)
    (tag,) = tags
    document = next(
        data.decode() for name, data in members.items() if name.endswith(".dist-info/METADATA")
    )
    stated = re.search(r"^Name: (.*)$", document, re.MULTILINE)
    full = str(Version(f"{version.public}+{local_version(wanted)}"))
    with files.staging(out) as place:
        platform = _platform(members, place)
    python, abi = tag.interpreter, tag.abi
    if abi.startswith("cp"):
        python, abi = target.python_tag(wanted.python)
    if platform is None:
        raise UsageError(
            f"{wheel.name} has no extension",
            hint="a project without extensions needs one wheel: `pip wheel`; or its setup.py "
            "builds extensions on a condition (FORCE_CUDA=1 and the like)",
        )
    metadata, requires = _metadata(document, full, wanted)
    plan = WheelPlan(
        distribution=stated[1].strip() if stated else "",
        version=full,
        tag=(python, abi, platform),
        module="",
        requires=requires,
        metadata=metadata,
    )
    kept = dict(_renamed(members, plan.stem))
    return archive.write(plan, kept, out, seconds=seconds), requires, plan.tag


def _platform(members: dict[str, bytes], place: Path) -> str | None:
    """The platform that all libraries run on; None without any."""
    named: dict[str, Path] = {}
    for name, data in members.items():
        if is_library(name):
            files.write_new(place / name, data)
            named[name] = place / name
    found = [library.platform for library in libraries(named) if library.platform]
    return wheel_plan.newest_platform(found) if found else None


def _renamed(members: dict[str, bytes], stem: str) -> Iterator[tuple[str, bytes]]:
    for name, data in members.items():
        match = _INFO.fullmatch(name)
        if match and match[2] == _DIST_INFO and match[3] in _OURS:
            continue
        yield (f"{stem}.{match[2]}/{match[3]}" if match else name), data


def _metadata(document: str, version: str, wanted: TorchTarget) -> tuple[str, tuple[str, ...]]:
    """The text of METADATA with another version and the torch that is required."""
    head, blank, body = document.partition("\n\n")
    own = f"torch=={wanted.torch}.*"
    lines = []
    for line in head.splitlines():
        field, _, value = line.partition(": ")
        if field == "Version":
            lines.append(f"Version: {version}")
        elif field != "Requires-Dist" or not _is_torch(value):
            lines.append(line)
    at = next((n for n, line in enumerate(lines) if line.startswith("Requires-Dist: ")), len(lines))
    lines.insert(at, f"Requires-Dist: {own}")
    listed = [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]
    return "\n".join(lines) + (blank or "\n\n") + body, tuple(listed)


def _is_torch(text: str) -> bool:
    requirement = Requirement(text)
    return canonicalize_name(requirement.name) == "torch" and requirement.marker is None


def _copy(project: Path, copy: Path) -> None:
    """Copy the files of a project without what was built in it; links to directories stay links."""
    for directory, folders, names in os.walk(project):
        place = Path(directory)
        folders[:] = [
            name
            for name in folders
            if not (is_skipped(place / name) or name.endswith(".egg-info"))
            and (name not in _RESULTS or place != project)
        ]
        for folder in (place / name for name in folders):
            if folder.is_symlink():
                files.symlink(str(folder.resolve()), copy / folder.relative_to(project))
        below = place.relative_to(project)
        for name in names:
            source = place / name
            if not _BUILT.search(name) and source.is_file():
                files.copy_file(source, copy / below / name)
    # setuptools-scm asks git for the version.
    if (project / ".git").is_dir():
        files.symlink(str(project / ".git"), copy / ".git")
