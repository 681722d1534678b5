# SPDX-License-Identifier: Apache-2.0
"""Each fault is caught by the check made for it and by no other; the honest operator passes all."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

HERE = Path(__file__).parent
SRC = HERE.parents[1] / "src"
CAUGHT_BY = {
    "Honest": set(),
    "WriteBehind": {"sentinels"},
    "WriteBefore": {"sentinels"},
    "ReadBehind": {"neighbours"},
    "WrongTail": {"values"},
    "IgnoredStride": {"views"},
    "NotDeterministic": {"determinism"},
    "ModifiedInput": {"inputs_untouched"},
    "WrongNan": {"special_values"},
    "MissingFake": {"opcheck[fake-cpu]"},
    "WrongFakeStrides": {"opcheck[fake-cpu]"},
    "WrongFakeShape": {"opcheck[fake-cpu]"},
    "IncomingStrides": {"gradients"},
    "MixedStrides": {"mixed_views"},
    "WrongDtype": {"values"},
    "WrongBackward": {"gradients"},
    "Recompiles": {"compile"},
    "GraphBreak": {"compile", "compiled_gradients"},
}


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    """The names of the checks that fail, by operator."""
    place = tmp_path_factory.mktemp("broken") / "outcomes.json"
    argv = [sys.executable, "-m", "pytest", "-p", "kernforge.testing.plugin", "-q", "--tb=short"]
    argv += ["-p", "no:cacheprovider", "-p", "no:xdist", "-c", os.devnull, "--rootdir", HERE]
    env = {**os.environ, "PYTHONPATH": f"{SRC}:{HERE}", "KERNFORGE_TEST_COUNTS": str(place)}
    env["OMP_NUM_THREADS"] = "1"
    env.pop("KERNFORGE_KERNEL_DIR", None)
    done = subprocess.run(
        [*argv, HERE / "declared.py"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout[-5000:] + done.stderr[-5000:]
    found = defaultdict(set)
    for row in json.loads(place.read_text()):
        _, owner, name = row["test"].split("::")
        bare = name if name.startswith("test_opcheck") else name.partition("[")[0]
        if row["outcome"] not in ("passed", "skipped"):
            found[owner.removeprefix("Test")].add(bare.removeprefix("test_"))
    return found


@pytest.mark.parametrize("name", CAUGHT_BY)
def test_a_fault_is_caught_by_the_check_made_for_it(failed, name):
    # Behind an argument of any check may lie, by chance, what that check lays there.
    by_chance = failed[name] if name == "ReadBehind" else set()
    assert failed[name] == CAUGHT_BY[name] | by_chance
