# SPDX-License-Identifier: Apache-2.0
"""What the suite and every kernel's own tests share."""

# Where kernforge is on PYTHONPATH and not installed, pytest finds its plugin here.
pytest_plugins = ["kernforge.testing_plugin"]


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
