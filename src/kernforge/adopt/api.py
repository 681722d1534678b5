# SPDX-License-Identifier: Apache-2.0
"""Adopt a project: read what it asks for, translate its sources, write a kernel project.

The old project is not changed. What cannot be translated is a remark with file and line, and stays
in the new project as it was.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernforge.adopt import bindings, package, program
from kernforge.adopt.bindings import Operator
from kernforge.adopt.program import Module, Program, Remark
from kernforge.errors import UsageError
from kernforge.extension import inline
from kernforge.manifest.editions import UNKNOWN_LICENSE
from kernforge.project import scaffold
from kernforge.source.cpp_text import CUDA_SUFFIXES
from kernforge.system import untrusted_tree
from kernforge.system.files import make_dir, publish_tree, staging

_BINDING = "torch-ext/torch_binding.cpp"
_HEADERS = (".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl", ".inc", ".ipp", ".tpp", ".def")
_BINDING_TEXT = """// The module of the build; its operators are registered where they are defined.

#include "registration.h"

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """A project that was adopted.

    Attributes:
        name: of the kernel.
        dest: the new project.
        files: its files.
        operators: schemas of its operators by module and function, as in ``relu.forward``.
        remarks: what to look at, in the order of files and lines.
    """

    name: str
    dest: Path
    files: tuple[Path, ...]
    operators: Mapping[str, str]
    remarks: tuple[Remark, ...]


def adopt(
    source: Path,
    *,
    dest: Path | None = None,
    name: str = "",
    license: str = "",  # noqa: A002 - the word that build.toml uses
) -> Adoption:
    """Write a kernel project that does what another project does.

    Args:
        source: a directory with a setup.py, or a script that calls ``load`` or ``load_inline``. It
            is not changed; a copy of its setup.py is run up to ``setup()``, in the sandbox.
        dest: directory of the new project, which must not exist or must be empty; by default the
            kernel's name in the current directory.
        name: of the kernel; by default that of the distribution or module.
        license: an SPDX expression; by default what the setup.py says, or else ``unknown``.

    Raises:
        UsageError: there is nothing to adopt, the name is not usable, or something is at ``dest``.
    """
    path = program.find(source)
    with staging(dest.absolute().parent if dest else Path.cwd()) as stage:
        found = program.read(path, stage)
        kernel = name or found.kernel_name
        dest = dest or Path(kernel)
        said = found.license if scaffold.is_license(found.license) else ""
        chosen = license or said or UNKNOWN_LICENSE
        scaffold.check_project(kernel, license=chosen)
        scaffold.check_free(dest)
        if chosen == UNKNOWN_LICENSE:
            text = f'build.toml says license = "{chosen}", as the old project names none: '
            found.remark(f"{text}write its own", "check")
        translated, groups = _translate(found)
        written = _files(found, translated, groups, kernel=kernel, license=chosen)
        tree = stage / "project"
        make_dir(tree)
        for file, text in written.items():
            untrusted_tree.write(tree, file, text)
        if not publish_tree(tree, dest):
            raise scaffold.occupied(dest)
    return Adoption(
        name=kernel,
        dest=dest,
        files=tuple(dest / path for path in sorted(written)),
        operators={
            (o.name if len(groups) == 1 else f"{group}.{o.name}"): o.schema
            for group, operators in groups.items()
            for o in operators
        },
        remarks=tuple(sorted({*found.remarks})),
    )


def _translate(found: Program) -> tuple[dict[str, str], dict[str, list[Operator]]]:
    """The new texts of sources and headers, and the operators of each module."""
    closures = [
        found.closure(path, module.include, ())
        for module in found.modules
        for path in module.sources
    ]
    texts = {path: found.get(path) for closure in closures for path in closure.files}
    several = len({module.group for module in found.modules}) > 1
    new: dict[str, str] = {}
    groups: dict[str, list[Operator]] = {}
    for path in sorted(texts):
        users = [module for module in found.modules if path in module.sources]
        group = users[0].group if users else ""
        new[path], operators = bindings.translate(
            path,
            texts[path],
            texts=_reachable(users, found, texts),
            keys=tuple(sorted({module.backend.upper() for module in users})) or ("CPU",),
            prefix=f"{group}_" if group and several else "",
            remarks=found.remarks,
        )
        others = [text for other, text in texts.items() if _is_cuda(other) and other != path]
        new[path], linked = bindings.with_c_linkage(new[path], others)
        for name, line in linked.items():
            text = f'{name} is defined with extern "C" and declared without: added'
            found.remarks.append(Remark(path, line, text, "changed"))
        if operators:
            groups.setdefault(group, []).extend(operators)
    for module in found.modules:
        if module.group not in groups:
            found.remark(f"no operator of {module.name} was found")
    if not groups:
        listed = "\n".join(map(str, sorted({*found.remarks})))
        raise UsageError(
            f"no operator of {', '.join(module.name for module in found.modules)} can be "
            f"translated:\n{listed}",
            hint="start with `kernforge new --here`, and register the functions with TORCH_LIBRARY",
        )
    return new, groups


def _is_cuda(path: str) -> bool:
    return path.endswith(CUDA_SUFFIXES)


def _reachable(users: list[Module], found: Program, texts: Mapping[str, str]) -> dict[str, str]:
    """Texts in which a module's functions may be: its sources, and headers."""
    own = {path for module in users for path in module.sources}
    others = {path for module in found.modules for path in module.sources} - own
    return {path: text for path, text in texts.items() if path not in others}


def _files(
    found: Program,
    translated: Mapping[str, str],
    groups: Mapping[str, Sequence[Operator]],
    *,
    kernel: str,
    license: str,  # noqa: A002
) -> dict[str, str]:
    binding = [_BINDING, *_shared_bindings(found)]
    python_name = kernel.replace("-", "_")
    python = package.python_files(python_name, groups, found.file)
    return {
        **translated,
        _BINDING: _BINDING_TEXT,
        "build.toml": package.manifest(kernel, license, binding, _sections(found, binding)),
        **{f"torch-ext/{path}": text for path, text in python.items()},
        f"tests/test_{python_name}.py": package.tests(groups),
        ".gitignore": "build/\n__pycache__/\n*.pyc\n.pytest_cache/\n",
    }


def _shared_bindings(found: Program) -> list[str]:
    """C++ sources that bind what other sources of their module define, and need no flags."""
    shared: list[str] = []
    for module in found.modules if len({each.backend for each in found.modules}) == 1 else ():
        own = [p for p in module.sources if not _is_cuda(p) and bindings.binds(found.get(p))]
        if len(own) < len(module.sources) and not (module.include or module.cxx_flags):
            shared += own
    return shared


def _sections(found: Program, binding: list[str]) -> dict[str, dict[str, Any]]:
    """The ``[kernel.*]`` tables of build.toml."""
    sections: dict[str, dict[str, Any]] = {}
    for module in found.modules:
        compiled = [path for path in module.sources if path not in binding]
        closures = [found.closure(path, module.include, ()) for path in compiled]
        read = {path for closure in closures for path in closure.files}
        headers = sorted(path for path in read if path.endswith(_HEADERS))
        listed = (*compiled, *headers)
        raw = all(inline.is_raw(found.get(path)) for path in listed)
        table = {
            "backend": module.backend,
            "depends": [] if raw else ["torch"],
            "src": list(listed),
            "include": list(module.include),
            "cxx-flags": list(module.cxx_flags),
            "cuda-flags": list(module.cuda_flags) if module.backend == "cuda" else [],
        }
        name = re.sub(r"\W", "_", f"{module.group}_{module.backend}")
        number = sum(re.fullmatch(rf"{name}(_\d+)?", taken) is not None for taken in sections) + 1
        sections[name if number == 1 else f"{name}_{number}"] = {
            key: value for key, value in table.items() if value or key == "depends"
        }
    return sections
