# SPDX-License-Identifier: Apache-2.0
"""Write the files that let other tools build, install and edit a project.

CMake, setuptools, Nix (kernel-builder) and editors. What kernel-builder's ``create-pyproject``
writes, in our words.
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
from kernforge.manifest.document import Torch, TorchNoarch, TvmFfi
from kernforge.project import source_files, units
from kernforge.project.api import MANIFEST
from kernforge.system import digest, files
from kernforge.toolchain import header_libraries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from kernforge.build.workspace import Workspace
    from kernforge.manifest.document import Manifest
    from kernforge.project.api import Project
    from kernforge.project.targets import Target
    from kernforge.project.units import Sources

KINDS = ("cmake", "python", "nix", "editor")
_COMPILE_COMMANDS = "compile_commands.json"
_OURS = (
    "CMakeLists.txt",
    "MANIFEST.in",
    "cmake/_ops.py.in",
    "flake.nix",
    "pyproject.toml",
    "setup.py",
)
# They stay out of what is shipped: paths of a machine, and a lock that neither CMake nor pip reads.
_OF_THE_MACHINE = (_COMPILE_COMMANDS, "kernforge.lock")
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


def texts(one: Project, sources: Sources, kinds: Sequence[str]) -> dict[str, str]:
    """The generated files but the editors': path to text.

    Args:
        one: the project.
        sources: its files, from which its op namespace gets its name.
        kinds: some of ``KINDS``.
    """
    headers = units.bundled_headers(one.manifest, sources)
    listed = _listing(one, headers)
    # So that the name stays when the project has these headers and names them.
    manifest = document.parse(listed)
    own = [path for path in one.files if not _is_ours(one, path, sources)]
    told = {path: sources.digests[path] for path in own if path in sources.digests}
    told |= {path: digest.sha256(text) for path, text in headers.items()}
    unique = digest.key("export", manifest=manifest.content, files=told)[:10]
    found: dict[str, str] = {}
    noarch = isinstance(manifest.framework, TorchNoarch)
    if not noarch and {"cmake", "python", "nix"} & {*kinds}:
        found |= headers
    if "cmake" in kinds or "python" in kinds:
        found |= dict(_package(one, unique)) | dict(_metadata(one, unique))
        if units.REGISTRATION in sources.brought:
            found[units.REGISTRATION] = sources.brought[units.REGISTRATION]
    if "cmake" in kinds and not noarch:
        found["CMakeLists.txt"] = cmake.text(manifest, unique, _cutlass(manifest))
    if "python" in kinds:
        found["pyproject.toml"] = python.pyproject(manifest)
        found["setup.py"] = python.setup(manifest)
        shipped = sorted({*own, *found} - {"setup.py", "pyproject.toml"})
        found["MANIFEST.in"] = "".join(f"include {path}\n" for path in shipped)
    if "nix" in kinds:
        found["flake.nix"] = _FLAKE.replace("DESCRIPTION", f"Kernel {manifest.general.name}")
        found |= {MANIFEST: listed} if listed != one.manifest_text else {}
    return found


def _listing(one: Project, headers: Iterable[str]) -> str:
    """Text of build.toml that names these headers: kernel-builder copies what it names, no more."""
    framework = one.manifest.framework
    if isinstance(framework, TorchNoarch):
        return one.manifest_text
    tables = (framework, *one.manifest.kernels.values())
    named = {posixpath.normpath(path) for table in tables for path in table.src}
    if not (missing := sorted({*headers} - named)):
        return one.manifest_text
    text = tomlkit.parse(one.manifest_text)
    table = text["torch" if isinstance(framework, Torch) else "tvm-ffi"]
    table.setdefault("src", []).extend(missing)
    return tomlkit.dumps(text)


def _is_ours(one: Project, path: str, sources: Sources) -> bool:
    """Whether a file of a project is one that an earlier export put there.

    Were it taken for a source, the same project exported again would differ.
    """
    if path in sources.bundled:
        return path in sources.brought
    written = {*_OURS, *_OF_THE_MACHINE, f"torch-ext/{one.manifest.general.python_name}/_ops.py"}
    return path in written or path in {f"metadata-{b}.json" for b in _BACKENDS}


def _cutlass(manifest: Manifest) -> str:
    """The release of CUTLASS that a project depends on; empty without one."""
    name = units.cutlass(manifest)
    return header_libraries.RELEASES[name][0] if name else ""


def _package(one: Project, unique: str) -> Iterator[tuple[str, str]]:
    """The part of the package that a build makes."""
    manifest = one.manifest
    name = manifest.general.python_name
    if isinstance(manifest.framework, TorchNoarch):
        module = layout.ops_module(f"_{name}_cpu_{unique}", Variant.noarch("cpu"))
        yield f"torch-ext/{name}/_ops.py", module
        return
    # Any compiled variant will do: the text differs by framework alone.
    kind = Variant.tvm_ffi if isinstance(manifest.framework, TvmFfi) else Variant.stable_abi
    variant = kind(Version2(0, 1), Backend("cpu"), cpu="x86_64", os="linux")
    yield "cmake/_ops.py.in", layout.ops_module("@OPS_NAME@", variant)


def _metadata(one: Project, unique: str) -> Iterator[tuple[str, str]]:
    """``metadata-<backend>.json`` for every backend there is, as create-pyproject writes them.

    Whoever builds with the exported files puts that of his backend beside the extension as
    ``metadata.json``; its digest and the architectures of compiled code come after the build.
    """
    manifest = one.manifest
    for backend in _BACKENDS:
        name = f"_{manifest.general.python_name}_{backend}_{unique}"
        noarch = isinstance(manifest.framework, TorchNoarch)
        archs = planner.noarch_archs(manifest, backend) if noarch else None
        said = layout.metadata(manifest, backend, name, archs)
        made_by = Provenance(builder_version=f"kernforge-{__version__}", kernel=one.git)
        yield f"metadata-{backend}.json", replace(said, provenance=made_by).to_json().decode()


def write(one: Project, made: dict[str, str], to: Path, *, force: bool) -> tuple[Path, ...]:
    """Write the files, and beside them the project's own when the directory is another one.

    Args:
        one: the project.
        made: from ``texts``.
        to: the directory.
        force: whether generated files may take the place of others.

    Raises:
        UsageError: a file is there with another content, and ``force`` is not set; nothing was
            written.
        StorageError: the disk is full or not ours.
    """
    elsewhere = to.resolve() != one.root.resolve()
    copies = {p: real for p, real in one.files.items() if elsewhere and p not in made}
    new = {path: text.encode() for path, text in made.items()}
    new |= {path: real.read_bytes() for path, real in copies.items()}
    taken = [p for p, data in new.items() if (to / p).exists() and (to / p).read_bytes() != data]
    if taken and not force:
        raise UsageError(
            f"{to} has {', '.join(sorted(taken)[:5])} already, with another content",
            hint="pass --force to replace them, or --to another directory",
        )
    if to.exists():
        for path, data in new.items():
            files.write_atomic(to / path, data)
    else:
        # A directory of its own appears whole or not at all.
        with files.staging(to.absolute().parent) as stage:
            for path, data in new.items():
                files.write_new(stage / "project" / path, data)
            files.publish_tree(stage / "project", to)
    return tuple(to / path for path in sorted(made))


def compile_commands(workspace: Workspace, targets: Sequence[Target], to: Path) -> dict[str, str]:
    """Text of ``compile_commands.json`` for one variant of each backend; headers are fetched.

    Raises:
        UsageError: nothing is compiled.
        ToolchainError: no index has a toolchain.
        NetworkError: something is lacking and no index can be reached.
    """
    chosen = {target.backend: target for target in targets if not target.variant.is_noarch}
    if not chosen:
        raise UsageError("nothing of this project is compiled", hint="leave --only editor out")
    ones = sorted(chosen.values(), key=lambda target: target.backend)
    planned = build.plan_project(workspace, BuildRequest(targets=tuple(ones)))
    names = {
        name for action in export_compile_commands.compiling(planned.plan) for name in action.trees
    }
    trees = build_trees.tree_paths(workspace, {*names, "cxx"}, planned.lock)
    found = export_compile_commands.entries(
        planned.plan,
        trees,
        directory=str(to.resolve()),
        bundled=source_files.BUNDLED_DIRECTORIES,
    )
    return {_COMPILE_COMMANDS: json.dumps(found, indent=1) + "\n"}
