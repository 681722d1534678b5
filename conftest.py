# SPDX-License-Identifier: Apache-2.0
"""What the suite and every kernel's own tests share."""

import gc
import os
import signal

import pytest

from kernforge.system import garbage

# Threads of torch that wait for each other shall sleep: on a machine that has other work, such as
# a second worker of pytest, they take its cores from those that compute.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Tests interrupt what they start. A background job of a shell ignores SIGINT, and so would all
# that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Where kernforge is on PYTHONPATH and not installed, pytest finds its plugin here.
pytest_plugins = ["kernforge.testing.plugin"]


USUAL = gc.get_threshold()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """With ``-n auto``, a third more than cores: tests wait for disks, clocks and processes."""
    return -(-4 * len(os.sched_getaffinity(0)) // 3)


def pytest_configure():
    """Import torch and collect thousands of tests without a look at what all stays."""
    garbage.collect_rarely()


def pytest_collection_finish():
    """From here on, as everywhere."""
    gc.freeze()
    gc.set_threshold(*USUAL)


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
