# SPDX-License-Identifier: Apache-2.0
"""Adopt a project: read what it asks for, translate its sources, write a kernel project.

The old project is not changed. What cannot be translated is a remark with file and line, and stays
in the new project as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernforge.adopt import package, program
from kernforge.adopt.bindings import Operator, Source, with_c_linkage
from kernforge.adopt.program import Program, Remark
from kernforge.errors import UsageError
from kernforge.extension import inline
from kernforge.manifest.editions import UNKNOWN_LICENSE
from kernforge.project import scaffold
from kernforge.project.units import HEADER_SUFFIXES
from kernforge.source.cpp_text import CUDA_SUFFIXES
from kernforge.system import untrusted_tree
from kernforge.system.files import make_dir, publish_tree, staging

_BINDING = "torch-ext/torch_binding.cpp"
_BINDING_TEXT = """// The module of the build; its operators are registered where they are defined.

#include "registration.h"

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """A project that was adopted.

    Attributes:
        dest: the new project.
        files: its files.
        operators: schemas of its operators by module and function, as in ``relu.forward``.
        remarks: what to look at, in the order of files and lines.
    """

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
        old = program.read(path, stage)
        kernel = name or old.kernel_name
        dest = dest or Path(kernel)
        stated = old.license if scaffold.is_license(old.license) else ""
        chosen = license or stated or UNKNOWN_LICENSE
        scaffold.check_project(kernel, license=chosen)
        scaffold.check_free(dest)
        if chosen == UNKNOWN_LICENSE:
            text = f'build.toml says license = "{chosen}", as the old project names none: '
            old.remark(f"{text}write its own", "check")
        texts, groups = _translate(old)
        bindings = [_BINDING, *_shared_bindings(old, groups)]
        python_name = kernel.replace("-", "_")
        python = package.python_files(python_name, groups, old.file)
        schemas = {
            (each.name if len(groups) == 1 else f"{group}.{each.name}"): each.schema
            for group, operators in groups.items()
            for each in operators
        }
        written = {
            **texts,
            _BINDING: _BINDING_TEXT,
            "build.toml": package.manifest(kernel, chosen, bindings, _sections(old, bindings)),
            **{f"torch-ext/{file}": text for file, text in python.items()},
            f"tests/test_{python_name}.py": package.tests(schemas),
            ".gitignore": "build/\n__pycache__/\n*.pyc\n.pytest_cache/\n",
        }
        tree = stage / "project"
        make_dir(tree)
        for file, text in written.items():
            untrusted_tree.write(tree, file, text)
        if not publish_tree(tree, dest):
            raise scaffold.occupied(dest)
    return Adoption(
        dest=dest,
        files=tuple(dest / file for file in sorted(written)),
        operators=schemas,
        remarks=tuple(sorted({*old.remarks})),
    )


def _translate(old: Program) -> tuple[dict[str, str], dict[str, list[Operator]]]:
    """The new texts of sources and headers, and the operators of each group of modules."""
    texts: dict[str, str] = {}
    groups: dict[str, list[Operator]] = {}
    names = sorted({module.group for module in old.modules})
    for group in names:
        modules = [module for module in old.modules if module.group == group]
        read = {path: old.get(path) for m in modules for path in old.files(m.sources, m.include)}
        cuda = [text for path, text in read.items() if path.endswith(CUDA_SUFFIXES)]
        for path in sorted({*read} - {*texts}):
            backends = sorted({m.backend.upper() for m in modules if path in m.sources})
            text, linked = with_c_linkage(read[path], cuda)
            for name, line in linked.items():
                remark = f'{name} is defined with extern "C" and declared without: added'
                old.remarks.append(Remark(path, line, remark, "changed"))
            source = Source(
                path=path,
                text=text,
                texts=read.values(),
                keys=tuple(backends),
                prefix=f"{group}_" if len(names) > 1 else "",
                remarks=old.remarks,
            )
            source.translate()
            texts[path] = source.text
            if source.operators:
                groups.setdefault(group, []).extend(source.operators)
        if group not in groups:
            old.remark(f"no operator of {modules[0].name} was found")
    if not groups:
        listed = "\n".join(map(str, sorted({*old.remarks})))
        raise UsageError(
            f"no operator of {', '.join(module.name for module in old.modules)} can be "
            f"translated:\n{listed}",
            hint="start with `kernforge new --here`, and register the functions with TORCH_LIBRARY",
        )
    return texts, groups


def _shared_bindings(old: Program, groups: Mapping[str, list[Operator]]) -> list[str]:
    """C++ sources of ``[torch]``: the device code beside them may then be compiled without torch.

    They bind what other sources of their module define, and need no flags.
    """
    if len({module.backend for module in old.modules}) > 1:
        return []
    registering = {each.path for operators in groups.values() for each in operators}
    shared: list[str] = []
    for module in old.modules:
        own = [p for p in module.sources if p in registering and not p.endswith(CUDA_SUFFIXES)]
        if len(own) < len(module.sources) and not (module.include or module.cxx_flags):
            shared += own
    return shared


def _sections(old: Program, bindings: list[str]) -> dict[str, dict[str, Any]]:
    """The ``[kernel.*]`` tables of build.toml."""
    sections: dict[str, dict[str, Any]] = {}
    for module in old.modules:
        compiled = [path for path in module.sources if path not in bindings]
        read = old.files(compiled, module.include)
        headers = sorted(path for path in read if path.endswith(HEADER_SUFFIXES))
        src = [*compiled, *headers]
        raw = all(inline.is_raw(old.get(path)) for path in src)
        table = {
            "backend": module.backend,
            "depends": [] if raw else ["torch"],
            "src": src,
            "include": list(module.include),
            "cxx-flags": list(module.cxx_flags),
            "cuda-flags": list(module.cuda_flags) if module.backend == "cuda" else [],
        }
        name = f"{module.group}_{module.backend}"
        name = f"{name}_{len(sections) + 1}" if name in sections else name
        sections[name] = {key: value for key, value in table.items() if value or key == "depends"}
    return sections
