# SPDX-License-Identifier: Apache-2.0
"""Scripts of the hub's form are found and named as its client does, with or without it."""

import importlib.util
import sys

import pytest

from kernforge.bench.hub import payload, repository, run, scripts
from kernforge.errors import UsageError

SCRIPT = """
from kernels.benchmark import Benchmark
import os

HERE = os.getcwd()

class Base(Benchmark):
    def verify_one(self):
        return 1

class Toy(Base):
    def benchmark_one(self):
        pass

    def benchmark_benchmark_two(self):
        pass

Alias = Toy
"""
NAMES = {"Toy.one": True, "Toy.two": False}


@pytest.fixture
def without_the_client(monkeypatch):
    real = importlib.util.find_spec
    for name in [n for n in sys.modules if n.partition(".")[0] == "kernels"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "kernels" else real(name, *a)
    )


def script(tmp_path, text=SCRIPT):
    path = tmp_path / "benchmark_toy.py"
    path.write_text(text)
    return scripts.Script(path, tmp_path, lambda: 1 / 0, "cpu")


def test_classes_are_found_with_the_client(tmp_path):
    pytest.importorskip("kernels")
    assert script(tmp_path).entries() == NAMES
    assert str(tmp_path) == sys.modules["benchmark_module"].HERE


@pytest.mark.usefixtures("without_the_client")
def test_classes_are_found_without_the_client(tmp_path):
    assert script(tmp_path).entries() == NAMES
    assert "kernels" not in sys.modules
    with pytest.raises(ModuleNotFoundError, match=r"kernels\.benchmarks"):
        script(tmp_path, "from kernels.benchmarks import SiluAndMulBenchmark")


def test_our_own_base_will_do(tmp_path):
    text = SCRIPT.replace("kernels.benchmark", "kernforge")
    assert script(tmp_path, text).entries() == NAMES


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (("me/toy@v1", None, None), ("me/toy", "1", None)),
        (("me/toy@main", None, None), ("me/toy", None, "main")),
        (("me/toy@v1.2.0", None, None), ("me/toy", None, "v1.2.0")),
        (("me/toy", "~=1.2", None), ("me/toy", "~=1.2", None)),
        (("me/toy", None, "abc"), ("me/toy", None, "abc")),
    ],
)
def test_a_version_is_asked_for_as_the_client_does(asked, found):
    assert repository.asked(*asked) == found


@pytest.mark.parametrize(
    "asked", [("me/toy", None, None), ("me/toy@1", None, None), ("me/toy@v1", "1", None)]
)
def test_an_unclear_version_is_refused(asked):
    with pytest.raises(UsageError, match="me/toy"):
        repository.asked(*asked)


def row(candidate, middle, **more):
    if middle is None:
        return {"candidate": candidate, "mode": "hot", "refused": "it lies", **more}
    spread = {"mean": middle, "std": 1.0, "least": 1e6, "most": 9e6, "q1": 2e6, "q3": 4e6}
    return {
        "candidate": candidate,
        "mode": "hot",
        "refused": "",
        "samples": 7,
        "median_ns": middle,
        "low_ns": middle * 0.9,
        "high_ns": middle * 1.1,
        "spread_ns": spread | {"outliers": 2},
        **more,
    }


def document(reference, *rows):
    return {
        "machine": {"gpu": None, "cuda": None, "torch": "2.13.0", "system": "Linux 6"},
        "settings": {"modes": ["hot"]},
        "workloads": [{"name": "Toy.one", "reference": reference, "results": list(rows)}],
        "failed": {"Toy.two": "ValueError: no"},
    }


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (
            document("apart", row("kernel", 2e6), row("reference", 8e6)),
            ("8 ms (4.00x)", "verified"),
        ),
        (
            document("beside the kernel", row("kernel", 2e6), row("reference", 2.1e6)),
            ("2.1 ms (1.05x, unsure)", "verified beside the kernel"),
        ),
        (document("none", row("kernel", 2e6)), ("", "not verified")),
        (document("apart", row("kernel", None)), ("", "refused: it lies")),
    ],
)
def test_the_table_says_how_sure_it_is(case, words):
    assert [line[-2:] for line in payload.rows(case)] == [words]


def test_the_hubs_document_has_what_was_measured_and_is_right():
    def made(*rows, reference="apart"):
        return payload.payload(
            document(reference, *rows),
            device="cpu",
            kernel_id="_toy_cpu_0a1b2c3",
            scripts_sha="ff",
            system="Linux 6",
            cpu="x86_64",
        )

    (entry,) = made(row("kernel", 3e6))["results"]
    assert entry["verified"] is True
    assert entry["timingResults"] == {
        "mean_ms": 3.0,
        "std_ms": 0.0,
        "min_ms": 1.0,
        "max_ms": 9.0,
        "q1_ms": 2.0,
        "q3_ms": 4.0,
        "iqr_ms": 2.0,
        "outliers": 2,
        "iterations": 7,
    }
    assert "verified" not in made(row("kernel", 3e6), reference="none")["results"][0]
    refused = made(row("kernel", None))
    assert (refused["results"], refused["kernelCommitSha"]) == ([], "0a1b2c3")
    assert run.refusals(refused["kernforge"]) == [
        "Toy.two: ValueError: no",
        "Toy.one, kernel, hot: it lies",
    ]
