# SPDX-License-Identifier: Apache-2.0
"""Make the module of a request: with torch's headers cut to what its sources use, else as it stands."""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.build.execute.results import STORE_KIND
from kernforge.errors import BuildError
from kernforge.jit import advice, build_module, mistake, plan, torch_headers
from kernforge.jit.plan import TORCH
from kernforge.system import digest, files
from kernforge.system.console import Report

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kernforge.jit.machine import Shop
    from kernforge.jit.plan import Made, Request
    from kernforge.jit.torch_headers import Read

_log = logging.getLogger("kernforge")
_SWITCH = "KERNFORGE_JIT_SLIM"
_MARK = "whole"
_headers: dict[str, dict[str, str | None]] = {}
# Modules, by name and sources, that were found to need torch's headers as they are.
_whole: set[tuple[str, tuple[str, ...]]] = set()


def make(request: Request, shop: Shop, report: Report, own: Iterable[str]) -> tuple[Made, Path]:
    """Get a requested module into the store.

    Args:
        request: what is to be made.
        shop: what to make it with.
        report: is told what happens.
        own: the user's files, as the request names them.

    Returns:
        The plan that made it, and where the shared object, or the program, lies.

    Raises:
        BuildError: a compiler failed; the message is what it wrote, with the user's paths.
        StorageError: the disk is full or read-only.
    """
    told = tuple(own)
    for one in _forms(request, shop):
        made = plan.make(one, shop.machine)
        if one is not request and shop.store.has(STORE_KIND, mark := _mark(made)):
            continue
        again = functools.partial(plan.make, one, shop.machine)
        quiet = Report(quiet=True, failures=False)
        try:
            path = build_module.make(
                made, shop, report, quiet=quiet, tell=report.note, own=told, again=again
            )
        except BuildError as error:
            if one is request or not torch_headers.fell_short(error.message):
                raise
            plain = plan.make(request, shop.machine)
            if mistake.is_certain(plain, shop, error.message):
                raise
            advice.tell_again(error.message)
            _log.info("%s is compiled with torch's headers as they are: %s", request.name, error)
            _whole.add(_name(request))
            shop.store.tree(STORE_KIND, mark, lambda tree: files.write_new(tree / _MARK, ""))
        else:
            return made, path
    raise AssertionError("a request is its own last form")


def _forms(request: Request, shop: Shop) -> Iterator[Request]:
    """The ways to make a request, the fastest first."""
    if os.environ.get(_SWITCH) != "0" and _name(request) not in _whole:
        include = str(Path(shop.roots[TORCH]) / "include")
        read = reader(Path(include), _headers.setdefault(include, {}))
        if slim := torch_headers.slimmed(request, read):
            yield slim
    yield request


def reader(directory: Path, known: dict[str, str | None]) -> Read:
    """Reads headers below a directory, each once.

    Args:
        directory: torch's ``include``.
        known: what was read before.
    """

    def read(name: str) -> str | None:
        if name not in known:
            path = directory / name
            known[name] = path.read_text(encoding="utf-8") if path.is_file() else None
        return known[name]

    return read


def _name(request: Request) -> tuple[str, tuple[str, ...]]:
    return request.name, tuple(unit.path for unit in request.units)


def _mark(made: Made) -> str:
    """What says in the store, to other processes, that this module was tried in vain."""
    return digest.key("jit-whole", link=made.link.key)
