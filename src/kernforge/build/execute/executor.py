# SPDX-License-Identifier: Apache-2.0
"""Run a plan: every action that the store does not know yet, then lay the variants out.

The order is ``graphlib``'s, the hands are a crew's: threads here, or a cluster. When an action
fails, what needs it is left out and everything else goes on; when one is killed for its memory, it
gets a second chance with the machine to itself.
"""

from __future__ import annotations

import concurrent.futures
import graphlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.build import layout as artifacts
from kernforge.build.execute import action as execute_action
from kernforge.build.execute import cost, results, sandbox
from kernforge.build.execute.local_pool import Crew as LocalCrew
from kernforge.build.execute.measures import Measures
from kernforge.build.execute.outcome import Done, Failure, Outcome, Spent, out_of_memory
from kernforge.build.execute.results import SHELF
from kernforge.build.layout import BuiltWith
from kernforge.build.plan import graph
from kernforge.system import files

if TYPE_CHECKING:
    from kernforge.build.execute.action import Workshop
    from kernforge.build.execute.outcome import Crew, Events
    from kernforge.build.plan.graph import Action, Plan
    from kernforge.build.provenance import Origin
    from kernforge.project.api import Project


def build(
    plan: Plan,
    project: Project,
    workshop: Workshop,
    *,
    out: Path,
    origin: Origin,
    events: Events,
    crew: Crew | None = None,
) -> Outcome:
    """Run a plan and lay out each variant whose actions all went well.

    Args:
        plan: what to do.
        project: where the sources are.
        workshop: what to do it with.
        out: directory that will hold a directory for each variant; an old one of the same name
            is replaced as a whole.
        origin: sources, lock and builder, for the provenance of every variant.
        events: is told what happens.
        crew: who runs the actions; threads here, as many as the workshop says, by default.

    Raises:
        StorageError: the disk is full or read-only.
        KeyboardInterrupt: passed on after every program was killed; nothing is left half-written.
    """
    loop = _Loop(plan, project, workshop, events)
    start = time.monotonic()
    loop.go(crew or LocalCrew(jobs=workshop.jobs))
    wall_s = time.monotonic() - start
    variants = {}
    for artifact in plan.artifacts:
        extension = artifact.extension and loop.output(artifact.extension)
        if artifact.extension and not extension:
            continue
        made = results.made_for(plan, artifact, workshop.store)
        built_with = BuiltWith(origin=origin, actions=made)
        with files.staging(out) as staged:
            tree = staged / artifact.target.name
            files.make_dir(tree)
            artifacts.lay_out(artifact, project, extension or None, built_with, tree)
            files.replace_tree(tree, out / artifact.target.name)
        variants[artifact.target.name] = out / artifact.target.name
    names = [a.target.name for a in plan.artifacts]
    return Outcome(
        variants=variants,
        failures=tuple(loop.failures),
        left_out=tuple(name for name in names if name not in variants),
        ran=loop.ran,
        reused=loop.reused,
        shared=loop.shared,
        cpu_s=sum(one.cpu_s for one in loop.spent),
        wall_s=wall_s,
        spent=tuple(sorted(loop.spent, key=lambda one: -one.wall_s)),
    )


def run_actions(
    plan: Plan, workshop: Workshop, events: Events, project: Project | None = None
) -> tuple[Failure, ...]:
    """Run a plan and lay nothing out; return the actions that failed.

    Args:
        plan: what to do; without a project it holds all its inputs.
        workshop: what to do it with.
        events: is told what happens.
        project: where sources are.

    Raises:
        StorageError: the disk is full or read-only.
    """
    loop = _Loop(plan, project, workshop, events)
    loop.go(LocalCrew(jobs=workshop.jobs))
    return tuple(loop.failures)


class _Loop:
    """The loop that runs actions, and what came of them."""

    def __init__(
        self, plan: Plan, project: Project | None, workshop: Workshop, events: Events
    ) -> None:
        self._plan, self._project, self._shop, self._events = plan, project, workshop, events
        self._by_key = {action.key: action for action in plan.actions}
        self._measures = Measures(workshop.store.root, jobs=workshop.jobs)
        self._failed: set[str] = set()
        self._alone: set[str] = set()
        self._began = time.monotonic()
        self._started: dict[str, float] = {}
        self.failures: list[Failure] = []
        self.spent: list[Spent] = []
        self.ran = self.reused = self.shared = 0

    def go(self, crew: Crew) -> None:
        # The directories of failed actions stay for a day, so that they can be looked at.
        self._shop.store.sweep(self._shop.work, "*")
        directory, pattern = sandbox.ROOMS
        self._shop.store.sweep(Path(directory), pattern)
        order = graphlib.TopologicalSorter({a.key: graph.needs(a) for a in self._plan.actions})
        order.prepare()
        self._events.planned(len(self._plan.actions), crew.usage)
        try:
            self._loop(order, crew)
        except BaseException:
            crew.kill()
            raise
        finally:
            self._events.finished()
        crew.close()

    def output(self, key: str) -> Path | None:
        """The one output of an action, if it was made."""
        if not self._shop.store.has(SHELF, key):
            return None
        return self._shop.store.path(SHELF, key) / self._by_key[key].outputs[0]

    def _loop(self, order: graphlib.TopologicalSorter[str], crew: Crew) -> None:
        running: dict[concurrent.futures.Future[Done], Action] = {}
        waiting: dict[str, Action] = {}
        missing = [a for a in self._plan.actions if not self._shop.store.has(SHELF, a.key)]
        expected = {action.key: self._measures.expect(action) for action in missing}
        seconds = {a.key: 0.0 for a in self._plan.actions}
        seconds |= {key: one.seconds for key, one in expected.items()}
        distance = cost.distances(self._plan.actions, graph.needs, seconds)
        while order.is_active():
            for key in order.get_ready():
                action = self._by_key[key]
                if graph.needs(action) & self._failed:
                    self._failed.add(key)
                    order.done(key)
                elif self._shop.store.use(SHELF, key):
                    self._note(action, Done(origin=execute_action.origin(key, self._shop.store)))
                    order.done(key)
                else:
                    waiting[key] = action
                    if key not in expected:  # it was taken away since
                        expected[key] = self._measures.expect(action)
            for action in crew.choose(tuple(waiting.values()), expected, distance, self._alone):
                del waiting[action.key]
                self._started[action.key] = time.monotonic()
                self._events.started(action)
                future = crew.submit(
                    action,
                    expected[action.key],
                    alone=action.key in self._alone,
                    work=self._perform,
                )
                running[future] = action
            finished, _ = concurrent.futures.wait(
                running, timeout=crew.patience, return_when="FIRST_COMPLETED"
            )
            for future in finished:
                action = running.pop(future)
                if self._again(action, done := future.result()):
                    waiting[action.key] = action
                else:
                    self._note(action, done)
                    order.done(action.key)

    def _perform(self, action: Action, threads: int) -> Done:
        return execute_action.perform(
            action, self._plan, self._project, self._shop, threads=threads
        )

    def _again(self, action: Action, done: Done) -> bool:
        """Whether an action that failed is to be tried once more, with nothing beside it."""
        if not done.failure or action.key in self._alone or not out_of_memory(done.failure):
            return False
        self._alone.add(action.key)
        return True

    def _note(self, action: Action, done: Done) -> None:
        if done.failure:
            self.failures.append(done.failure)
            self._failed.add(action.key)
        elif done.completed:
            ended = done.completed
            self.ran += 1
            self.spent.append(
                Spent(
                    title=action.title,
                    key=action.key,
                    start_s=self._started[action.key] - self._began,
                    wall_s=ended.wall_s,
                    cpu_s=ended.cpu_s,
                    peak_bytes=ended.peak_bytes,
                    where=done.where,
                )
            )
            self._measures.learn(action, peak_bytes=ended.peak_bytes, wall_s=ended.wall_s)
        else:
            self.reused += 1
            self.shared += done.origin == "shared"
        self._events.ended(action, done)
