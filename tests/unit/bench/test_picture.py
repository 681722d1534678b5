# SPDX-License-Identifier: Apache-2.0
"""The picture of a document: the best peer is named, intervals are drawn, nothing is left out."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from kernforge.bench import picture

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"
SVG = "{http://www.w3.org/2000/svg}"


def row(name, *, median=100.0, ratio=None, **more):
    found = {"candidate": name, "mode": "hot", "refused": "", "skipped": ""}
    found |= {"median_ns": median, "low_ns": median * 0.99, "high_ns": median * 1.01}
    if ratio:
        low, value, high = ratio
        found["beside"] = {"value": value, "low": low, "high": high, "verdict": "unsure"}
    return found | more


def document(*cases):
    machine = {"gpu": None, "cpu": "a CPU", "torch": "2.11", "cuda": None}
    return {
        "machine": machine,
        "settings": {"modes": ["hot"], "most": 12},
        "workloads": [{"name": f"n{i}", "results": found} for i, found in enumerate(cases)],
    }


def parsed(shown):
    return ET.fromstring(shown)  # noqa: S314 - ours


def texts(shown):
    return [element.text for element in parsed(shown).iter(f"{SVG}text")]


def test_the_fastest_other_candidate_is_named():
    found = [row("kernel"), row("slow", ratio=(2.9, 3, 3.1)), row("quick", ratio=(0.7, 0.8, 0.9))]
    (drawn,) = picture.rows(document(found), "hot")
    assert [mark.name for mark in drawn.marks] == ["quick", "slow"]
    shown = picture.svg(document(found), title="<a> & b")
    assert "0.80x quick" in texts(shown)
    assert texts(shown)[0] == "<a> & b"
    assert "1x" in texts(shown)
    places = re.findall(r'<circle class="(best|other)[^"]*" cx="([0-9.]+)"', shown)
    one = float(re.search(r'class="one" x1="([0-9.]+)"', shown)[1])
    ends = {kind: float(at) for kind, at in places}
    assert ends["best"] < one < ends["other"]


def test_what_has_no_ratio_says_why():
    refused = row("kernel", refused="wrong result")
    del refused["median_ns"]
    shown = picture.svg(
        document([refused, row("peer")], [row("kernel"), row("peer", ratio=(1, 2, 3))]), title="t"
    )
    assert "wrong result" in texts(shown)
    alone = picture.svg(document([row("kernel")]), title="t")
    assert "there is no other candidate to compare with" in texts(alone)


def test_a_time_that_cannot_be_told_is_hollow():
    found = [row("kernel"), row("peer", ratio=(0.5, 1.0, 2.0), cannot_tell="rounds differ")]
    shown = picture.svg(document(found), title="t")
    assert 'class="best unsure"' in shown
    assert any(text.endswith("cannot tell") for text in texts(shown))


def test_an_older_document_has_the_widest_interval_of_both():
    (drawn,) = picture.rows(document([row("kernel"), row("peer", median=200.0)]), "hot")
    (mark,) = drawn.marks
    assert (mark.low, mark.value, mark.high) == pytest.approx((198 / 101, 2.0, 202 / 99))


@pytest.mark.parametrize("name", ["img2gray-h200", "layer-norm-h200", "relu-scale-bench-h200"])
def test_stored_results(name):
    stored = json.loads((RESULTS / f"{name}.json").read_text())
    shown = picture.svg(stored, title=name)
    root = parsed(shown)
    width = float(root.get("width"))
    assert len(list(root.iter(f"{SVG}circle"))) >= len(stored["workloads"])
    for element in root.iter():
        for place in ("cx", "x1", "x"):
            assert 0 <= float(element.get(place, 0)) <= width
    assert "prefers-color-scheme:dark" in shown
    assert "http" not in shown.replace("http://www.w3.org/2000/svg", "")
    for mode in stored["settings"]["modes"]:
        ticks = picture._ticks(0.5, 40, lambda value: value * 100)
        assert ticks == sorted(set(ticks))
        assert picture.rows(stored, mode)
