# SPDX-License-Identifier: Apache-2.0
"""What the suite and every kernel's own tests share."""

import functools
import os

import pytest

from kernforge.system import garbage

# Threads of torch that wait for each other shall sleep: on a machine that has other work, such as
# a second worker of pytest, they take its cores from those that compute.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Where kernforge is on PYTHONPATH and not installed, pytest finds its plugin here.
pytest_plugins = ["kernforge.testing.plugin"]


def pytest_configure():
    """Import torch and collect thousands of tests without a look at what all stays."""
    garbage.work_seldom()


def pytest_collection_finish():
    """From here on, as everywhere."""
    garbage.work_as_usual()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With ``pytest -n``: tests run in the order in which they are collected, each where there is room.

    Those of a file that makes something for all its tests stay in one worker; it is made once.
    """
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - it need not be installed

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0]
            return file if _shares(config.rootpath / file) else nodeid

        def _reschedule(self, node):
            # A worker begins a test when it knows the next: one that replaces another that has
            # crashed would wait for ever with the one test that it is given.
            before = None
            while before != len(self.workqueue):
                before = len(self.workqueue)
                super()._reschedule(node)

        def remove_node(self, node):
            # As the original, but the test in which a worker crashed is not given to the next one.
            left = self.assigned_work.pop(node)
            todo = [
                (unit, test) for unit in left.values() for test, done in unit.items() if not done
            ]
            if not todo:
                return None
            unit, crashed = todo[0]
            unit[crashed] = True
            self.workqueue.update({s: unit for s, unit in left.items() if not all(unit.values())})
            for other in self.assigned_work:
                self._reschedule(other)
            return crashed

    config.option.loadscopereorder = False
    return Scheduling(config, log)


@functools.cache
def _shares(path):
    return 'scope="module"' in path.read_text()


def pytest_terminal_summary(terminalreporter):
    """Count what this machine could not run, so that nobody takes silence for success."""
    skipped = [
        r for r in terminalreporter.stats.get("skipped", []) if "gpu" in getattr(r, "keywords", ())
    ]
    if skipped:
        terminalreporter.section("not run here")
        terminalreporter.line(
            f"{len(skipped)} GPU tests: run `make test-gpu` on a machine with an NVIDIA GPU"
        )
