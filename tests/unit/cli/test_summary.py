# SPDX-License-Identifier: Apache-2.0
from kernforge.builder.executor import Outcome, Spent
from kernforge.cli.commands import build


def outcome(*spent, shared=0):
    return Outcome(
        failures=(),
        ran=len(spent),
        reused=4,
        shared=shared,
        cpu_s=9.0,
        wall_s=5.0,
        spent=spent,
    )


def spent(title, wall_s):
    return Spent(
        title=title, key=title, start_s=0.0, wall_s=wall_s, cpu_s=1.0, peak_bytes=10**9, where=""
    )


def test_the_summary_names_the_longest_actions():
    text = build.spent_text(outcome(spent("long.cu", 4.0), spent("tiny", 0.01), shared=3))
    assert "2 actions ran in 5.0 s (9.0 CPU-s), 4 from the store, 3 of them from the shared" in text
    assert "long.cu" in text
    assert "tiny" not in text


def test_the_summary_for_programs_adds_up():
    document = build.spent_document(outcome(spent("long.cu", 4.0)))
    assert document["spent"][0]["title"] == "long.cu"
    assert (document["ran"], document["peak_bytes"]) == (1, 10**9)
