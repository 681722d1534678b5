# SPDX-License-Identifier: Apache-2.0
"""Compile the extensions of a setup.py: read sources, find the toolchain, plan, run.

A lock in kernforge's own directory names the toolchain's wheels, so that a warm store needs no
network. The fallback without an index is an installed torch with its headers.
"""

from __future__ import annotations

import posixpath
import re
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from kernforge.artifact.gpu import Arch
from kernforge.artifact.version import Version2
from kernforge.binary import abi_floor, elf
from kernforge.builder.workspace import this_cpu
from kernforge.errors import BuildError, KernforgeError, ManifestError
from kernforge.extension import flags, machine, make
from kernforge.extension.loading import undefined_error
from kernforge.extension.plan import (
    Extension,
    ExtensionMachine,
    ExtensionNeeds,
)
from kernforge.extension.request import Tree as Files, check_types, read_extension
from kernforge.project import git
from kernforge.setuptools import python_headers
from kernforge.setuptools.target import TorchTarget, find_target
from kernforge.system.console import Console
from kernforge.system.environment import Environment
from kernforge.system.process import Command, run
from kernforge.system.progress import Progress
from kernforge.toolchain import cuda_arch, front_end, installed
from kernforge.toolchain.local_parts import LocalParts
from kernforge.toolchain.lockfile import Lock, Tree
from kernforge.toolchain.releases import USUAL

_ABOVE = 2
_MISSING = re.compile(r"fatal error: ([^\s:]+): No such file")
_STANDARD = re.compile(r"__cplusplus < 20(\d\d)\d\dL")


def build_extensions(
    requests: Sequence[Extension], environment: Environment, console: Console
) -> dict[str, Path]:
    """Compile extensions for the target of the environment.

    Returns:
        Path of the shared object in the store, by the extension's name.
    """
    if not requests:
        return {}
    target = find_target(environment)
    # Behind a stub, the process that wrote it has said the reason.
    why = "" if environment.kernforge_stub else target.why
    console.note(f"building for {target} ({why})" if why else f"building for {target}")
    installed = _installed_directories(environment)
    trees = [project_tree(request, installed) for request in requests]
    flagged = [with_variables(request, environment.variables) for request in requests]
    extensions = [read_extension(*each) for each in zip(flagged, trees, strict=True)]
    needs = ExtensionNeeds.of(extensions)
    if needs.cuda and target.cuda is None:
        cuda = _toolkit_version(target)
        console.note(
            "note: this torch is a build for the CPU, and setup.py has CUDA sources: their device "
            "code runs on no GPU, and the module cannot be imported if it calls torch's CUDA "
            "functions. To build for a torch with CUDA, name it: "
            f"KERNFORGE_TORCH={target.torch} KERNFORGE_CUDA={cuda} (`kernforge pip` has --torch "
            "and --cuda)"
        )
    restore = trees[0].restore
    for extension in extensions:
        check_types(extension, restore)
    toolchain = _find_toolchain(target, needs, environment, console)
    try:
        built, outcome = make.compile_extensions(
            extensions, toolchain, console, environment=environment, restore=restore
        )
    except BuildError as error:
        if missing := _MISSING.search(error.message):
            error.hint = f"{_missing_header(Path(requests[0].here), missing[1])}{error.hint}"
        raise
    count = outcome.ran + outcome.reused
    console.note(f"{outcome.ran} of {count} actions were run, the rest came from the store")
    for extension, path in zip(extensions, built, strict=True):
        texts = {restore(p): text for unit in extension.units for p, text in unit.texts.items()}
        library = elf.parse(path.read_bytes())
        undefined = undefined_error(
            extension.name, library, texts, "its list of sources", linked=extension.linked
        )
        if undefined:
            raise undefined
    return {each.name: path for each, path in zip(extensions, built, strict=True)}


def _missing_header(project: Path, header: str) -> str:
    """Why a project may lack a header; empty if nothing says it."""
    if empty := git.empty_submodules(project):
        return (
            f"git did not fetch {', '.join(empty)}, which may have {header}: "
            "`git submodule update --init`\n"
        )
    if (project / "PKG-INFO").is_file():
        return (
            f"this is a source distribution; if {header} is the project's own, its MANIFEST.in "
            f"must name it (`recursive-include csrc *{Path(header).suffix}`): build from the "
            "project's repository, or ask its author\n"
        )
    return ""


def project_tree(request: Extension, installed: tuple[str, ...]) -> Files:
    """Files of a project, which begin up to two directories above the setup.py."""
    here = base = request.here
    for path in (flags.absolute(each, here) for each in (*request.sources, *request.includes)):
        above = here
        for _ in range(_ABOVE):
            above = posixpath.dirname(above)
            if above.count("/") > 1:
                inside = flags.is_below(path, [above]) and not flags.is_below(path, [base])
                base = above if inside else base
    return Files({}, here, installed, base)


def with_variables(request: Extension, variables: Mapping[str, str]) -> Extension:
    """An extension with the flags of ``CFLAGS``, ``LDFLAGS`` and the like."""

    def words(*names: str) -> tuple[str, ...]:
        return flags.words([variables.get(name, "") for name in names])

    return replace(
        request,
        cflags=(*words("CPPFLAGS", "CFLAGS", "CXXFLAGS"), *request.cflags),
        cuda_cflags=(*request.cuda_cflags, *words("NVCC_APPEND_FLAGS")),
        ldflags=(*words("LDFLAGS"), *request.ldflags),
    )


# -- toolchain --


def _installed_directories(environment: Environment) -> tuple[str, ...]:
    """Directories of the toolchain, which a setup.py may name."""
    store = environment.store / "toolchains"
    variables = (
        *(environment.cuda_home, environment.cuda_path, environment.kernforge_stub),
        environment.kernforge_cuda_home,
    )
    headers = (sysconfig.get_path("include"), sysconfig.get_path("platinclude"))
    return tuple(dict.fromkeys(filter(None, (str(store), *variables, *headers))))


def _find_toolchain(
    target: TorchTarget, needs: ExtensionNeeds, environment: Environment, progress: Progress
) -> ExtensionMachine:
    """Find the toolchain of extensions; missing parts are fetched."""
    compiler = machine.find_compiler(environment)
    cuda = _toolkit_version(target) if needs.cuda else None
    lock, trees = _provide(target, needs, cuda, environment, progress)
    archs = find_archs(cuda, environment, progress) if cuda and needs.device else ()
    if cuda:
        front_end.require(lock.toolkit(cuda), archs)
    return ExtensionMachine(
        torch=target.torch,
        torch_cuda=target.cuda,
        cpu=this_cpu(),
        lock=lock,
        cuda=cuda,
        archs=tuple(word for arch in archs for word in arch.gencode()),
        only=machine.named_archs(environment) if cuda else (),
        portable=True,
        sonames=abi_floor.torch_sonames("cuda" if target.cuda else "cpu"),
        standard=_standard(trees.get(Tree.of("torch", target.torch).name, "")),
        static_libstdcxx=compiler.static_libstdcxx,
        refusal=compiler.refusal,
        library_path=compiler.library_path,
        paths=trees,
        trees=tuple(_named_trees(trees, environment)),
    )


def _toolkit_version(target: TorchTarget) -> Version2:
    """CUDA version of the toolkit for a target; the usual one for a CPU build of torch."""
    return target.cuda or USUAL


def toolchain_directory(
    kind: Literal["torch", "cuda"],
    target: TorchTarget,
    environment: Environment,
    progress: Progress,
) -> Path:
    """Directory of a target's torch or toolkit, for a setup.py that looks into it."""
    needs = ExtensionNeeds(torch=kind == "torch", cuda=kind == "cuda")
    toolchain = _find_toolchain(target, needs, environment, progress)
    version = target.torch if kind == "torch" else _toolkit_version(target)
    return Path(toolchain.paths[Tree.of(kind, version).name])


def _provide(
    target: TorchTarget,
    needs: ExtensionNeeds,
    cuda: Version2 | None,
    environment: Environment,
    progress: Progress,
) -> tuple[Lock, dict[str, str]]:
    """Lock and paths of the index's wheels; the installed torch and toolkit are the fallback."""
    python = {}
    if needs.python:
        python["python"] = python_headers.find(target.python, environment.variables)

    def provide(parts: LocalParts) -> tuple[Lock, dict[str, str]]:
        parts = replace(parts, trees={**parts.trees, **python})
        if note := parts.unused_note([str(cuda)] if cuda else []):
            progress.note(f"note: {note}, which comes from wheels")
        return machine.provide(environment, needs, parts, progress, torch=target.torch, cuda=cuda)

    def installed_parts(why: KernforgeError) -> LocalParts:
        if not target.installed:
            raise why
        toolkit = named.cuda.path if named.cuda else installed.find_cuda(environment.variables)
        torch_home, cuda_home = target.installed if needs.torch else None, toolkit if cuda else None
        return LocalParts.installed(environment, torch_home=torch_home, cuda_home=cuda_home)

    named = LocalParts.named(environment)
    return named.or_installed(provide, installed_parts)


def _standard(torch: str) -> int:
    """Minimum C++ standard of a torch's headers."""
    header = Path(torch, "include/ATen/ATen.h")
    text = header.read_text(errors="replace") if torch and header.is_file() else ""
    return max((int(number) for number in _STANDARD.findall(text)), default=17)


def find_archs(cuda: Version2, environment: Environment, progress: Progress) -> tuple[Arch, ...]:
    """Architectures of ``TORCH_CUDA_ARCH_LIST``, else of this machine's GPUs, else the defaults."""
    from_wheels = cuda in front_end.TOOLKITS and not environment.kernforge_cuda_home
    nvcc = Version2.parse(front_end.FRONT_END_OF) if from_wheels else cuda
    if named := machine.named_archs(environment) or _visible_gpus():
        served = {each: cuda_arch.compiled_as(each, nvcc) for each in named}
        archs = cuda_arch.merged(filter(None, served.values()))
        lacking = ", ".join(str(each) for each, compiled in served.items() if compiled != each)
        if archs and lacking:
            progress.note(
                f"note: CUDA {cuda} does not compile for {lacking}: the code is for "
                f"{', '.join(map(str, archs))}"
            )
        return archs or named  # the refusal of all names them
    archs = cuda_arch.defaults(cuda)
    if from_wheels:
        archs = front_end.supported(archs, cuda)
    progress.note(
        f"no GPU on this machine: compiling for {', '.join(map(str, archs))} "
        "(TORCH_CUDA_ARCH_LIST, as 9.0, names fewer)"
    )
    return archs


def _visible_gpus() -> tuple[Arch, ...]:
    """Compute capabilities of this machine's GPUs, by nvidia-smi."""
    argv = ("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")
    try:
        done = run(Command(argv=argv, timeout=20))
        lines = done.stdout.split() if done.returncode == 0 else []
        return tuple(sorted({Arch.parse(line) for line in lines}))
    except (FileNotFoundError, ManifestError):
        return ()


def _named_trees(trees: dict[str, str], environment: Environment) -> Iterable[tuple[str, str]]:
    """Directories that a setup.py may name, with the name of their tree."""
    for name, path in trees.items():
        if name != "cxx":
            yield path, f"%{{{name}}}"
    torch = next((f"%{{{name}}}" for name in trees if name.startswith("torch-")), "")
    if torch and environment.kernforge_stub:
        yield environment.kernforge_stub, torch
    for name in ("include", "platinclude"):
        if "python" in trees:
            yield sysconfig.get_path(name), Tree("python").at()
