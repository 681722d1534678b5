# SPDX-License-Identifier: Apache-2.0
"""Run a plan: every action that the store does not know yet.

The order is ``graphlib``'s; a pool runs the actions: threads here, or the workers of a farm. When
an action fails, what needs it is left out and everything else goes on; one that is killed for its
memory is tried once more, with the machine to itself.
"""

from __future__ import annotations

import concurrent.futures
import graphlib
import re
import time
from dataclasses import dataclass

from kernforge.builder import action as execute_action, graph, results, sandbox
from kernforge.builder.action import ActionContext, Done, Failure
from kernforge.builder.graph import Action, Plan
from kernforge.builder.pool import Job, LocalPool, Measures, critical_paths
from kernforge.builder.results import STORE_KIND
from kernforge.errors import ToolchainError
from kernforge.system import files
from kernforge.system.progress import Progress

# Messages of compilers, drivers and shells after the out-of-memory killer.
_KILLED = re.compile(
    r"died due to signal 9|Killed signal terminated|signal 9 \(|^Killed$", re.MULTILINE
)
_KILL_STATUS = (-9, 128 + 9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Time and memory of one action.

    Attributes:
        start_s: when it was handed out, in seconds since the build began.
    """

    title: str
    key: str
    start_s: float
    wall_s: float
    cpu_s: float
    peak_bytes: int
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the actions of a plan ended.

    Attributes:
        shared: how many of these came from the shared store.
        spent: what each action that ran took, the longest first.
    """

    failures: tuple[Failure, ...]
    reused: int
    shared: int
    wall_s: float
    spent: tuple[Spent, ...]

    @property
    def ran(self) -> int:
        """How many actions ran without a failure."""
        return len(self.spent)

    @property
    def cpu_s(self) -> float:
        """CPU seconds of those that ran."""
        return sum(spent.cpu_s for spent in self.spent)


def run_actions(
    plan: Plan,
    context: ActionContext,
    events: Progress,
    *,
    pool: LocalPool | None = None,
) -> Outcome:
    """Run a plan's actions; their results go into the store.

    Args:
        pool: runs the actions; by default threads of this process, as many as ``context.jobs``.
    """
    loop = _Loop(plan, context, events)
    loop.go(pool or LocalPool(jobs=context.jobs))
    return Outcome(
        failures=tuple(loop.failures),
        reused=loop.reused,
        shared=loop.shared,
        wall_s=time.monotonic() - loop.began,
        spent=tuple(sorted(loop.spent, key=lambda spent: -spent.wall_s)),
    )


class _Loop:
    """The loop that runs actions, with their results."""

    def __init__(self, plan: Plan, context: ActionContext, events: Progress) -> None:
        self._plan, self._context, self._events = plan, context, events
        self._measures = Measures(context.store.root, jobs=context.jobs)
        self._failed: set[str] = set()
        self.began = time.monotonic()
        self.failures: list[Failure] = []
        self.spent: list[Spent] = []
        self.reused = self.shared = 0

    def go(self, pool: LocalPool) -> None:
        # The directories of failed actions stay for a day, so that they can be looked at.
        files.sweep(self._context.work, ".*")
        files.sweep(sandbox.PLACE, sandbox.NAMES)
        order = graphlib.TopologicalSorter({a.key: a.needs for a in self._plan.actions})
        order.prepare()
        self._events.planned(len(self._plan.actions))
        try:
            self._loop(order, pool)
        except BaseException:
            pool.kill()
            raise
        finally:
            self._events.finished()
        pool.close()

    def _loop(self, order: graphlib.TopologicalSorter[str], pool: LocalPool) -> None:
        store, actions = self._context.store, {each.key: each for each in self._plan.actions}
        running: dict[concurrent.futures.Future[Done], Job] = {}
        waiting: dict[str, Job] = {}
        results.evict_corrupt(self._plan, store, compiles=not self._context.refusal)
        if self._context.refusal:
            self._reuse()
            return
        expected = {
            key: self._measures.expect(action)
            for key, action in actions.items()
            if not store.has(STORE_KIND, key)
        }
        critical_path_s = critical_paths(self._plan.actions, expected)
        while order.is_active():
            for key in order.get_ready():
                action = actions[key]
                if action.needs & self._failed:
                    self._failed.add(key)
                    order.done(key)
                elif store.use(STORE_KIND, key):
                    self._note(action, Done())
                    order.done(key)
                else:  # a result without an estimate was evicted since
                    waiting[key] = Job(
                        action=action,
                        estimate=expected.get(key) or self._measures.expect(action),
                        critical_path_s=critical_path_s[key],
                    )
            for job in pool.choose(tuple(waiting.values())):
                del waiting[job.action.key]
                job.started = time.monotonic()
                self._events.started(job.action.key, job.action.title)
                running[pool.submit(job, self._run)] = job
            finished, _ = concurrent.futures.wait(
                running, timeout=pool.poll_interval_s, return_when="FIRST_COMPLETED"
            )
            for future in finished:
                job, done = running.pop(future), future.result()
                killed = done.failure and (
                    done.failure.returncode in _KILL_STATUS or _KILLED.search(done.failure.output)
                )
                if killed and not job.alone:
                    job.alone = True  # it is tried again, with nothing running at the same time
                    waiting[job.action.key] = job
                else:
                    self._note(job.action, done, job.started)
                    order.done(job.action.key)

    def _reuse(self) -> None:
        """Take all that is asked for from the store; what went into it need not be there."""
        store, plan = self._context.store, self._plan
        needed = {key for action in plan.actions for key in action.needs}
        asked = [action for action in plan.actions if action.key not in needed]
        if missing := [each for each in asked if not store.use(STORE_KIND, each.key)]:
            behind = [a.title for each in missing for a in graph.behind(plan, each.key) if a.source]
            names = ", ".join(each.outputs[0] for each in missing)
            made_of = f" from {', '.join(dict.fromkeys(behind))}" if behind else ""
            raise ToolchainError(
                f"{names} is not in the store ({store.root}), and {self._context.refusal}",
                hint=f"it would be compiled{made_of}: run the same program where a compiler is, "
                "with the same sources, flags, torch, Python and GPU, and use that KERNFORGE_HOME",
            )
        for action in asked:
            self._note(action, Done())

    def _run(self, job: Job) -> Done:
        return execute_action.run_action(job.action, self._plan, self._context, threads=job.threads)

    def _note(self, action: Action, done: Done, started: float = 0.0) -> None:
        text, completed = action.title, done.completed
        if done.where:
            text += f"  on {done.where}"
        if done.failure:
            self.failures.append(done.failure)
            self._failed.add(action.key)
            text = done.failure.text(done.where)
        elif completed:
            self.spent.append(
                Spent(
                    title=action.title,
                    key=action.key,
                    start_s=started - self.began,
                    wall_s=completed.wall_s,
                    cpu_s=completed.cpu_s,
                    peak_bytes=completed.peak_bytes,
                    where=done.where,
                )
            )
            self._measures.learn(action, peak_bytes=completed.peak_bytes, wall_s=completed.wall_s)
        else:
            self.reused += 1
            self.shared += action.key in self._context.store.fetched
        self._events.ended(
            action.key,
            text,
            seconds=completed.wall_s if completed else 0.0,
            peak_bytes=completed.peak_bytes if completed else 0,
            failed=done.failure is not None,
        )
