# SPDX-License-Identifier: Apache-2.0
"""Adopt a project: read what it asks for, translate its sources, write a kernel project.

The old project is not changed. What cannot be translated is a remark with file and line, and stays
in the new project as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernforge.adopt import bindings, package, program
from kernforge.adopt.bindings import Operator
from kernforge.adopt.program import Module, Program, Remark
from kernforge.errors import UsageError
from kernforge.extension.files import Tree
from kernforge.manifest.editions import UNKNOWN_LICENSE
from kernforge.project import scaffold
from kernforge.source import extension_source
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
    program.check_source(source)
    with staging(dest.absolute().parent if dest else Path.cwd()) as stage:
        found = program.read(source, stage)
        kernel = name or _kernel_name(found)
        dest = dest or Path(kernel)
        said = found.license if scaffold.is_license(found.license) else ""
        chosen = license or said or UNKNOWN_LICENSE
        scaffold.check_project(kernel, license=chosen)
        scaffold.check_free(dest)
        texts = _Texts(found)
        translated, groups, remarks = _translate(found, texts.of_modules())
        if chosen == UNKNOWN_LICENSE:
            text = (
                f'build.toml says license = "{chosen}", as the old project names none: write its '
                "own"
            )
            remarks.append(Remark(found.file, 0, text, "check"))
        written = _files(found, texts, translated, groups, kernel=kernel, license=chosen)
        tree = stage / "project"
        make_dir(tree)
        for path, text in written.items():
            untrusted_tree.write(tree, path, text)
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
        remarks=tuple(sorted({*found.remarks, *remarks})),
    )


def _kernel_name(program: Program) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", program.name.lower()).strip("-")
    return re.sub(r"^[^a-z]+", "", plain) or "kernel"


class _Texts(Tree):
    """Files of the old project, and those that its program has as text."""

    def __init__(self, found: Program) -> None:
        super().__init__(found.inline)
        self._program = found

    def of_modules(self) -> dict[str, str]:
        """Sources of the modules and the headers of the project that they include, by path."""
        closures = (
            self.closure(path, module.include, ())
            for module in self._program.modules
            for path in module.sources
        )
        return {path: self.get(path) for closure in closures for path in closure.files}

    def _read(self, path: str) -> str | None:
        outside = path.startswith(("/", "../"))
        return None if outside else program.text_in(self._program.root, path)

    def _headers_below(self, _directories: Iterable[str]) -> Iterable[str]:
        return ()  # a header that a macro names is the user's to add


def _translate(
    program: Program, texts: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, tuple[Operator, ...]], list[Remark]]:
    """The new texts, the operators of each module, and the remarks."""
    several = len({_group(module) for module in program.modules}) > 1
    new = dict(texts)
    remarks: list[Remark] = []
    found: dict[str, list[Operator]] = {}
    for path in sorted(texts):
        users = [module for module in program.modules if path in module.sources]
        group = _group(users[0]) if users else ""
        result = bindings.translate(
            path,
            texts[path],
            texts=_reachable(users, program, texts),
            keys=tuple(sorted({module.backend.upper() for module in users})) or ("CPU",),
            prefix=f"{group}_" if group and several else "",
        )
        others = [text for other, text in texts.items() if _is_cuda(other) and other != path]
        new[path], linked = bindings.with_c_linkage(result.text, others)
        for name, line in linked.items():
            text = f'{name} is defined with extern "C" and declared without: added'
            remarks.append(Remark(path, line, text, "changed"))
        remarks += result.remarks
        if result.operators:
            found.setdefault(group, []).extend(result.operators)
    groups = {group: tuple(operators) for group, operators in found.items()}
    for module in program.modules:
        if not groups.get(_group(module)):
            remarks.append(Remark(program.file, 0, f"no operator of {module.name} was found"))
    if not groups:
        listed = "\n".join(str(remark) for remark in sorted({*program.remarks, *remarks}))
        raise UsageError(
            f"no operator of {', '.join(module.name for module in program.modules)} can be "
            f"translated:\n{listed}",
            hint="start with `kernforge new --here`, and register the functions with TORCH_LIBRARY",
        )
    return new, groups, remarks


def _is_cuda(path: str) -> bool:
    return path.endswith(extension_source.CUDA_SUFFIXES)


def _reachable(users: list[Module], program: Program, texts: Mapping[str, str]) -> dict[str, str]:
    """Texts in which a module's functions may be: its sources, and headers."""
    own = {path for module in users for path in module.sources}
    others = {path for module in program.modules for path in module.sources} - own
    return {path: text for path, text in texts.items() if path not in others}


def _group(module: Module) -> str:
    """Name of a module's functions in Python: twins for CPU and CUDA have one."""
    return re.sub(r"_(?:cpu|cuda)$", "", module.last_name.lstrip("_")) or module.last_name


def _files(
    program: Program,
    texts: _Texts,
    translated: Mapping[str, str],
    groups: Mapping[str, tuple[Operator, ...]],
    *,
    kernel: str,
    license: str,  # noqa: A002
) -> dict[str, str]:
    binding = [_BINDING, *_shared_bindings(program, texts)]
    python_name = kernel.replace("-", "_")
    sections = _sections(program, texts, binding)
    python = package.python_files(python_name, groups, program.file)
    return {
        **translated,
        _BINDING: _BINDING_TEXT,
        "build.toml": package.manifest(kernel, license, binding, sections),
        **{f"torch-ext/{path}": text for path, text in python.items()},
        f"tests/test_{python_name}.py": package.tests(groups),
        ".gitignore": "build/\n__pycache__/\n*.pyc\n.pytest_cache/\n",
    }


def _shared_bindings(program: Program, texts: _Texts) -> list[str]:
    """C++ sources that bind what other sources of their module define, and need no flags."""
    if len({module.backend for module in program.modules}) > 1:
        return []
    found: list[str] = []
    for module in program.modules:
        own = [p for p in module.sources if not _is_cuda(p) and bindings.binds(texts.get(p))]
        if len(own) < len(module.sources) and not (module.include or module.cxx_flags):
            found += own
    return found


def _sections(program: Program, texts: _Texts, binding: list[str]) -> dict[str, dict[str, Any]]:
    """The ``[kernel.*]`` tables of build.toml."""
    sections: dict[str, dict[str, Any]] = {}
    for module in program.modules:
        compiled = [path for path in module.sources if path not in binding]
        closures = [texts.closure(path, module.include, ()) for path in compiled]
        read = {path for closure in closures for path in closure.files}
        headers = sorted(path for path in read if path.endswith(_HEADERS))
        listed = (*compiled, *headers)
        raw = all(extension_source.is_raw(texts.get(path)) for path in listed)
        table = {
            "backend": module.backend,
            "depends": [] if raw else ["torch"],
            "src": list(listed),
            "include": list(module.include),
            "cxx-flags": list(module.cxx_flags),
            "cuda-flags": list(module.cuda_flags) if module.backend == "cuda" else [],
        }
        name = re.sub(r"\W", "_", f"{_group(module)}_{module.backend}")
        number = sum(re.fullmatch(rf"{name}(_\d+)?", taken) is not None for taken in sections) + 1
        sections[name if number == 1 else f"{name}_{number}"] = {
            key: value for key, value in table.items() if value or key == "depends"
        }
    return sections
