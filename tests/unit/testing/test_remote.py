# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

IMPORTED = """
import sys
before = set(sys.modules)
import kernforge.testing.remote
names = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(names - set(sys.stdlib_module_names) - {"kernforge"}))
"""


def test_a_worker_that_tests_needs_nothing_of_what_builds():
    # It has kernforge[testing,cluster] alone.
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True
    )
    assert [name for name in done.stdout.split() if not name.startswith("_")] == []
