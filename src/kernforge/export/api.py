# SPDX-License-Identifier: Apache-2.0
"""Write the files with which other tools build, install and edit a project.

The tools are CMake, setuptools, Nix (kernel-builder) and editors. The files correspond to those of
kernel-builder's ``create-pyproject``.
"""

from __future__ import annotations

import json
import posixpath
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import tomlkit

from kernforge._version import __version__
from kernforge.artifact.metadata import Provenance
from kernforge.artifact.variant import Backend, Variant
from kernforge.artifact.version import Version2
from kernforge.build import api as build
from kernforge.build import layout
from kernforge.build import trees as build_trees
from kernforge.build.api import BuildRequest
from kernforge.build.plan import planner
from kernforge.errors import UsageError
from kernforge.export import cmake, python
from kernforge.export import compile_commands as export_compile_commands
from kernforge.manifest import document, fields
from kernforge.manifest import sources as sources_named
from kernforge.manifest.model import Torch, TorchNoarch, TvmFfi
from kernforge.project import source_files, units
from kernforge.project.api import MANIFEST
from kernforge.system import digest, files
from kernforge.toolchain import header_libraries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kernforge.build.workspace import Workspace
    from kernforge.manifest.document import Manifest
    from kernforge.project.api import Project
    from kernforge.project.targets import Target
    from kernforge.project.units import Sources

_WRITTEN = "Written by `kernforge export`"
# What only a file of an export has; the last is a directory that compile_commands.json names.
_MARKS = (_WRITTEN, "Made by kernforge", '"kernforge-', *source_files.BUNDLED_DIRECTORIES)
_SHOWN = 5
KINDS = ("cmake", "python", "nix", "editor")
COMPILE_COMMANDS = "compile_commands.json"
_GENERATED = (
    "CMakeLists.txt",
    "MANIFEST.in",
    "cmake/_ops.py.in",
    "flake.nix",
    "pyproject.toml",
    "setup.py",
)
# Not in MANIFEST.in: a file with paths of a machine, and a lock that neither CMake nor pip reads.
_NOT_SHIPPED = (COMPILE_COMMANDS, "kernforge.lock")
_BACKENDS: tuple[fields.Backend, ...] = get_args(fields.Backend)
_FLAKE = """# Written by `kernforge export`: `nix run .#build-and-copy` builds it with kernel-builder.
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


def texts(project: Project, sources: Sources, kinds: Sequence[str]) -> dict[str, str]:
    """Text of each generated file by its path, except ``compile_commands.json``.

    Args:
        sources: files of the project, which determine the name of its op namespace.
        kinds: some of ``KINDS``.
    """
    headers = units.bundled_headers(project.manifest, sources)
    listed = _listing(project, headers)
    # The name does not change when the project gets these headers and names them.
    manifest = sources_named.expanded(document.parse(listed), project.files)
    own_files = [path for path in project.files if not _is_ours(project, path, sources)]
    own_digests = {path: sources.digests[path] for path in own_files if path in sources.digests}
    own_digests |= {path: digest.sha256(text) for path, text in headers.items()}
    unique = digest.key("export", manifest=manifest.content, files=own_digests)[:10]
    generated: dict[str, str] = {}
    noarch = isinstance(manifest.framework, TorchNoarch)
    if not noarch and {"cmake", "python", "nix"} & {*kinds}:
        generated |= headers
    if "cmake" in kinds or "python" in kinds:
        generated |= dict(_package(project, unique)) | dict(_metadata(project, unique))
        if units.REGISTRATION in sources.brought:
            generated[units.REGISTRATION] = sources.brought[units.REGISTRATION]
    if "cmake" in kinds and not noarch:
        generated["CMakeLists.txt"] = cmake.text(manifest, unique, _cutlass(manifest))
    if "python" in kinds:
        generated["pyproject.toml"] = python.pyproject(manifest)
        generated["setup.py"] = python.setup(manifest)
        shipped = sorted({*own_files, *generated} - {"setup.py", "pyproject.toml"})
        lines = (f"include {path}\n" for path in shipped)
        generated["MANIFEST.in"] = "".join((f"# {_WRITTEN}.\n", *lines))
    if "nix" in kinds:
        generated["flake.nix"] = _FLAKE.replace("DESCRIPTION", f"Kernel {manifest.general.name}")
        generated |= {MANIFEST: listed} if listed != project.manifest_text else {}
    return generated


def _listing(project: Project, headers: Iterable[str]) -> str:
    """Text of build.toml that names these headers, and the files that match its patterns.

    kernel-builder copies only named files, and has no patterns.
    """
    framework = project.manifest.framework
    if isinstance(framework, TorchNoarch):
        return project.manifest_text
    tables = project.manifest.source_tables
    named = {posixpath.normpath(path) for table in tables for path in table.src}
    missing = sorted({*headers} - named)
    name = "torch" if isinstance(framework, Torch) else "tvm-ffi"
    text = tomlkit.parse(project.manifest_text)
    written = [(text.get(name, {}), framework.src)]
    written += [
        (text["kernel"][key], kernel.src)
        for key, kernel in project.manifest.kernels.items()
        if key in text["kernel"]
    ]
    patterns = [
        (table, src)
        for table, src in written
        if any(map(sources_named.is_pattern, table.get("src", [])))
    ]
    if not missing and not patterns:
        return project.manifest_text
    for table, src in patterns:
        table["src"] = list(src)
    if missing:
        text[name].setdefault("src", []).extend(missing)
    return tomlkit.dumps(text)


def _is_ours(project: Project, path: str, sources: Sources) -> bool:
    """Whether an earlier export wrote a file of a project.

    Such a file is not a source; otherwise a second export of the project would differ.
    """
    if path in sources.bundled:
        return path in sources.brought
    written = {
        *_GENERATED,
        *_NOT_SHIPPED,
        f"torch-ext/{project.manifest.general.python_name}/_ops.py",
    }
    return path in written or path in {f"metadata-{b}.json" for b in _BACKENDS}


def _cutlass(manifest: Manifest) -> str:
    """The release of CUTLASS that a project depends on; empty without one."""
    name = units.cutlass(manifest)
    return header_libraries.RELEASES[name] if name else ""


def _package(project: Project, unique: str) -> Iterator[tuple[str, str]]:
    """The files of the package that a build generates."""
    manifest = project.manifest
    name = manifest.general.python_name
    if isinstance(manifest.framework, TorchNoarch):
        module = layout.ops_module(f"_{name}_cpu_{unique}", Variant.noarch("cpu"))
        yield f"torch-ext/{name}/_ops.py", module
        return
    # The text is the same for all compiled variants of a framework.
    kind = Variant.tvm_ffi if isinstance(manifest.framework, TvmFfi) else Variant.stable_abi
    variant = kind(Version2(0, 1), Backend("cpu"), cpu="x86_64", os="linux")
    yield "cmake/_ops.py.in", layout.ops_module("@OPS_NAME@", variant)


def _metadata(project: Project, unique: str) -> Iterator[tuple[str, str]]:
    """``metadata-<backend>.json`` for each backend of the project.

    You put the file of your backend next to the built extension as ``metadata.json``; the digest
    and the architectures of compiled code are added after the build.
    """
    manifest = project.manifest
    for backend in dict.fromkeys(manifest.general.backends):
        name = f"_{manifest.general.python_name}_{backend}_{unique}"
        noarch = isinstance(manifest.framework, TorchNoarch)
        archs = planner.noarch_archs(manifest, backend) if noarch else None
        metadata = layout.metadata(manifest, backend, name, archs)
        provenance = Provenance(builder_version=f"kernforge-{__version__}", kernel=project.git)
        yield (
            f"metadata-{backend}.json",
            replace(metadata, provenance=provenance).to_json().decode(),
        )


def kept(
    project: Project, texts: Mapping[str, str | None], to: Path, *, force: bool
) -> frozenset[str]:
    """Which of the files an export leaves as they are, as somebody else wrote them.

    A file of an earlier export is replaced.

    Args:
        texts: text of each generated file by its path; None where it is not known yet.
        force: whether to replace existing files with another content.

    Raises:
        UsageError: a copy of a source in ``to`` has another content and ``force`` is not set.
    """
    if force:
        return frozenset()
    sources = {path: real.read_bytes() for path, real in _copies(project, texts, to).items()}
    changed = [
        path
        for path, data in sources.items()
        if (to / path).exists() and (to / path).read_bytes() != data
    ]
    if changed:
        raise UsageError(
            f"{to} already has {', '.join(sorted(changed)[:_SHOWN])} with another content",
            hint="pass --force to replace them, or --to another directory",
        )
    return frozenset(path for path, text in texts.items() if is_foreign(to / path, text))


def _copies(project: Project, texts: Mapping[str, str | None], to: Path) -> dict[str, Path]:
    """The project's files that an export to another directory copies."""
    elsewhere = to.resolve() != project.root.resolve()
    return {p: real for p, real in project.files.items() if elsewhere and p not in texts}


def is_foreign(path: Path, text: str | None) -> bool:
    """Whether a file exists that is not this text, and that no export wrote."""
    if not path.exists():
        return False
    there = path.read_text(errors="replace")
    return there != text and not any(mark in there for mark in _MARKS)


def write(
    project: Project, texts: Mapping[str, str], to: Path, kept: Collection[str]
) -> tuple[Path, ...]:
    """Write the files, and copy the project's files too if the directory is another one.

    Args:
        texts: text of each generated file by its path.
        kept: those that are left as they are.

    Returns:
        The generated files that were written.

    Raises:
        StorageError: the disk is full or of another user.
    """
    new = {path: text.encode() for path, text in texts.items() if path not in kept}
    written = sorted(new)
    new |= {path: real.read_bytes() for path, real in _copies(project, texts, to).items()}
    if to.exists():
        for path, data in new.items():
            files.write_atomic(to / path, data)
    else:
        # A new directory appears completely or not at all.
        with files.staging(to.absolute().parent) as stage:
            for path, data in new.items():
                files.write_new(stage / "project" / path, data)
            files.publish_tree(stage / "project", to)
    return tuple(to / path for path in written)


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
    names = {
        name for action in export_compile_commands.compiling(planned.plan) for name in action.trees
    }
    trees = build_trees.tree_paths(workspace, {*names, "cxx"}, planned.lock)
    entries = export_compile_commands.entries(
        planned.plan, trees, directory=str(to.resolve()), bundled=source_files.BUNDLED_DIRECTORIES
    )
    return {COMPILE_COMMANDS: json.dumps(entries, indent=1) + "\n"}
