# SPDX-License-Identifier: Apache-2.0
"""``%%kernforge``: a cell of C++ or CUDA in a notebook or in IPython, compiled and loaded at once.

``%load_ext kernforge`` registers it. A source has a line of its own in the place of the magic's, so
that messages have the numbers that the notebook shows.
"""

from __future__ import annotations

import re
from typing import Any

from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from kernforge.errors import BuildError, KernforgeError
from kernforge.extension import flags, inline, op_names
from kernforge.extension.api import load_inline
from kernforge.extension.machine import import_torch

_SWITCH = re.compile(r"//\s*%%\s*(cpp|cuda)\s*$")
_SOURCES = re.compile(rf"\b(?:{inline.CPP}|{inline.CUDA})\b")


class CellError(BuildError):
    """A cell does not become a module; shown without the traceback of kernforge's code."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows."""
        return str(self).splitlines()


def load_ipython_extension(shell: Any) -> None:
    """Register ``%%kernforge``; called by ``%load_ext kernforge``."""
    shell.register_magics(KernforgeMagics)


@magics_class
class KernforgeMagics(Magics):  # type: ignore[misc] # traitlets has no types
    """The cell magic."""

    @magic_arguments()
    @argument("name", help="the module's name; it is a variable afterwards")
    @argument(
        "--functions",
        metavar="F,G",
        default="",
        help="bind these C++ functions with pybind11, and make them variables too",
    )
    @argument("--cuda", action="store_true", help="the cell begins with CUDA instead of C++")
    @argument("--cflags", default="", help="for the C++ compiler, as '-O3 -march=native'")
    @argument("--cuda-cflags", default="", help="for nvcc")
    @argument("--ldflags", default="", help="for the linker")
    @argument("--include", action="append", default=[], help="where headers are looked for")
    @argument("--no-headers", action="store_true", help="put no header before the sources")
    @argument("--verbose", action="store_true", help="say what is compiled")
    @cell_magic
    def kernforge(self, line: str, cell: str) -> None:
        """Compile the cell with ``kernforge.load_inline`` and load it as a module.

        A cell is C++, or CUDA with ``--cuda``. It may hold both: a line ``// %% cuda`` or
        ``// %% cpp`` begins the other. Functions of CUDA that ``--functions`` names are declared
        for you. Run the cell again after an edit to get the new code; unchanged it costs nothing,
        and what was made with the old module stays valid.

        A cell that registers operators (``TORCH_LIBRARY``, or ``STABLE_TORCH_LIBRARY`` of torch's
        stable ABI, which compiles in seconds) and defines no Python module has the name of their
        namespace: it is then ``torch.ops.<name>``, and ``--functions`` makes operators variables.

        Example::

            %%kernforge toy --functions plus
            at::Tensor plus(at::Tensor x, double a) { return x + a; }

        In the next cell: ``plus(torch.ones(3), 2.0)``, or ``toy.plus(...)``.
        """
        options = parse_argstring(self.kernforge, line)
        functions = [name.strip() for name in options.functions.split(",") if name.strip()]
        texts = split_cell(cell, cuda=options.cuda)
        sources = tuple(texts.values())
        registers = bool(op_names.namespaces(sources)) and not op_names.module_names(sources)
        bound = [] if registers else functions
        declared = " ".join(declaration(texts["cuda"], name) for name in bound)
        cuda = f"\n{texts['cuda']}" if texts["cuda"].strip() else None
        try:
            module = load_inline(
                options.name,
                f"{declared}\n{texts['cpp']}",
                cuda,
                functions=bound or None,
                is_python_module=not registers,
                extra_cflags=flags.words(options.cflags),
                extra_cuda_cflags=flags.words(options.cuda_cflags),
                extra_ldflags=flags.words(options.ldflags),
                extra_include_paths=options.include,
                no_implicit_headers=options.no_headers,
                verbose=options.verbose,
            )
        except KernforgeError as error:
            text = _SOURCES.sub("cell", error.message)
            raise CellError(text, hint=error.hint) from None
        if registers:
            module = getattr(import_torch().ops, options.name)
        variables = {options.name: module} | {name: getattr(module, name) for name in functions}
        self.shell.push(variables)


def split_cell(cell: str, *, cuda: bool) -> dict[str, str]:
    """A cell's C++ and CUDA, each with all lines of the cell; lines of the other are empty."""
    current = "cuda" if cuda else "cpp"
    lines: dict[str, list[str]] = {"cpp": [], "cuda": []}
    for line in cell.splitlines():
        switch = _SWITCH.fullmatch(line.strip())
        current = switch[1] if switch else current
        for language, text in lines.items():
            text.append(line if language == current and not switch else "")
    return {language: "\n".join(text) for language, text in lines.items()}


def declaration(cuda: str, name: str) -> str:
    """The declaration of a function that CUDA defines, for the C++ that binds it; empty if none."""
    match = re.search(
        rf"^[ \t]*(?!return\b|else\b)([\w:<>,&*\s]+?[\s&*]{re.escape(name)}\s*\([^;{{}}]*\))\s*\{{",
        cuda,
        re.MULTILINE,
    )
    return f"{' '.join(match[1].split())};" if match else ""
