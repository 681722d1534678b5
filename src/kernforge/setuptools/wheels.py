# SPDX-License-Identifier: Apache-2.0
"""Wheels of a setup.py project for many torch, CUDA and Python versions.

Each wheel is built in a copy of the project behind a stub of its torch, by the running Python:
of another one, only the headers are needed. Objects that do not read torch's or Python's headers
are compiled once. Tags cannot express torch and CUDA, so that the local version does, as in
``1.0+torch2.11.cu130``; and the wheel requires the torch series that it was built for.
"""

from __future__ import annotations

import itertools
import re
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email import message_from_bytes
from email.policy import EmailPolicy
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from kernforge.check.api import beyond_limited_api
from kernforge.errors import BuildError, CheckError, UsageError
from kernforge.setuptools import pip, python_headers, stub, target
from kernforge.setuptools.target import TorchTarget
from kernforge.system import files
from kernforge.system.console import Console
from kernforge.system.environment import Environment
from kernforge.system.process import Command, run
from kernforge.toolchain.releases import torch_releases
from kernforge.wheel import archive, plan as wheel_plan
from kernforge.wheel.plan import WheelPlan, libraries

_INFO = re.compile(r"[^/]+\.(dist-info|data)/(.*)")
_OURS = {"METADATA", "WHEEL", "RECORD", "RECORD.jws", "RECORD.p7s"}
_POLICY = EmailPolicy(utf8=True, mangle_from_=False, refold_source="none")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionWheel:
    """A wheel of a setup.py project.

    Attributes:
        requires: its ``Requires-Dist`` lines.
    """

    path: Path
    target: TorchTarget
    requires: tuple[str, ...]
    seconds: float


def targets(
    torch: Sequence[str], cuda: Sequence[str], python: Sequence[str], environment: Environment
) -> tuple[TorchTarget, ...]:
    """Targets: every torch with every CUDA of its release, and every Python.

    Args:
        torch: releases, as ``2.11``; none takes the installed torch, else the newest.
        cuda: as ``13.0`` or ``cpu``; none takes the newest of each torch that is compiled here.
        python: as ``3.12``; none takes the running one.
    """
    pythons = [target.parse_python(each) for each in python] or [target.running_python()]
    for each in pythons:
        python_headers.find(each, environment.variables)
    if not torch:
        here = target.find_target(environment)
        torch, cuda = [str(here.torch)], cuda or [str(here.cuda or target.NO_CUDA)]
    pairs = [(release, each) for release in torch for each in _published(release, cuda)]
    triples = itertools.product(pairs, pythons)
    return tuple(target.named_target(*pair, each) for pair, each in triples)


def _published(torch: str, cuda: Sequence[str]) -> list[str] | list[None]:
    """The requested CUDA versions of a torch's release; None for its default."""
    version = target.named_target(torch, None, target.running_python()).torch
    known = torch_releases().get(version, ())
    numbers = {each: target.parse_cuda(each) for each in cuda}
    published = [each for each, n in numbers.items() if n is None or not known or n in known]
    if cuda and not published:
        raise UsageError(
            f"torch {version} was published for none of CUDA {', '.join(cuda)}",
            hint=f"it was for {', '.join(map(str, known))}, and there is cpu",
        )
    return published or [None]


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
        seconds: time of all members in seconds since 1970, as in ``SOURCE_DATE_EPOCH``.

    Raises:
        BuildError: one could not be built; those before it are there.
        CheckError: one says that it keeps to Python's limited API, and does not.
        UsageError: it makes a wheel without extensions.
    """
    limited: dict[tuple[str, str], str] = {}  # the oldest Python of a wheel, as cp39
    for each in wanted:
        pair = (str(each.torch), str(each.cuda))
        if pair not in limited:
            start = time.monotonic()
            with files.staging(environment.home / "setuptools" / "work") as place:
                built = _build(project.absolute(), each, place, environment, console)
                _audit(built)
                path, requires, tag = relabel(
                    built, each, out, place / "files", environment.home, seconds=seconds
                )
            yield ExtensionWheel(
                path=path,
                target=each,
                requires=requires,
                seconds=time.monotonic() - start,
            )
            if tag[1] == "abi3":
                limited[pair] = tag[0]
        if (oldest := limited.get(pair)) and not _loads_in(oldest, each.python):
            console.note(
                f"note: no wheel for Python {each.python}: setup.py says {oldest}-abi3, which "
                "serves neither older Pythons nor free-threaded ones"
            )


def _loads_in(oldest: str, python: str) -> bool:
    """Whether an abi3 extension of a Python, as ``cp39``, loads in another one."""
    return not python.endswith("t") and int(python[2:]) >= int(oldest[3:])


def _build(
    project: Path, wanted: TorchTarget, place: Path, environment: Environment, console: Console
) -> Path:
    """Build a wheel in a copy of the project."""
    copy = place / project.name
    stub.copy_project(project, copy)
    if (project / ".git").is_dir():  # setuptools-scm asks git for the version
        files.symlink(str(project / ".git"), copy / ".git")
    words = ("wheel", str(copy), "--no-deps", "--verbose", "--wheel-dir", str(place / "built"))
    chosen = wanted.variables
    if not console.quiet:
        chosen["KERNFORGE_PROGRESS"] = files.shared_path(2)
    done = run(Command(argv=(*pip.PROGRAM, *words), env=environment.variables, added=chosen))
    if done.returncode != 0:
        text = (done.stdout + done.stderr).partition("error: subprocess-exited-with-error")[0]
        text = text.rpartition("running build_ext\n")[2].strip()
        raise BuildError(f"{project.name} cannot be built for {wanted}\n{text}")
    (built,) = (place / "built").iterdir()
    return built


def _audit(wheel: Path) -> None:
    """Refuse an abi3 wheel whose libraries exceed the limited API."""
    if "abi3" not in {tag.abi for tag in parse_wheel_filename(wheel.name)[3]}:
        return
    for library, symbols in beyond_limited_api([wheel], run).items():
        raise CheckError(
            f"{wheel.name} says abi3, and {library} uses what is not in that limited API: "
            f"{', '.join(symbols)}",
            hint="define Py_LIMITED_API for the Python of bdist_wheel's py_limited_api and bind "
            "with TORCH_LIBRARY, or leave py_limited_api out",
        )


def local_version(wanted: TorchTarget) -> str:
    """Local version label of a target, as ``torch2.11.cu130``."""
    return f"torch{wanted.torch}.{wanted.release.partition('+')[2]}"


def relabel(
    wheel: Path, wanted: TorchTarget, out: Path, place: Path, home: Path, *, seconds: int = 0
) -> tuple[Path, tuple[str, ...], wheel_plan.Tag]:
    """Rewrite a wheel with the version, requirements and tags of its target.

    Args:
        wanted: what its extensions were built for.
        place: a new directory, for the files of the wheel.
        home: ``KERNFORGE_HOME``.
        seconds: time of all members in seconds since 1970.

    Returns:
        The new wheel, its ``Requires-Dist`` lines and its tag.
    """
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(place)
        members = {n: place / n for n in opened.namelist() if not n.endswith("/")}
    found = libraries(members, lambda name: members[name].read_bytes())
    platforms = [each.platform for each in found]
    if not platforms:
        raise UsageError(
            f"{wheel.name} has no extension",
            hint="a project without extensions needs one wheel: `pip wheel`; or its setup.py "
            "builds extensions on a condition (FORCE_CUDA=1 and the like)",
        )
    _, version, _, (tag, *_) = parse_wheel_filename(wheel.name)
    python, abi = tag.interpreter, tag.abi
    if abi.startswith("cp"):
        python, abi = target.python_tag(wanted.python)
    full = str(Version(f"{version.public}+{local_version(wanted)}"))
    (about,) = place.glob("*.dist-info/METADATA")
    name, requires, document = _metadata(about.read_bytes(), full, wanted)
    plan = WheelPlan(
        distribution=name,
        version=full,
        tag=(python, abi, wheel_plan.newest_platform(platforms)),
        module="",
        requires=requires,
        metadata=document,
    )
    contents = {}
    for member, path in members.items():
        match = _INFO.fullmatch(member)
        if not match:
            contents[member] = path
        elif match[1] == "data" or match[2] not in _OURS:
            contents[f"{plan.stem}.{match[1]}/{match[2]}"] = path
    return archive.write(plan, contents, out, home, seconds=seconds), requires, plan.tag


def _metadata(
    document: bytes, version: str, wanted: TorchTarget
) -> tuple[str, tuple[str, ...], str]:
    """Name, requirements and text of METADATA with another version and the torch of a target."""
    message = message_from_bytes(document, policy=_POLICY)
    message.replace_header("Version", version)
    requirements = {text: Requirement(text) for text in message.get_all("Requires-Dist", [])}
    others = (text for text, each in requirements.items() if each.marker or not pip.is_torch(each))
    requires = (f"torch=={wanted.torch}.*", *others)
    del message["Requires-Dist"]
    for text in requires:
        message["Requires-Dist"] = text
    return message["Name"], requires, message.as_bytes().decode()
