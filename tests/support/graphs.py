# SPDX-License-Identifier: Apache-2.0
"""Graphs of small real programs, to run without a compiler."""

from kernforge.builder import executor
from kernforge.builder.action import ActionContext
from kernforge.builder.graph import Action, Input, Plan
from kernforge.store.local import Store
from kernforge.system import digest
from kernforge.system.process import run


def action(title, script, *, needs=(), outputs=("out",), shell="/bin/sh"):
    """An action that runs a shell script, or a Python program, in its directory."""
    inputs = tuple(
        Input(path=f"in/{n}", digest=one.key, action=one.key, output=one.outputs[0])
        for n, one in enumerate(needs)
    )
    argv = (shell, "-c", script)
    key = digest.key("test", title=title, argv=list(argv), inputs=[i.digest for i in inputs])
    return Action(
        kind="c++",
        title=title,
        argv=argv,
        inputs=inputs,
        outputs=outputs,
        trees=(),
        key=key,
        variants=("v",),
    )


def plan(*actions):
    return Plan(actions=actions, artifacts=(), texts={}, sources_id="0")


def context(root, *, jobs=4, shared=None, runner=run):
    return ActionContext(store=Store(root, shared), trees={}, runner=runner, jobs=jobs)


class Events:
    """Remembers the order of things."""

    def __init__(self):
        self.log = []
        self._titles = {}

    def note(self, text):
        self.log.append(text)

    def planned(self, actions):
        self.log.append("planned")

    def started(self, key, title):
        self._titles[key] = title
        self.log.append(f"+{title}")

    def ended(self, key, text, *, seconds, peak_bytes, failed):
        self.log.append(f"-{self._titles.get(key, text)}")

    def finished(self):
        self.log.append("finished")


def go(root, *actions, pool=None, **options):
    """Run a graph; returns the outcome and the events."""
    events = Events()
    given = options.pop("context", None) or context(root, **options)
    outcome = executor.run_actions(plan(*actions), given, events, pool=pool)
    return outcome, events
