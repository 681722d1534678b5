# SPDX-License-Identifier: Apache-2.0
"""Graphs of small real programs, to run without a compiler."""

import types

from kernforge.build.execute import executor
from kernforge.build.execute.action import Workshop
from kernforge.build.plan.graph import Action, Input, Plan
from kernforge.store.local import Store
from kernforge.system import digest
from kernforge.system.process import run


def action(title, script, *, needs=(), outputs=("out",), shell="sh"):
    """An action that runs a shell script, or a Python program, in its directory."""
    inputs = tuple(
        Input(path=f"in/{n}", origin="action", name=f"{one.key}/{one.outputs[0]}", digest=one.key)
        for n, one in enumerate(needs)
    )
    argv = (shell, "-c", script)
    key = digest.key("test", title=title, argv=list(argv), inputs=[i.name for i in inputs])
    return Action(
        title=title, argv=argv, inputs=inputs, outputs=outputs, roots=(), key=key, variants=("v",)
    )


def plan(*actions):
    return Plan(actions=actions, artifacts=(), texts={}, sources_id="0")


def workshop(root, *, jobs=4, shared=None, runner=run):
    return Workshop(store=Store(root, shared), roots={}, runner=runner, jobs=jobs)


class Events:
    """Remembers the order of things."""

    def __init__(self):
        self.log = []
        self.done = {}

    def planned(self, actions, usage):
        self.log.append("planned")

    def started(self, action):
        self.log.append(f"+{action.title}")

    def ended(self, action, done):
        self.log.append(f"-{action.title}")
        self.done[action.title] = done

    def finished(self):
        self.log.append("finished")


def go(root, *actions, crew=None, **options):
    """Build a graph; returns the outcome and what was told."""
    events = Events()
    project = types.SimpleNamespace(files={})
    shop = options.pop("shop", None) or workshop(root, **options)
    outcome = executor.build(
        plan(*actions), project, shop, out=root / "variants", origin=None, events=events, crew=crew
    )
    return outcome, events
