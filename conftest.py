# SPDX-License-Identifier: Apache-2.0
"""What the suite and every kernel's own tests share."""

import os

import pytest

# Threads of torch that wait for each other shall sleep: on a machine that has other work, such as
# a second worker of pytest, they take its cores from those that compute.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Where kernforge is on PYTHONPATH and not installed, pytest finds its plugin here.
pytest_plugins = ["kernforge.testing_plugin"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Have tests that share what one of their module's fixtures made run in one worker.

    With ``pytest -n 2 --dist loadgroup`` it is then made once.
    """
    for item in items:
        made = getattr(item, "_fixtureinfo", None)
        shared = made.name2fixturedefs.values() if made else ()
        if any(each.scope in ("module", "package") for defs in shared for each in defs):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


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
