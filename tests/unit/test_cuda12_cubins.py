# SPDX-License-Identifier: Apache-2.0
"""What is kept of the comparison with real builds of CUDA 12 is a comparison, and found no difference."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import compare_cuda12

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
KEPT = json.loads((RESULTS / "cuda12-cubins.json").read_text())["cuda12"]


def entries(rows):
    return tuple(compare_cuda12.Entry(**{**row, "notes": tuple(row["notes"])}) for row in rows)


@pytest.mark.parametrize("row", KEPT, ids=lambda row: row["cuda"])
def test_the_kept_comparison(row):
    ours, real = entries(row["ours"]), entries(e for found in row["real"].values() for e in found)
    assert compare_cuda12.differences(ours, real) == row["differences"] == []
    assert "elf 90" in row["compared"]
    assert {e.format.split()[-1] for e in ours if e.kind == "ptx"} == {
        {"12.6": "8.5", "12.8": "8.7", "12.9": "8.8"}[row["cuda"]]
    }


def test_another_cuda_is_a_difference():
    first, second = (
        entries(e for found in row["real"].values() for e in found) for row in KEPT[:2]
    )
    ours = entries(KEPT[1]["ours"])
    assert compare_cuda12.differences(ours, second) == []
    assert len(compare_cuda12.differences(ours, first)) == 5
