# SPDX-License-Identifier: Apache-2.0
"""``kernforge pip``: pip, for projects whose setup.py imports torch's extension builder.

pip builds each project to a wheel in an environment in which the stand-in answers for torch; then
pip installs the wheels as it was asked to. What is not such a project is left to pip.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging import tags
from packaging.requirements import InvalidRequirement, Requirement

from kernforge.errors import BuildError, NetworkError, ToolchainError, UsageError
from kernforge.setuptools import requirements, stand_in, target
from kernforge.setuptools.progress import followed
from kernforge.setuptools.target import TorchTarget
from kernforge.store.local import Store
from kernforge.system import files
from kernforge.system.console import Console
from kernforge.system.environment import Environment
from kernforge.system.process import Command, attached, run
from kernforge.toolchain.index.index import Index

# As BuildExtension says it.
_COUNTS = re.compile(r"(\d+) of (\d+) actions were run")
_SUBPROCESS = "error: subprocess-exited-with-error"
_VERBOSE = re.compile(r"-v+|--verbose")
_CHOICES = ("torch", "cuda", "python")
_BUILDS = ("install", "wheel")
# pip's own parser says which words are what is to be built; the rest are options and their values.
# It hands on the texts that it is given, so that each is known by what it is and not by how it
# reads.
_PARSE = """
import json, sys
from pip._internal.commands import create_command
class Word(str):
    pass
given = [Word(each) for each in sys.argv[2:]]
options, words = create_command(sys.argv[1]).parse_args(given)
at = {id(each): number for number, each in enumerate(given)}
found = {"words": words, "editables": options.editables}
places = {kind: [at.get(id(each), -1) for each in texts] for kind, texts in found.items()}
print(json.dumps({**found, "places": places}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipRequest:
    """A command line of pip.

    Attributes:
        command: ``install`` or ``wheel``.
        options: words that are neither of the next two.
        words: what is to be built or installed.
        editables: what ``-e`` names.
    """

    command: str
    options: tuple[str, ...]
    words: tuple[str, ...]
    editables: tuple[str, ...]


def run_pip(words: Sequence[str], environment: Environment, console: Console) -> int:
    """Run a command line of pip; returns its exit code.

    Args:
        words: the command line, in which ``--torch``, ``--cuda`` and ``--python`` are ours.

    Raises:
        BuildError: a project could not be built.
        ToolchainError: a part of the toolchain is missing.
        UsageError: the command line is not valid.
    """
    chosen, rest = take_choices(words)
    if not rest or rest[0] not in _BUILDS:
        return _pip(rest, environment.variables)
    variables = dict(environment.variables)
    variables |= {f"KERNFORGE_{name.upper()}": text for name, text in chosen.items()}
    environment = replace(environment, variables=variables)
    wanted = target.find_target(environment)
    if "torch" in chosen:
        wanted = replace(wanted, why="--torch")
    if wanted.python != target.running_python():
        raise UsageError(
            f"pip of Python {target.running_python()} cannot install for Python {wanted.python}",
            hint="`kernforge wheel --python` makes wheels for other Pythons",
        )
    request = read_request(rest, variables)
    with workplace(environment) as place:
        verbose = any(_VERBOSE.fullmatch(word) for word in request.options)
        builder = ProjectBuilder(wanted, environment, console, place, verbose=verbose)
        return _Run(request, builder, variables).code()


@contextlib.contextmanager
def workplace(environment: Environment) -> Iterator[Path]:
    """Directory for stand-ins, sources and wheels, cleared of those of killed processes."""
    place = environment.home / "setuptools" / "work"
    Store(environment.home / "store").sweep(place, "*")
    with files.staging(place) as directory:
        yield directory


def take_choices(words: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Separate our options from pip's.

    >>> take_choices(["install", ".", "--torch", "2.11", "--cuda=13.0"])
    ({'torch': '2.11', 'cuda': '13.0'}, ('install', '.'))

    Raises:
        UsageError: one has no value.
    """
    chosen: dict[str, str] = {}
    rest: list[str] = []
    todo = list(words)
    while todo:
        word = todo.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name not in _CHOICES:
            rest.append(word)
        elif equals or todo:
            chosen[name] = value if equals else todo.pop(0)
        else:
            raise UsageError(f"{word} has no value", hint="write it like --torch 2.11")
    return chosen, tuple(rest)


def read_request(words: Sequence[str], variables: Mapping[str, str]) -> PipRequest:
    """Let pip's parser say which words of a command line are options.

    Raises:
        UsageError: there is no pip, or it does not understand the words.
    """
    command, rest = words[0], list(words[1:])
    argv = (sys.executable, "-c", _PARSE, command, *rest)
    done = run(Command(argv=argv, env=variables))
    if done.returncode != 0:
        raise UsageError(
            (done.stderr or done.stdout).strip() or "pip refuses these arguments",
            hint="`kernforge pip install --help` shows pip's options; pip must be installed here: "
            "`python -m ensurepip`",
        )
    parsed = json.loads(done.stdout)
    taken = {*parsed["places"]["words"]}
    for text, at in zip(parsed["editables"], parsed["places"]["editables"], strict=True):
        # "-e .", or one word: "-e.", "--editable=."
        joined = [n for n, word in enumerate(rest) if word in {f"-e{text}", f"--editable={text}"}]
        taken |= {at - 1, at} if at >= 0 else set(joined)
    return PipRequest(
        command=command,
        options=tuple(word for at, word in enumerate(rest) if at not in taken),
        words=tuple(parsed["words"]),
        editables=tuple(parsed["editables"]),
    )


class ProjectBuilder:
    """Builds projects for one target.

    Args:
        place: a directory that this builder owns.
        packages: directory of what projects need to be built; by default in ``place``.
        verbose: whether to print what pip and setup.py print.

    Attributes:
        compiled: actions that were run.
        actions: actions that were needed.
    """

    def __init__(
        self,
        wanted: TorchTarget,
        environment: Environment,
        console: Console,
        place: Path,
        *,
        packages: Path | None = None,
        verbose: bool = False,
    ) -> None:
        self._target, self._environment, self._console = wanted, environment, console
        self._place, self._verbose = place, verbose
        self.compiled = self.actions = 0
        self._packages = packages or place / "packages"
        self._package: Path | None = None

    def variables(self, project: Path) -> dict[str, str]:
        """The variables of a process that builds a project, with all that it needs installed.

        Raises:
            ToolchainError: something that it needs cannot be installed.
            UsageError: it is not a project.
        """
        packages = self._packages
        files.make_dir(packages)
        needed = requirements.of_project(project)
        for asked in requirements.other_torch(project, self._target.release):
            self._console.note(
                f"note: the project asks for {asked}, and is built for torch {self._target.torch}: "
                "--torch names another release"
            )
        requirements.install_missing(needed, packages, self._environment.variables)
        if self._package is None:
            self._package = stand_in.write(
                self._place / "torch", self._target, self._environment, self._console
            )
        setup = project / "setup.py"
        return stand_in.variables(
            self._package,
            self._target,
            self._environment,
            self._console,
            places=[packages],
            setup=setup.read_text(errors="replace") if setup.is_file() else "",
        )

    def _numbered(self, kind: str) -> Path:
        """A new path in the place."""
        return self._place / kind / str(len(list(self._place.glob(f"{kind}/*"))))

    @contextlib.contextmanager
    def followed(self, project: str) -> Iterator[Path]:
        """Say what is built, and what the build appends to a file; gives the file."""
        why = f" ({self._target.why})" if self._target.why else ""
        self._console.note(f"building {project} for {self._target}{why}")
        path = self._numbered("progress")
        with followed(path, self._console):
            yield path

    def wheel(self, project: Path) -> Path:
        """Build the project in a directory to a wheel.

        Raises:
            BuildError: it could not be built; the message is what pip wrote.
            ToolchainError: something that it needs cannot be installed.
            UsageError: it is not a project.
        """
        out = self._numbered("wheels")
        argv = (
            *(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"),
            *("--use-pep517", "--disable-pip-version-check", "--no-input", "--verbose"),
            *("--wheel-dir", str(out), str(project)),
        )
        variables = self.variables(project)
        with self.followed(project.name) as progress:
            added = {"KERNFORGE_PROGRESS": str(progress)}
            done = run(Command(argv=argv, env={**variables, **added}))
        if self._verbose and done.returncode == 0:
            self._console.note((done.stdout + done.stderr).rstrip())
        made = list(out.glob("*.whl"))
        if done.returncode != 0 or not made:
            shown = progress.read_text(encoding="utf-8", errors="replace").splitlines()
            text = failure_text(done.stdout + done.stderr, shown)
            raise BuildError(f"{project.name} cannot be built for {self._target}\n{text}")
        for match in _COUNTS.finditer(done.stdout + done.stderr):
            self.compiled += int(match[1])
            self.actions += int(match[2])
        return made[0]

    def source(self, word: str) -> Path | None:
        """The directory of what a word of pip's command line names, if pip would build it.

        A name is built if the index has no wheel of its newest release for this Python.
        """
        path = local_path(word)
        if path and path.is_dir():
            return path
        unpacked = self._numbered("sources")
        if path:
            return requirements.unpack(path.name, path.read_bytes(), unpacked)
        try:
            named = Requirement(word)
        except InvalidRequirement:
            return None
        own = frozenset(str(tag) for tag in tags.sys_tags())
        try:
            index = Index.from_environment(self._environment.variables)
            if named.url or requirements.has_wheel(named, index, own):
                return None
            return requirements.fetch_sdist(named, index, unpacked)
        except (NetworkError, ToolchainError):
            return None  # pip says better what is wrong with a name


def local_path(word: str) -> Path | None:
    """The project or source distribution that a word of pip's command line names by its path.

    As for pip, a bare word is a requirement, also where there is a directory of that name.
    """
    path = Path(word if Path(word).exists() else word.partition("[")[0]).absolute()
    if path.is_dir() and (os.sep in word or word.startswith(".")):
        return path
    return path if path.is_file() and path.name.endswith(requirements.SDISTS) else None


def failure_text(output: str, shown: Iterable[str]) -> str:
    """What the user has not seen yet of a failed pip.

    What setuptools copied before the step that failed, and what pip says of its subprocess, are not
    of interest.

    Args:
        output: all that pip wrote.
        shown: the lines that the user has seen while it ran.
    """
    _, step, rest = output.rpartition("running build_ext\n")
    text = (rest if step else output).partition(_SUBPROCESS)[0]
    known = {line.strip() for line in shown}
    lines = [line for line in text.splitlines() if line.strip() not in known]
    return textwrap.dedent("\n".join(lines)).strip() or output.strip()


class _Run:
    """One run of pip, in its two steps."""

    def __init__(
        self, request: PipRequest, builder: ProjectBuilder, variables: Mapping[str, str]
    ) -> None:
        self._request, self._builder, self._variables = request, builder, variables

    def code(self) -> int:
        """The exit code."""
        request = self._request
        for path in request.editables:
            if code := self._editable(path):
                return code
        built: list[str] = []
        local: list[str] = []
        for word in request.words:
            project = self._builder.source(word)
            if project is None:
                built.append(word)
                continue
            wheel = self._builder.wheel(project)
            extras = word[word.index("[") :] if word.endswith("]") else ""
            built.append(f"{wheel}{extras}")
            local += [str(wheel)] if local_path(word) else []
        if not built and request.editables:
            return 0
        # pip leaves an installed version alone, but not if it is named as a directory.
        if request.command == "install" and local and "--no-deps" not in request.options:
            again = ("install", *request.options, "--no-deps", "--force-reinstall", *local)
            targeted = any(word.startswith(("-t", "--target")) for word in request.options)
            if not targeted and (code := _pip(again, self._variables)):
                return code
            if not targeted and len(local) == len(built):
                built.append("--quiet")  # it would say that all is installed already
        return _pip((request.command, *request.options, *built), self._variables)

    def _editable(self, path: str) -> int:
        project = Path(path.partition("[")[0]).absolute()
        options = (*self._request.options, "--no-deps", "--no-build-isolation", "--use-pep517")
        argv = ("install", *options, "-e", path)
        variables = self._builder.variables(project)
        with self._builder.followed(project.name) as progress:
            if code := _pip(argv, {**variables, "KERNFORGE_PROGRESS": str(progress)}):
                return code
        # What it needs at run time comes from pip as usual: it is named by its name now.
        argv = (sys.executable, "-c", _EDITABLE, str(project.resolve()))
        done = run(Command(argv=argv, env=self._variables))
        name = done.stdout.strip()
        if not name or "--no-deps" in self._request.options:
            return 0
        extras = path[path.index("[") :] if path.endswith("]") else ""
        return _pip(("install", *self._request.options, f"{name}{extras}"), self._variables)


_EDITABLE = """
import json, os, sys
from importlib.metadata import distributions
from urllib.parse import unquote, urlsplit
for each in distributions():
    url = urlsplit(json.loads(each.read_text("direct_url.json") or "{}").get("url", ""))
    if url.scheme == "file" and os.path.realpath(unquote(url.path)) == sys.argv[1]:
        print(each.metadata["Name"])
        break
"""


def _pip(words: Sequence[str], variables: Mapping[str, str]) -> int:
    return attached(Command(argv=(sys.executable, "-m", "pip", *words), env=variables))
