# SPDX-License-Identifier: Apache-2.0
"""Compile the extensions of a setup.py: read sources, plan, run what the store lacks."""

from __future__ import annotations

import functools
import logging
import posixpath
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.binary import elf
from kernforge.builder.execute import executor
from kernforge.builder.execute.action import ActionContext
from kernforge.builder.execute.results import STORE_KIND
from kernforge.errors import BuildError, UsageError
from kernforge.extension import flags, make, torch_headers
from kernforge.extension import machine as jit_machine
from kernforge.extension.undefined import undefined_error
from kernforge.project import git
from kernforge.setuptools import machine
from kernforge.setuptools.machine import ExtensionNeeds
from kernforge.setuptools.plan import (
    ExtensionSources,
    included_first,
    linked_objects,
    plan_extensions,
    raised,
    read_path,
)
from kernforge.setuptools.sources import NAME, ProjectFiles, check_suffixes
from kernforge.setuptools.target import find_target
from kernforge.source import compiler_advice, cpp_text, extension_source
from kernforge.store import eviction
from kernforge.system import digest, files
from kernforge.system.process import run
from kernforge.toolchain.lockfile import Tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernforge.builder.execute.action import Failure
    from kernforge.builder.plan.graph import Action
    from kernforge.setuptools.machine import ExtensionToolchain
    from kernforge.setuptools.plan import ExtensionPlan, ExtensionRequest
    from kernforge.setuptools.sources import ExtensionUnit
    from kernforge.store.local import Store
    from kernforge.system.console import Console
    from kernforge.system.environment import Environment

_log = logging.getLogger("kernforge")
_MISSING = re.compile(r"fatal error: ([^\s:]+): No such file")
# Headers that have pybind11's, which is not of the limited API.
_PYBIND11 = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*[<\"]"
    r"((?:pybind11/|torch/(?:extension|python|torch|csrc/utils/pybind)\.h)[^>\"\n]*)",
    re.MULTILINE,
)
# Not in the definition of a macro, also where that goes on in further lines.
_NAMESPACE = re.compile(
    r"(?<!\\\n)^[ \t]*(?:STABLE_)?TORCH_LIBRARY"
    r"(?:_EXPAND(?=\(TORCH_EXTENSION_NAME\b))?\s*\(\s*(\w+)\s*,",
    re.MULTILINE,
)


def build_extensions(
    requests: Sequence[ExtensionRequest], here: Path, environment: Environment, console: Console
) -> dict[str, Path]:
    """Compile extensions for the target of the environment.

    Args:
        here: directory of setup.py.

    Returns:
        The shared object in the store of each extension, by its name.

    Raises:
        BuildError: a compiler failed, or a function that is called is not defined.
        NetworkError: a part of the toolchain is lacking, and no index can be reached.
        ToolchainError: a compiler, a toolkit or Python's headers are missing.
        UsageError: a source is not there or in a language that is not compiled here.
    """
    if not requests:
        return {}
    wanted = find_target(environment)
    # Behind a stand-in, whoever started this has said it.
    why = "" if environment.kernforge_stand_in else wanted.why
    console.note(f"building for {wanted} ({why})" if why else f"building for {wanted}")
    installed = machine.installed_directories(environment)
    read = [read_sources(request, here, installed) for request in requests]
    needs = ExtensionNeeds.of(read)
    if needs.cuda and wanted.cuda is None:
        cuda = machine.toolkit_version(wanted)
        console.note(
            f"note: this torch is a build for the CPU, and setup.py has CUDA sources: CUDA {cuda} "
            "compiles them, but they run on no GPU with this torch, and an extension that calls "
            "torch's CUDA functions cannot be imported. To build for a torch with CUDA, name it: "
            f"KERNFORGE_TORCH={wanted.torch} KERNFORGE_CUDA={cuda} (`kernforge pip` has --torch "
            "and --cuda)"
        )
    for extension in read:
        _refuse_mistakes(extension)
    toolchain = machine.find_toolchain(wanted, needs, environment, console)
    _note_standard(read, toolchain, console)
    context = ActionContext(
        store=toolchain.store,
        trees=toolchain.trees,
        runner=run,
        jobs=jit_machine.jobs(environment),
        compiles=environment.may_compile,
    )
    planned = _run(read, toolchain, context, environment, console)
    restore = functools.partial(_with_user_paths, project=read[0].files)
    make.show_logs(planned.plan, toolchain.store, console, restore)
    made = {each.request.name: _linked(each, planned, toolchain.store) for each in read}
    if toolchain.store.made:
        limit = eviction.limit(environment)
        eviction.keep(toolchain.store, limit)
    return made


def _refuse_mistakes(extension: ExtensionSources) -> None:
    """Refuse what surely cannot be compiled or imported, before a compiler starts.

    Raises:
        UsageError: a source of the limited API includes pybind11, or two define one op namespace.
    """
    request = extension.request
    limited = request.limited_api and request.kind != "plain"
    seen: dict[str, str] = {}
    for unit in extension.units:
        text = unit.texts[unit.path]
        if limited and (found := next(cpp_text.unconditional(_PYBIND11, text), None)):
            raise UsageError(
                f"{request.name} has py_limited_api=True, and {unit.title} includes {found[1]}, "
                "whose pybind11 is not of the limited API",
                hint="register its functions with TORCH_LIBRARY and include torch/library.h "
                "and ATen/ATen.h, or leave py_limited_api out",
            )
        for match in cpp_text.unconditional(_NAMESPACE, text):
            line = cpp_text.line_of(text, match.start(1))
            place = f"{_with_user_paths(unit.path, extension.files)}:{line}"
            if (first := seen.setdefault(match[1], place)) != place:
                raise UsageError(
                    f"{request.name} cannot be imported: {first} and {place} both have "
                    f"TORCH_LIBRARY({match[1]}, ...), and a process can define a namespace once",
                    hint="write TORCH_LIBRARY_FRAGMENT in all but one of them",
                )


def _note_standard(
    read: Sequence[ExtensionSources], toolchain: ExtensionToolchain, console: Console
) -> None:
    """Say that torch's headers need a later C++ standard than a setup.py names."""
    least = toolchain.machine.standard
    for extension in read:
        given = (*extension.request.cxx_args, *extension.request.nvcc_args)
        older = [word for word, new in zip(given, raised(given, least), strict=True) if word != new]
        if older and extension.reads_torch:
            console.note(
                f"note: {extension.request.name} has {older[0]}, and torch "
                f"{toolchain.machine.target.torch} needs C++{least}: it is compiled as C++{least}"
            )


def _run(
    read: Sequence[ExtensionSources],
    toolchain: ExtensionToolchain,
    context: ActionContext,
    environment: Environment,
    console: Console,
) -> ExtensionPlan:
    """Compile extensions: with torch's headers cut to what each source uses, else as they are.

    Returns:
        The plan that was carried out.
    """
    store, ran = context.store, 0
    slim = environment.kernforge_jit_slim != "0"

    def plan(whole: frozenset[str]) -> ExtensionPlan:
        sources = _cut_headers(read, toolchain, whole) if slim else read
        return plan_extensions(sources, toolchain.machine)

    actions = plan(frozenset()).plan.actions
    whole = frozenset(each.title for each in actions if store.has(STORE_KIND, _mark(each)))
    while True:
        planned = plan(whole)
        outcome = executor.run_actions(planned.plan, context, console)
        failures, ran = outcome.failures, ran + outcome.ran
        short = [f for f in failures if _fell_short(f, whole, read, toolchain)]
        if not short or len(short) < len(failures):
            _raise_failures(failures, read)
            count = max(ran, len(planned.plan.actions))
            console.note(f"{ran} of {count} actions were run, the rest came from the store")
            return planned
        for failure in short:
            _log.info("%s is compiled with torch's headers as they are", failure.action.title)
            make.note_whole(store, _mark(failure.action))
        whole |= {failure.action.title for failure in short}


def _cut_headers(
    read: Sequence[ExtensionSources], toolchain: ExtensionToolchain, whole: frozenset[str]
) -> list[ExtensionSources]:
    """Extensions with torch's headers cut, but for sources that are known to need all of them."""
    torch = toolchain.trees.get(Tree.of("torch", toolchain.machine.target.torch).name)
    if torch is None:
        return list(read)
    reader = make.header_reader(Path(torch) / "include", {})

    def unit(given: ExtensionUnit) -> ExtensionUnit:
        return given if given.title in whole else torch_headers.cut_unit(given, reader) or given

    return [replace(each, units=tuple(map(unit, each.units))) for each in read]


def _fell_short(
    failure: Failure,
    whole: frozenset[str],
    read: Sequence[ExtensionSources],
    toolchain: ExtensionToolchain,
) -> bool:
    """Whether a source may compile with the whole of torch's headers, and has not been tried so."""
    title = failure.action.title
    cut = any(file.path.startswith(torch_headers.DIRECTORY) for file in failure.action.inputs)
    if not cut or title in whole:
        return False
    tree = Tree.of("torch", toolchain.machine.target.torch).name
    units = [unit for each in read for unit in each.units if unit.title == title]
    texts = {path: text for unit in units for path, text in unit.texts.items()}
    return torch_headers.fell_short(failure.output, texts, tree, toolchain.trees[tree])


def _mark(action: Action) -> str:
    """Key of the note that a source does not compile with cut headers."""
    return digest.key("setuptools-whole", action=action.key)


def read_sources(
    request: ExtensionRequest, here: Path, installed: tuple[str, ...] = ()
) -> ExtensionSources:
    """Read the files that an extension is compiled from.

    Args:
        here: directory of setup.py.
        installed: directories whose content is part of the toolchain.

    Raises:
        BuildError: a macro of a header that is not included registers operators.
        UsageError: a source is not there or in a language that is not compiled here.
    """
    check_suffixes(request.name, request.sources)
    root = str(here.absolute())
    project = ProjectFiles.around(root, (*request.sources, *request.includes), installed)
    first = included_first(request, project)
    directories = read_path(request, project)
    searched = tuple(path for path in directories if not project.is_installed(f"/{path}"))
    paths = (
        flags.absolute(project.virtual(source), project.virtual_here).lstrip("/")
        for source in request.sources
    )
    units = tuple(project.unit(path, searched, first) for path in paths)
    for unit in units:
        where, line, macro = extension_source.missing_macro(unit.texts)
        if macro and not unit.closure.opaque:
            raise BuildError(
                f"{_with_user_paths(where, project)}:{line}: error: {macro} is not defined",
                hint=extension_source.REGISTRATION_HINT,
            )
    libraries = (*(f"-L{d}" for d in request.library_dirs), *(f"-l{n}" for n in request.libraries))
    words = flags.linker_flags((*request.link_args, *libraries), root)
    named = (*linked_objects(request, project), *flags.linked_files(words))
    linked = tuple((path, files.sha256_file(Path(path))) for path in named if Path(path).is_file())
    return ExtensionSources(request=request, units=units, files=project, linked=linked)


def _linked(extension: ExtensionSources, planned: ExtensionPlan, store: Store) -> Path:
    """An extension's shared object, after a look for functions that nothing defines."""
    link = planned.links[extension.request.name]
    path = store.path(STORE_KIND, link.key) / link.outputs[0]
    texts = {
        _with_user_paths(name, extension.files): text
        for unit in extension.units
        for name, text in unit.texts.items()
    }
    library = elf.parse(path.read_bytes())
    if error := undefined_error(extension.request.name, library, texts, "its list of sources"):
        raise error
    return path


# -- what the compilers wrote --------------------------------------------------------------


def _raise_failures(failures: Sequence[Failure], read: Sequence[ExtensionSources]) -> None:
    """Raise an error that says what the compilers wrote, if one failed."""
    if not failures:
        return
    project = read[0].files
    titles = sorted(failure.action.title for failure in failures)
    texts = [_with_user_paths(compiler_advice.shortened(f.output), project) for f in failures]
    repeat = "\n".join(failure.repeat for failure in failures)
    what = ", ".join(map(make.what_failed, titles))
    advice = compiler_advice.advice("\n".join(texts))
    missing = _MISSING.search("\n".join(texts))
    if missing and (empty := git.empty_submodules(Path(project.here))):
        advice = (
            f"git did not fetch {', '.join(empty)}, which may have {missing[1]}: "
            "`git submodule update --init`"
        )
    hint = "\n".join((*([advice] if advice else []), "repeat it by hand:", repeat))
    raise BuildError("\n".join((what, *texts)), hint=hint)


def _with_user_paths(text: str, project: ProjectFiles) -> str:
    """What a compiler wrote, with paths as the setup.py writes them."""
    above = posixpath.relpath(project.base, project.here)
    start = "" if above == "." else f"{above}/"
    return re.sub(rf"(?<![\w/.-]){NAME}/", start, text)
