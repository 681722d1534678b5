# SPDX-License-Identifier: Apache-2.0
"""What the script that builds other people's kernels concludes from what it sees."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from kernforge.artifact.variant import Backend
from kernforge.artifact.version import Version2
from kernforge.loader.host import Host

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import community
import community_build
import community_test

JUNIT = """<testsuites><testsuite tests="4" failures="1" errors="0" skipped="1">
<testcase name="a"/><testcase name="b"><failure message="{message}">text</failure></testcase>
<testcase name="c"><skipped message="no GPU"/></testcase><testcase name="d"/>
</testsuite></testsuites>"""


def built(**fields):
    known = {"kernel": "co/k", "backend": "cpu", "variant": "v", "python_name": "k"}
    known |= {"repo_id": "o/k", "version": 1, "built": True, "check": "clean"}
    return community_build.Built(**known | fields)


def after(**fields):
    loads = {"kernforge": True, "kernels": True}
    return community_test.Tested(**{"kernel": "co/k", "variant": "v", "loads": loads} | fields)


@pytest.mark.parametrize(
    ("build", "test", "right"),
    [
        (built(), None, True),
        (built(), after(passed=3), True),
        (built(), after(passed=3, failed=1), False),
        (built(), after(loads={"kernforge": True, "kernels": False}), False),
        (built(check="1 errors"), None, False),
        (built(built=False), None, False),
        (built(built=False, expected_failure=True), None, True),
    ],
)
def test_a_kernel_is_right_when_it_builds_loads_and_passes_or_is_refused_as_it_must_be(
    build, test, right
):
    assert community.good(build, test) is right


@pytest.mark.parametrize(
    ("message", "failed", "skipped"),
    [("1 != 2", 1, 1), (f"AssertionError: {community_test.NO_CUDA}", 0, 2)],
)
def test_a_test_that_wants_a_gpu_did_not_fail(tmp_path, message, failed, skipped):
    report = tmp_path / "report.xml"
    report.write_text(JUNIT.format(message=message))
    result = after()
    community_test._count(result, report)
    assert (result.passed, result.failed, result.skipped) == (2, failed, skipped)
    assert message in result.why


@pytest.mark.parametrize(
    ("names", "backend", "chosen"),
    [
        (["torch212-cxx11-cpu-x86_64-linux", "torch213-cxx11-cpu-x86_64-linux"], "cpu", 1),
        (["torch211-cxx11-cpu-x86_64-linux", "torch212-cxx11-cpu-x86_64-linux"], "cpu", 1),
        (["torch213-cxx11-cu132-x86_64-linux", "torch213-cxx11-cu130-x86_64-linux"], "cuda", 1),
        (["torch-stable-abi210-cu130-x86_64-linux"], "cuda", 0),
        (["torch-cpu", "torch-cuda"], "cuda", 1),
    ],
)
def test_the_variant_for_the_wanted_torch_is_built_else_the_newest(names, backend, chosen):
    options = argparse.Namespace(torch=(2, 13), cuda=(13, 0))
    variants = [{"name": name, "builds": True} for name in names]
    assert community_build._pick(variants, backend, options) == names[chosen]


def test_the_checkout_is_left_as_it_is(tmp_path):
    source = tmp_path / "co" / "k"
    source.mkdir(parents=True)
    (source / "build.toml").write_text('[general]\nname = "k"\n')
    (kernel,) = community_build.projects([tmp_path / "co"], ["k*"])
    copy = community_build._copied(kernel, tmp_path / "out")
    (copy / "kernforge.lock").write_text("{}")
    community_build._keep_lock(copy, tmp_path / "out")
    assert kernel.label == "co/k"
    assert [p.name for p in source.iterdir()] == ["build.toml"]
    assert (community_build._copied(kernel, tmp_path / "out") / "kernforge.lock").is_file()


def test_the_outcomes_of_earlier_runs_are_kept_and_the_later_counts(tmp_path):
    earlier = tmp_path / "earlier.json"
    kernels = [
        {"built": asdict(built(cpu_s=1.0)), "tested": None},
        {"built": asdict(built(kernel="co/other")), "tested": asdict(after(kernel="co/other"))},
    ]
    earlier.write_text(json.dumps({"kernels": kernels, "sources": {}}))
    (one, other) = community.added([(built(cpu_s=2.0), after(passed=3))], [earlier])
    assert (one[0].cpu_s, one[1].passed) == (2.0, 3)
    assert other[0].kernel == other[1].kernel == "co/other"


def test_a_variant_for_another_cuda_is_tested_as_a_copy_with_the_name_of_torchs(tmp_path):
    host = Host(cpu="x86_64", os="linux", backend=Backend("cuda", Version2(13, 0)))
    names = [f"torch-stable-abi210-cu{cuda}-x86_64-linux" for cuda in ("128", "130")]
    for name in names:
        variant = tmp_path / "kernels" / "co" / "k" / "build" / name
        variant.mkdir(parents=True)
        (variant / "metadata.json").write_text(name)
    places = [
        community_test._place(built(backend="cuda", variant=name), host, tmp_path) for name in names
    ]
    assert [place.name for place in places] == [names[1], names[1]]
    assert [(place / "metadata.json").read_text() for place in places] == names
    assert community.label("cuda", (12, 8)) == "cuda-12.8"
    assert community.label("cuda", (13, 0)) == community.label("cuda", Version2(13, 0)) == "cuda"
