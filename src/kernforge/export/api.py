# SPDX-License-Identifier: Apache-2.0
"""Export a project to other build tools, installers and editors.

The tools are CMake, pip, Nix (kernel-builder) and editors.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import tomlkit

from kernforge.builder import action as execute_action, api as build
from kernforge.builder.api import BuildRequest
from kernforge.builder.graph import Action, Plan
from kernforge.builder.workspace import Workspace, tree_paths
from kernforge.errors import UsageError
from kernforge.export import cmake
from kernforge.manifest import sources as sources_named
from kernforge.manifest.document import Manifest
from kernforge.manifest.model import Torch, TorchNoarch, TvmFfi
from kernforge.project import units
from kernforge.project.api import MANIFEST, Project
from kernforge.project.targets import Target
from kernforge.system import own_files, untrusted_tree

_WRITTEN = "Written by `kernforge export`"
_LARGEST = 16 << 20
KINDS = ("cmake", "python", "nix", "editor")
COMPILE_COMMANDS = "compile_commands.json"
_EDITOR_FLAGS = ("-D", "-U", "-I", "-std=", "-include", "-isystem", "-iquote")
_PAIRS = ("-isystem", "-iquote", "-include", "-I", "-D", "-U")
# Distributions of names in python-depends, if they have another name.
_DISTRIBUTIONS = {"tvm-ffi": "apache-tvm-ffi", "onednn": "onednn-devel"}
_SETUP = '''\
"""Written by `kernforge export`: builds the project for the torch that is installed."""

from kernforge.setuptools import kernel_project
from setuptools import setup

setup(**kernel_project(__file__))
'''
_FLAKE = """\
# Written by `kernforge export`: `nix run .#build-and-copy` builds it with kernel-builder.
{
  description = "DESCRIPTION";

  inputs.kernel-builder.url = "github:huggingface/kernels";

  outputs =
    { self, kernel-builder }:
    kernel-builder.lib.genKernelFlakeOutputs {
      inherit self;
      path = ./.;
    };
}
"""


def texts(project: Project, kinds: Sequence[str]) -> dict[str, str]:
    """Text of each generated file by its path, except ``compile_commands.json``.

    Args:
        kinds: some of ``KINDS``.
    """
    manifest, sources = project.manifest, project.sources
    noarch = isinstance(manifest.framework, TorchNoarch)
    headers = {} if noarch else dict(sources.bundled_headers)
    if units.REGISTRATION in sources.default_headers and not noarch:
        headers |= {units.REGISTRATION: sources.default_headers[units.REGISTRATION]}
    generated: dict[str, str] = {}
    if "cmake" in kinds and not noarch:
        generated |= {"CMakeLists.txt": cmake.text(sources), **headers}
    if "python" in kinds:
        generated |= {"pyproject.toml": pyproject(manifest), "setup.py": _SETUP}
        shipped = sorted({*project.files} - {*generated, "MANIFEST.in", COMPILE_COMMANDS})
        lines = (f"include {path}\n" for path in shipped)
        generated["MANIFEST.in"] = "".join((f"# {_WRITTEN}.\n", *lines))
    if "nix" in kinds:
        flake = _FLAKE.replace("DESCRIPTION", f"Kernel {manifest.general.name}")
        generated |= {"flake.nix": flake, **headers}
        explicit = _manifest_without_patterns(project, headers)
        generated |= {MANIFEST: explicit} if explicit != project.manifest_text else {}
    return generated


def pyproject(manifest: Manifest) -> str:
    """Text of pyproject.toml."""
    general = manifest.general
    folder = units.package_dir(manifest).partition("/")[0]
    common, name = general.python_depends, general.python_name
    extras = {b: general.python_depends_for(b)[len(common) :] for b in general.backends}
    optional = {backend: _distributions(names) for backend, names in extras.items() if names}
    document = {
        "build-system": {
            "requires": ["setuptools>=77", "kernforge[build]"],
            "build-backend": "setuptools.build_meta",
        },
        "project": {
            "name": general.name,
            "version": f"{general.version}.0.0",
            "requires-python": ">=3.9",
            "dependencies": [_framework(manifest), *_distributions(common)],
            **({"optional-dependencies": optional} if optional else {}),
        },
        "tool": {
            "setuptools": {
                "package-dir": {"": folder},
                "include-package-data": False,
                "packages": {"find": {"where": [folder], "include": [name, f"{name}.*"]}},
                "package-data": {
                    "*": [f"**/*.{kind}" for kind in ("pyi", *manifest.framework.data_extensions)]
                },
            }
        },
    }
    return f"# {_WRITTEN}.\n{tomlkit.dumps(document)}"


def _framework(manifest: Manifest) -> str:
    """The requirement of a project's framework."""
    framework = manifest.framework
    if isinstance(framework, TvmFfi):
        return "apache-tvm-ffi>=0.1"
    if isinstance(framework, TorchNoarch):
        return "torch>=2.8"
    return f"torch>={framework.minver}" if framework.minver else "torch"


def _distributions(names: Iterable[str]) -> list[str]:
    return [_DISTRIBUTIONS.get(name, name) for name in names]


def _manifest_without_patterns(project: Project, headers: Mapping[str, str]) -> str:
    """Text of build.toml with explicit files in the place of patterns, and with these headers.

    kernel-builder copies only named files, and has no patterns.
    """
    manifest, framework = project.manifest, project.manifest.framework
    if isinstance(framework, TorchNoarch):
        return project.manifest_text
    named = {posixpath.normpath(path) for table in manifest.source_tables for path in table.src}
    missing = sorted({*headers} - named - {units.REGISTRATION})
    text = tomlkit.parse(project.manifest_text)
    binding = text.get("torch" if isinstance(framework, Torch) else "tvm-ffi", {})
    written = [(binding, framework.src)]
    written += [
        (text["kernel"][key], kernel.src)
        for key, kernel in manifest.kernels.items()
        if key in text.get("kernel", {})
    ]
    for table, src in written:
        if any(map(sources_named.is_pattern, table.get("src", []))):
            table["src"] = list(src)
    if missing:
        binding.setdefault("src", []).extend(missing)
    return tomlkit.dumps(text)


def write(
    project: Project, texts: Mapping[str, str], to: Path, home: Path, *, force: bool = False
) -> frozenset[str]:
    """Write the files of an export, with the project's own files if the directory is another one.

    No link is followed: a project may be untrusted.

    Args:
        home: ``KERNFORGE_HOME``.
        force: replace files of the user, too.

    Returns:
        The files that were not replaced: they differ, and are not as the last export wrote them.

    Raises:
        IntegrityError: a link is in the place of a file or of a directory on the way to it.
        StorageError: the disk is full or of another user.
    """
    top, contents = to.resolve(), {path: text.encode() for path, text in texts.items()}
    if top != project.root.resolve():
        contents = {path: real.read_bytes() for path, real in project.files.items()} | contents
    untrusted_tree.refuse_links(top, contents)
    user_files = set()
    for path, data in contents.items() if not force else ():
        with contextlib.suppress(FileNotFoundError):
            old = untrusted_tree.read_bytes(top, path, limit=_LARGEST, hard_links=True)
            if old != data and not own_files.is_replaceable(top / path, home):
                user_files.add(path)
    for path in contents.keys() - user_files:
        untrusted_tree.write(top, path, contents[path])
        own_files.remember(top / path, home)
    return frozenset(user_files)


def compile_commands(workspace: Workspace, targets: Sequence[Target], to: Path) -> dict[str, str]:
    """Text of ``compile_commands.json`` for one variant of each backend; headers are fetched.

    Raises:
        UsageError: the project has nothing to compile.
        ToolchainError: no index has a toolchain.
        NetworkError: a file of the toolchain is missing and no index can be reached.
    """
    chosen = {target.backend: target for target in targets if not target.variant.is_noarch}
    if not chosen:
        raise UsageError(
            "this project has nothing to compile", hint="run the command without --only editor"
        )
    ordered = sorted(chosen.values(), key=lambda target: target.backend)
    planned = build.plan_project(workspace, BuildRequest(targets=tuple(ordered)))
    names = {name for action in planned.plan.actions if action.source for name in action.trees}
    trees = tree_paths(workspace, {*names, "cxx"}, planned.lock)
    entries = _entries(planned.plan, trees, directory=str(to.resolve()))
    return {COMPILE_COMMANDS: json.dumps(entries, indent=1) + "\n"}


def _entries(plan: Plan, roots: Mapping[str, str], *, directory: str) -> list[dict[str, object]]:
    """One entry for each source, of the first variant that compiles it.

    Format: https://clang.llvm.org/docs/JSONCompilationDatabase.html. Editors use clang, which does
    not have all options of GCC and nvcc, so that only options with a meaning for the source are
    kept: definitions, search paths, the standard. Options for CUDA are those of clang.

    Args:
        roots: the real path of every root that a compile action names.
        directory: the project's root; paths of sources are relative to it.
    """
    entries_by_path: dict[str, dict[str, object]] = {}
    search = [f"-I{place}" for place in units.BUNDLED_DIRECTORIES]
    for action in plan.actions:
        if not (path := action.source):
            continue
        argv = [*_compiler(action, roots), *_editor_flags(action, roots), *search, "-c", path]
        entries_by_path.setdefault(path, {"directory": directory, "file": path, "arguments": argv})
    return [entries_by_path[path] for path in sorted(entries_by_path)]


def _compiler(action: Action, roots: Mapping[str, str]) -> list[str]:
    if action.kind != "cuda":
        return [roots["cxx"], "-x", "c++"]
    toolkit = execute_action.resolve(action.argv[0], roots).rpartition("/bin/")[0]
    # One is enough to edit with, and each costs a pass.
    newest = [arch.removesuffix("+PTX").replace(".", "") for arch in action.archs][-1:]
    arch = [f"--cuda-gpu-arch=sm_{number}" for number in newest]
    return ["clang++", "-x", "cuda", f"--cuda-path={toolkit}", *arch]


def _editor_flags(action: Action, roots: Mapping[str, str]) -> Iterator[str]:
    argv = iter(action.argv[1:-3])
    for argument in argv:
        if argument in _PAIRS:
            yield from (argument, execute_action.resolve(next(argv), roots))
        elif argument.startswith(_EDITOR_FLAGS):
            yield execute_action.resolve(argument, roots)
