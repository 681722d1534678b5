# SPDX-License-Identifier: Apache-2.0
"""``kernforge pip``: pip whose builds find kernforge's stub of torch.

pip reads its command line, finds projects, resolves and installs as always. Only the programs that
it starts to build a project get other variables: the stub of torch comes first on their path, then
what the project needs to be built. Run as a program, this module is that pip.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import re
import runpy
import shlex
import signal
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kernforge.errors import CheckError, KernforgeError, ToolchainError, UsageError
from kernforge.setuptools import stub, target
from kernforge.system import files
from kernforge.system.environment import Environment
from kernforge.system.process import Command, hand_on, replace_by, run
from kernforge.wheel import plan as wheel_plan

# "-P": a project in the current directory may have files of any name.
PROGRAM = (sys.executable, "-P", "-m", "kernforge.setuptools.pip")
"""Command line of the pip whose builds find the stub, without pip's own arguments."""
_CHOICES = ("torch", "cuda", "python")
_BUILDS = ("install", "wheel", "download")
# Satisfied by the stub or by kernforge.
_NOT_FETCHED = frozenset({"torch", "torchvision", "torchaudio", "triton", "ninja"})
_LEGACY = ("setuptools>=70.1",)  # the first with a bdist_wheel of its own


def run_pip(words: Sequence[str], environment: Environment) -> NoReturn:
    """Run pip in the place of this process.

    Args:
        words: pip's command line, with ``--torch``, ``--cuda`` and ``--python``.

    Raises:
        UsageError: an option is not valid, or names another Python.
    """
    chosen, rest = take_choices(words)
    if not rest or rest[0] not in _BUILDS:
        if chosen:
            raise UsageError(
                f"--{next(iter(chosen))} is for {', '.join(_BUILDS)}, not for pip's other commands",
                hint="remove it",
            )
        replace_by(Command(argv=(sys.executable, "-m", "pip", *rest)))
    for word in rest[1:]:
        is_project = any(Path(word, name).is_file() for name in ("setup.py", "pyproject.toml"))
        if is_project and re.fullmatch(r"[A-Za-z0-9][-\w.]*", word):
            note = f"note: pip takes {word} for a package's name; ./{word} is the project there"
            stub.build_console(environment).note(note)
    variables = {f"KERNFORGE_{name.upper()}": text for name, text in chosen.items()}
    wanted = target.find_target(Environment({**environment.variables, **variables}))
    if wanted.python != target.running_python():
        raise UsageError(
            f"pip of Python {target.running_python()} cannot install for Python {wanted.python}",
            hint="`kernforge wheel --python` makes wheels for other Pythons",
        )
    replace_by(Command(argv=(*PROGRAM, *rest), env=environment.variables, added=variables))


def take_choices(words: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Separate kernforge's options from pip's.

    >>> take_choices(["install", ".", "--torch", "2.11", "--cuda=13.0"])
    ({'torch': '2.11', 'cuda': '13.0'}, ('install', '.'))
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in _CHOICES:
        parser.add_argument(f"--{name}")
    try:
        chosen, rest = parser.parse_known_args(words)
    except argparse.ArgumentError as error:
        raise UsageError(str(error), hint="write it like --torch 2.11") from error
    return {name: text for name, text in vars(chosen).items() if text is not None}, tuple(rest)


# -- in the process of pip -----------------------------------------------------------------


class _Builds:
    """Build environments for the projects that pip builds in this process.

    Args:
        place: directory of the stub and of build requirements.
    """

    def __init__(self, environment: Environment, place: Path, *, verbose: bool) -> None:
        self._environment, self._place, self._verbose = environment, place, verbose
        self._target = target.find_target(environment)
        self._console = stub.build_console(environment)
        self._count = 0

    @functools.cached_property
    def _stub(self) -> Path:
        directory = self._place / "torch"
        return stub.write(directory, self._target, self._environment, self._console)

    def interpreter(self, project: Path) -> Path:
        """Write a wrapper of this Python that sets the variables of a project's build."""
        self._count += 1
        place, wanted = self._place / str(self._count), self._target
        why = f" ({wanted.why})" if wanted.why else ""
        self._console.note(f"building {project.name} for {wanted}{why}")
        needed = build_requirements(project)
        for each in needed:
            if is_torch(each) and not each.specifier.contains(wanted.release, prereleases=True):
                self._console.note(
                    f"note: the project asks for {each}, and is built for torch {wanted.torch}: "
                    "--torch names another release"
                )
        _install(missing(needed), place / "packages")
        setup = project / "setup.py"
        variables = stub.variables(
            self._stub,
            wanted,
            self._environment,
            self._console,
            packages=place / "packages",
            setup=setup.read_text(errors="replace") if setup.is_file() else "",
        )
        if not self._verbose:
            # pip keeps what a build prints until it fails.
            shown = self._environment.kernforge_progress or files.shared_path(2)
            variables["KERNFORGE_PROGRESS"] = shown
        lines = (f"export {name}={shlex.quote(text)}" for name, text in variables.items())
        text = "\n".join(("#!/bin/sh", *lines, f'exec {shlex.quote(sys.executable)} "$@"\n'))
        files.write_new(place / "python", text, executable=True)
        return place / "python"

    def note_platform(self, wheel: Path) -> None:
        """Say what the libraries of a wheel need beyond a manylinux machine with torch.

        A wheel may also have no file of the project: setuptools builds one without complaint.
        """
        with contextlib.suppress(CheckError), zipfile.ZipFile(wheel) as opened:
            if all(".dist-info/" in name for name in opened.namelist()):
                self._console.note(
                    f"note: {wheel.name} is empty: the project names no extension, and setuptools "
                    "sees no package in it"
                )
            for note in wheel_plan.notes(wheel_plan.libraries(opened.namelist(), opened.read)):
                self._console.note(note)


def _install(requirements: Sequence[Requirement], directory: Path) -> None:
    """Install packages into a directory by pip."""
    if not requirements:
        return
    listed = [str(each) for each in requirements]
    argv = (sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--target")
    done = run(Command(argv=(*argv, str(directory), *listed)))
    if done.returncode != 0:
        raise ToolchainError(
            f"pip cannot install the build requirements {', '.join(listed)}:\n"
            f"{done.stderr.strip()}",
            hint="install them into this environment, or check pip's configuration",
        )


def build_requirements(project: Path) -> list[Requirement]:
    """Build requirements of a project whose pyproject.toml pip has checked."""
    about = project / "pyproject.toml"
    document = tomllib.loads(about.read_text(encoding="utf-8")) if about.is_file() else {}
    listed = map(Requirement, document.get("build-system", {}).get("requires", _LEGACY))
    return [each for each in listed if each.marker is None or each.marker.evaluate()]


def is_torch(requirement: Requirement) -> bool:
    """Whether a requirement is torch itself."""
    return canonicalize_name(requirement.name) == "torch"


def missing(requirements: Sequence[Requirement]) -> list[Requirement]:
    """Requirements that are neither installed nor satisfied by the stub."""

    def is_installed(each: Requirement) -> bool:
        try:
            version = metadata.version(each.name)
        except metadata.PackageNotFoundError:
            return False
        return not each.url and each.specifier.contains(version, prereleases=True)

    fetched = (each for each in requirements if canonicalize_name(each.name) not in _NOT_FETCHED)
    return [each for each in fetched if not is_installed(each)]


def main(words: Sequence[str]) -> None:
    """Run pip in this process, which ends with pip's exit code."""
    try:
        from pip._internal.exceptions import InstallationError  # noqa: PLC0415
        from pip._vendor.pyproject_hooks import BuildBackendHookCaller  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise SystemExit(f"error: {error}\nhint: install pip: python -m ensurepip") from error

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, hand_on)  # pip would end and leave its builds running
    environment = Environment.read()
    with files.staging(environment.home / "setuptools" / "work") as place:
        verbose = any(re.fullmatch(r"-v+|--verbose", word) for word in words)
        builds = _Builds(environment, place, verbose=verbose)
        hooks: Any = BuildBackendHookCaller
        begin, make_wheel = hooks.__init__, hooks.build_wheel

        def begin_here(caller: Any, source_dir: str, *args: Any, **kwargs: Any) -> None:
            begin(caller, source_dir, *args, **kwargs)
            try:
                caller.python_executable = str(builds.interpreter(Path(source_dir)))
            except KernforgeError as error:
                raise InstallationError(str(error)) from error  # pip prints it and ends

        def make_wheel_here(caller: Any, directory: str, *args: Any, **kwargs: Any) -> str:
            name: str = make_wheel(caller, directory, *args, **kwargs)
            builds.note_platform(Path(directory) / name)
            return name

        hooks.__init__ = begin_here
        if words[0] == "wheel":  # an installed one finds what this machine has
            hooks.build_wheel = make_wheel_here
        # A wheel in pip's cache is one for any torch.
        ours = ("--no-build-isolation", "--use-pep517", "--no-cache-dir")
        sys.argv = ["pip", words[0], *ours, *words[1:]]
        runpy.run_module("pip", run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
