# SPDX-License-Identifier: Apache-2.0
"""Every kernel names calls for compute-sanitizer, and the table says what each tool found."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import sanitize

ROOT = Path(__file__).parents[2]


def test_every_kernel_has_calls_for_compute_sanitizer():
    with_calls = {path.parents[1].name for path in ROOT.glob("kernels/*/tests/sanitize.py")}
    assert with_calls == {path.parent.name for path in ROOT.glob("kernels/*/build.toml")}


def test_the_table_says_what_was_found_and_what_did_not_end():
    made = {"kernel": "a", "calls": 7, "finds": ""}
    results = [
        {**made, "tool": "memcheck"},
        {**made, "tool": "racecheck", "finds": "Race reported"},
        {**made, "kernel": "b", "tool": "memcheck", "calls": None, "finds": "ended after 9 s"},
    ]
    table = sanitize.table(results, {"gpu": "NVIDIA H200"})
    assert table["head"] == ["kernel", "calls", "memcheck finds", "racecheck finds"]
    assert table["rows"] == [["a", "7", "nothing", "findings"], ["b", "0", "not ended", ""]]
