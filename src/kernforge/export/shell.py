# SPDX-License-Identifier: Apache-2.0
"""The environment of one variant: its compilers, headers and package, for a shell or a command."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from kernforge.builder import api as build
from kernforge.builder.api import BuildRequest
from kernforge.builder.workspace import Workspace, tree_paths
from kernforge.loader.search import with_override
from kernforge.project.targets import Target
from kernforge.system import digest, files
from kernforge.system.environment import Environment
from kernforge.system.process import Command, replace_by
from kernforge.toolchain.lockfile import Tree

_RC = """rm -r -- {directory}
[ -f ~/.bashrc ] && . ~/.bashrc
{exports}
PS1="(${{KERNFORGE_VARIANT}}) ${{PS1-}}"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The environment of a variant.

    Attributes:
        built: directory of the built variant; None if it is not built.
    """

    variant: str
    variables: Mapping[str, str]
    built: Path | None


def setting(
    workspace: Workspace, target: Target, out: Path, env: Mapping[str, str], *, links: Path
) -> Setting:
    """The environment of a variant; its toolchain is fetched.

    Args:
        env: the user's environment, whose entries come after those of the variant in variables
            that are lists of paths.
        links: directory for a link that gives the built variant its package's name.
    """
    trees = _trees(workspace, target)
    cuda = trees.get(Tree.of("cuda", target.cuda).name) if target.cuda else None
    libraries = trees.get(Tree.of("cuda-libraries", target.cuda).name) if target.cuda else None
    include: list[str] = []
    if target.tvm_ffi:
        include = [f"{trees[Tree.of('tvm-ffi', target.tvm_ffi).name]}/include"]
    if target.torch:
        base = f"{trees[Tree.of('torch', target.torch).name]}/include"
        include += [base, f"{base}/torch/csrc/api/include"]
    if cuda:
        include += [d for name in ("", "/cccl") if Path(d := f"{cuda}/include{name}").is_dir()]
    include += [f"{libraries}/include"] if libraries else []
    include += [trees["python"]] if "python" in trees else []
    variables = {
        "KERNFORGE_VARIANT": target.name,
        "CXX": workspace.compiler.path,
    }
    paths = {"CPATH": include}
    if cuda:
        variables |= {"CUDA_HOME": cuda, "CUDA_PATH": cuda, "CUDAHOSTCXX": workspace.compiler.path}
        paths |= {"PATH": [f"{cuda}/bin"], "LIBRARY_PATH": [f"{cuda}/lib64"]}
    built = out / target.name
    is_built = (built / "metadata.json").is_file()
    if is_built:
        paths["PYTHONPATH"] = [str(_importable(workspace, built, links))]
        if repo_id := workspace.project.manifest.general.hub.repo_id:
            overrides = with_override(env.get("LOCAL_KERNELS"), repo_id, built.absolute())
            variables["LOCAL_KERNELS"] = overrides
    for name, entries in paths.items():
        entries += [part for part in env.get(name, "").split(os.pathsep) if part]
        variables[name] = os.pathsep.join(dict.fromkeys(entries))
    return Setting(variant=target.name, variables=variables, built=built if is_built else None)


def _trees(workspace: Workspace, target: Target) -> dict[str, str]:
    """Paths of the trees of a variant's plan, with all headers of its frameworks."""
    if target.variant.is_noarch:
        return {}
    planned = build.plan_project(workspace, BuildRequest(targets=(target,)))
    names = set(planned.plan.trees) - {"cxx"}
    kinds = {"torch": target.torch, "tvm-ffi": target.tvm_ffi, "cuda": target.cuda}
    names |= {Tree.of(kind, version).name for kind, version in kinds.items() if version}
    return tree_paths(workspace, names, planned.lock)


def _importable(workspace: Workspace, built: Path, links: Path) -> Path:
    """Import path of the built package."""
    manifest = workspace.project.manifest
    directory = links / digest.key("shell", built=str(built.resolve()))[:16]
    name = manifest.general.python_name
    files.symlink(str(built.resolve()), directory / name)
    return directory


def enter(setting: Setting, command: Sequence[str], environment: Environment) -> NoReturn:
    """Run a command or the user's shell with the setting, in the place of this process."""
    env, values = environment.variables, setting.variables
    if command:
        replace_by(Command(argv=tuple(command), env=env, added=values))
    shell = env.get("SHELL") or "/bin/sh"
    if Path(shell).name != "bash":
        prompt = f"({setting.variant}) $ "
        replace_by(Command(argv=(shell,), env=env, added={**values, "PS1": prompt}))
    # The user's file may set these variables too, so these values come after it.
    exports = "\n".join(f"export {n}={shlex.quote(v)}" for n, v in values.items())
    with files.staging(environment.home / "shells") as directory:
        rc = directory / "rc"
        text = _RC.format(exports=exports, directory=shlex.quote(str(directory)))
        files.write_new(rc, text)
        replace_by(Command(argv=(shell, "--rcfile", str(rc), "-i"), env=env, added=values))
