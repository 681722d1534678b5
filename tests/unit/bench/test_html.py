# SPDX-License-Identifier: Apache-2.0
"""The page of results: well-formed, whole, and nothing from elsewhere."""

import copy
import re
import xml.etree.ElementTree as ET

import pytest

from kernforge.bench import html, svg, text

NAMES = ["kernel", "torch eager", "<odd & 'name'>"]
MODES = ("cold", "launch")


def row(name, mode, median):
    return {
        "candidate": name,
        "mode": mode,
        "samples": 48,
        "median_ns": median,
        "low_ns": median * 0.98,
        "high_ns": median * 1.03,
        "bytes_per_s": 4e12 / median,
        "flops_per_s": 8e12 / median,
        "share_of_roof": 800 / median,
        "refused": "",
        "skipped": "",
    }


def case(size, flops):
    top = {"bytes": 8 * size, "flops": flops, "copy_ns": 800.0, "roof_ns": 800.0}
    top |= {"bound": "memory", "flops_per_s": 1e13 if flops else 0.0}
    rows = [
        row(name, mode, 1000.0 + size + 10 * n) for mode in MODES for n, name in enumerate(NAMES)
    ]
    for word, name in (("refused", "cheat"), ("skipped", "eager sync")):
        left = row(name, "cold", 1) | {word: f"because of {word}"}
        rows.append({k: v for k, v in left.items() if not k.endswith("_ns")})
    return {
        "name": f"float32 {size}",
        "family": "float32",
        "size": size,
        "ceilings": dict.fromkeys(MODES, top),
        "results": rows,
    }


@pytest.fixture
def document():
    machine = {
        "gpu": "a GPU",
        "cpu": "a CPU",
        "date": "2026-11-21",
        "torch": "2.11",
        "driver": None,
    }
    return {
        "format": "kernforge-bench-1",
        "project": "toy",
        "machine": machine,
        "settings": {"modes": MODES, "width": 0.02},
        "workloads": [case(1000, 0), case(100_000, 64_000)],
    }


def parsed(page):
    assert page.startswith("<!DOCTYPE html>\n")
    return ET.fromstring(page.partition("\n")[2])  # noqa: S314 - our own page


def text_of(element):
    return " ".join("".join(element.itertext()).split())


def test_every_result_is_on_the_page(document):
    root = parsed(html.html(document))
    lines = [" | ".join(text_of(cell) for cell in line) for line in root.iter("tr")]
    for each in document["workloads"]:
        for found in each["results"]:
            if "median_ns" in found:
                time, sure = text.duration(found["median_ns"]), text.interval(found)
                wanted = f"{found['candidate']} | {time} |  | {sure} | "
            else:
                word = "refused" if found["refused"] else "skipped"
                wanted = f"{found['candidate']} | {word} | because of {word}"
            assert any(line.startswith(wanted) for line in lines), wanted


def test_the_page_needs_nothing_else(document):
    page = html.html(document)
    root = parsed(page)
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert not tags & {"script", "link", "img", "iframe", "object", "image", "use"}
    assert not re.search(r"(?:src|href|url|@import)\s*[=(]", page)
    addresses = set(re.findall(r"https?://[^\s\"']+", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, which nobody fetches


def test_light_and_dark_have_all_colours(document):
    page = html.html(document)
    light, dark = re.findall(r":root \{(.*?)\}", page, re.DOTALL)
    names = set(re.findall(r"(--\w+):", light))
    assert set(re.findall(r"var\((--\w+)\)", page)) <= names
    assert names == set(re.findall(r"(--\w+):", dark))


def test_charts_hold_every_point(document):
    root = parsed(html.html(document))
    titles = [text_of(t) for t in root.iter("{http://www.w3.org/2000/svg}title")]
    for name in NAMES:
        for size in (1000, 100_000):
            marks = [t for t in titles if t.startswith(f"{name}, float32 {size}:")]
            # bandwidth and time against size in two modes, the roofline where operations count
            assert len(marks) == 2 * (3 if size == 100_000 else 2), marks


def test_the_last_run_stands_beside_this_one(document):
    before = copy.deepcopy(document)
    for found in before["workloads"][0]["results"]:
        if found["candidate"] == "kernel":
            for end in ("median_ns", "low_ns", "high_ns"):
                found[end] /= 2
    verdicts = [each.verdict for each in text.changes(document, before)]
    assert verdicts.count("slower") == 2
    assert verdicts.count("same") == len(verdicts) - 2
    assert "Since the last run" in html.html(document, before)
    assert "Since the last run" not in html.html(document)


def test_published_versions_that_are_faster_are_reported(document):
    rows = document["workloads"][0]["results"]
    assert text.behind(document) == []
    rows.append(row("me/toy@v1", "cold", 1000.0) | {"published": True})
    (told,) = text.behind(document)
    assert told.startswith("float32 1000, cold: 2 us, me/toy@v1 takes 1 us")
    assert text.behind(document, allowed=1.1) == []
    rows[-1] |= {"low_ns": 900.0, "high_ns": 2500.0}
    assert text.behind(document) == []


def test_a_version_that_is_faster_round_by_round_is_reported(document):
    rows = document["workloads"][0]["results"]
    told = {"candidate": "kernel", "value": 0.9, "low": 0.85, "high": 0.95, "rounds": 10}
    wide = {"low_ns": 900.0, "high_ns": 2500.0, "published": True}
    rows.append(row("me/toy@v1", "cold", 1800.0) | wide | {"beside": told | {"verdict": "faster"}})
    assert len(text.behind(document)) == 1
    rows[-1]["beside"] = told | {"high": 1.1, "verdict": "unsure"}
    assert text.behind(document) == []


def measured_on_a_gpu(document):
    """A document with what a GPU tells of itself."""
    told = {
        "clocks_mhz": (1755.0, 1980.0),
        "memory_mhz": (3201.0, 3201.0),
        "temperature_c": (40.0, 52.0),
        "power_w": None,
        "reasons": {"power cap": 2},
    }
    for case in document["workloads"]:
        for found in case["results"]:
            found |= {"rounds": 10, "calls": 1280, "in_a_row": 128, "conditions": told}
            found["discarded_for"] = {"power brake": 32}
    document["machine"] |= {"driver": "580.1", "not_told": {"power": "Not Supported"}}
    document["settings"] |= {"least": 6, "most": 10}
    return document


def test_conditions_are_reported_with_their_units(document):
    before = text.conditions(document)
    assert before == ["a GPU, torch 2.11"]
    lines = text.conditions(measured_on_a_gpu(document))
    results = sum(len(case["results"]) for case in document["workloads"])
    assert lines == [
        "a GPU, driver 580.1, torch 2.11",
        "6 to 10 rounds, until each 95 % interval is 2.0% of its median; every call on new inputs",
        (
            "each candidate in one process: what differs from process to process, which can be some "
            "percent of a short call, is in no interval (it is with --processes 6)"
        ),
        "while measuring: SM clock 1755 .. 1980 MHz, memory clock 3201 MHz, temperature 40 .. 52 C",
        f"clocks held back by: power cap (turns: {2 * results})",
        f"calls discarded because the GPU was slowed down: power brake {32 * results}",
        "not reported by the GPU, so not checked: power (Not Supported)",
    ]
    document["settings"]["processes"] = 6
    assert text.conditions(document)[2].startswith("a sample is a process")
    document["settings"]["processes"] = 1
    items = [text_of(each) for each in parsed(html.html(document)).iter("li")]
    assert items == lines


def test_a_difference_is_reported_with_its_interval_or_as_unsure(document):
    found = measured_on_a_gpu(document)["workloads"][0]["results"][1]
    told = {"candidate": "kernel", "value": 1.014, "low": 0.98, "high": 1.03, "rounds": 10}
    found["beside"] = told | {"verdict": "unsure"}
    (line,) = (e for e in text.rows(document["workloads"][0], "cold") if e[0] == NAMES[1])
    assert line[3] == "1.014 (0.980 .. 1.030) no sure difference"
    assert line[-1] == "1280 / 10"
    assert text.summary(document)["rows"][0][2].endswith(" ~")
    assert line[3] in text_of(parsed(html.html(document)))
    found["beside"] = told | {"low": 1.001, "verdict": "slower"}
    assert text.beside(found) == "1.014 (1.001 .. 1.030) slower"
    found["beside"] |= {"mean": 1.001, "mean_low": 0.99, "mean_high": 1.02, "verdict": "unsure"}
    by_means = "by means 1.001 (0.990 .. 1.020)"
    assert text.beside(found) == f"1.014 (1.001 .. 1.030), {by_means}, no sure difference"


def test_a_summary_has_a_cell_for_everyone(document):
    table = text.summary(document)
    assert table["title"] == "toy on a GPU, time (share of the roof)"
    assert table["head"] == ["workload", *NAMES, "cheat", "eager sync", "the roof"]
    first, second = table["rows"]
    assert first == ["float32 1000", *first[1:4], "refused", "skipped", "800 ns"]
    assert first[1] == "2 us (40%)"
    assert second[0] == "float32 100000"


@pytest.mark.parametrize("values", [(1.0, 1.0), (3.0, 5.0), (1.0, 1e12)])
def test_axes_hold_what_is_drawn(values):
    points = tuple(svg.Point(x=v, y=v, low=v * 0.9, high=v * 1.1) for v in values)
    chart = svg.Chart(
        title="t",
        across="x",
        up="y",
        series=(svg.Series(name="s", points=points, colour=0),),
        write_x=str,
        write_y=str,
    )
    root = ET.fromstring(svg.svg(chart))  # noqa: S314 - our own chart
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    marks = list(root.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(marks) == len(values) + 1  # and the legend's
    for mark in marks:
        assert 0 < float(mark.attrib["cx"]) < width
        assert 0 < float(mark.attrib["cy"]) < height
    assert len(list(root.iter("{http://www.w3.org/2000/svg}line"))) >= 2
