# SPDX-License-Identifier: Apache-2.0
"""Make a planned module, and in the background what makes the next one faster.

Torch's headers take a compiler ten seconds and more. They are compiled once per machine and flags,
beside the first module that includes them and not before it, so that this one is not slower for it.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from typing import TYPE_CHECKING

from kernforge.build.execute import action as execute_action
from kernforge.build.execute import executor
from kernforge.build.execute.action import ActionContext
from kernforge.build.execute.results import STORE_KIND
from kernforge.errors import BuildError, KernforgeError
from kernforge.jit import machine
from kernforge.jit.device import nvcc_stages, swap
from kernforge.jit.plan import PRECOMPILED
from kernforge.store import eviction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from kernforge.build.execute.outcome import Events, Failure
    from kernforge.build.plan.graph import Action, Plan
    from kernforge.jit.machine import Shop
    from kernforge.jit.plan import Made
    from kernforge.system.process import Runner

_log = logging.getLogger("kernforge")
_LINK = "link "
_CUDA_HEADER = re.compile(r"fatal error: cu\w+\.h: No such file")
_WITH_CUDA = "with_cuda=True gives C++ sources CUDA's headers"
_background: dict[str, threading.Thread] = {}
_lock = threading.Lock()
TRIM_EVERY_S = 60.0
"""The store is not looked at more often: that takes longer than many an edit."""


def make(
    made: Made,
    shop: Shop,
    events: Events,
    *,
    quiet: Events,
    tell: Callable[[str], None],
    own: Iterable[str],
    again: Callable[[Mapping[str, Action]], Made],
) -> Path:
    """Get a module into the store.

    Args:
        made: its plan.
        shop: what to make it with.
        events: is told what happens.
        quiet: is told what happens in the background.
        tell: is told what the compilers wrote of what went well, as warnings.
        own: the user's files, as the plan names them.
        again: plans it with other objects for the units of these paths.

    Returns:
        Path of the shared object, or of the program.

    Raises:
        BuildError: a compiler failed; the message is what it wrote, with the user's paths.
        StorageError: the disk is full or read-only.
    """
    store = shop.store
    own = tuple(own)
    if store.use(STORE_KIND, made.link.key):
        swap.remember(made)
        return _told(made, shop, tell, own)
    with store.lease():
        header = _header(made, shop, quiet)
        roots = {**shop.roots, **({PRECOMPILED: header} if header else {})}
        found = swap.swapped(
            made,
            shop,
            lambda plan: _run(plan, shop, roots, quiet),
            lambda plan: _run(plan, shop, roots, quiet, nvcc_stages.run_behind),
            again,
        )
        failures = _run((found or made).plan, shop, roots, events)
        if failures:
            raise _error(failures, own)
        if not found:
            swap.learn(made, shop)
        if store.made:
            eviction.keep(store, eviction.limit(os.environ), every_s=TRIM_EVERY_S)
    return _told(found or made, shop, tell, own)


def _told(made: Made, shop: Shop, tell: Callable[[str], None], own: tuple[str, ...]) -> Path:
    """Path of what a plan made, once it is told what the compilers wrote."""
    for action in made.plan.actions:
        log = shop.store.path(STORE_KIND, action.key) / execute_action.LOG
        if log.is_file():
            tell(_users_words(log.read_text(errors="replace").rstrip(), own))
    return shop.store.path(STORE_KIND, made.link.key) / made.link.outputs[0]


def wait() -> None:
    """Wait for what is compiled in the background."""
    for thread in tuple(_background.values()):
        thread.join()
    swap.wait()


def _header(made: Made, shop: Shop, quiet: Events) -> str:
    """Directory of the compiled header if it is there; else it is begun, for the next time."""
    if made.header is None:
        return ""
    plan = made.header
    for action in plan.actions:
        if tree := shop.store.use(STORE_KIND, action.key):
            return str(tree)
    key = plan.actions[0].key
    with _lock:
        if key not in _background:
            work = threading.Thread(target=_compile_header, args=(plan, shop, quiet))
            _background[key] = work
            work.start()
    return ""


def _compile_header(plan: Plan, shop: Shop, quiet: Events) -> None:
    try:
        with shop.store.lease():
            failures = _run(plan, shop, shop.roots, quiet, nvcc_stages.run_behind)
    except KernforgeError as error:
        _log.warning("torch's headers are not compiled ahead: %s", error)
    else:
        # A user's flags that a unit compiles with may not fit a header: the unit does without.
        for failure in failures:
            _log.info("torch's headers are not compiled ahead: %s", failure.output)


def _run(
    plan: Plan,
    shop: Shop,
    roots: Mapping[str, str],
    events: Events,
    runner: Runner = nvcc_stages.run_stages,
) -> tuple[Failure, ...]:
    workshop = ActionContext(store=shop.store, trees=roots, runner=runner, jobs=machine.jobs())
    return executor.run_actions(plan, workshop, events).failures


def _error(failures: tuple[Failure, ...], own: tuple[str, ...]) -> BuildError:
    """An error that says what the compilers wrote."""
    texts = [_users_words(failure.output, own) for failure in failures]
    title = ", ".join(sorted(_done(failure.action.title) for failure in failures))
    repeat = "\n".join(failure.repeat for failure in failures)
    advice = f"{_WITH_CUDA}; " if any(map(_CUDA_HEADER.search, texts)) else ""
    return BuildError("\n".join((title, *texts)), hint=f"{advice}repeat it by hand:\n{repeat}")


def _done(title: str) -> str:
    """What cannot be done."""
    if title.startswith(_LINK):
        return f"{title.removeprefix(_LINK)} cannot be linked"
    return f"{title} cannot be compiled"


def _users_words(text: str, own: Iterable[str]) -> str:
    """What a compiler wrote, with the user's paths in the place of those in the room."""
    for path in own:
        text = re.sub(rf"(?<![\w/.-]){re.escape(path)}", f"/{path}", text)
    return text
