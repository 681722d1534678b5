# SPDX-License-Identifier: Apache-2.0
"""What a profile is refused for, and its document from launches."""

import json
from pathlib import Path

import pytest
from support.commands import call

from kernforge.bench import api as bench
from kernforge.bench.engine import messages
from kernforge.bench.engine.workload import Candidate
from kernforge.bench.profiler import api, ncu, program
from kernforge.bench.profiler.launches import KernelLaunch
from kernforge.errors import KernforgeError, MachineError, UsageError
from kernforge.system import process

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

WORKLOADS = """
from kernforge import Tensor, Workload

WORKLOADS = [Workload(name="a", inputs=(Tensor(shape=(4,)),), reference=lambda x: x)]
"""


@pytest.fixture
def project(tmp_path):
    there = tmp_path / "benchmarks"
    there.mkdir()
    (there / "workloads.py").write_text(WORKLOADS)
    (there / "candidates.py").write_text("def kernel(_module, x):\n    return x + 0\n")
    return tmp_path


@pytest.fixture
def with_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def test_without_a_gpu_there_is_no_profile(project, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert call("profile", str(project)) == 2
    assert "this torch sees no CUDA device" in capsys.readouterr().err


def test_a_candidate_that_there_is_not_is_named_with_those_that_there_are(project, capsys):
    assert call("profile", str(project), "--candidate", "cublas") == 2
    told = capsys.readouterr().err
    assert "no candidate is called cublas" in told
    assert "there are 'kernel'" in told


@pytest.mark.usefixtures("with_gpu")
def test_ncu_that_is_asked_for_and_not_here_is_an_error_before_anything_is_measured(
    project, monkeypatch
):
    monkeypatch.setattr(ncu, "PLACES", (str(project / "none"), f"{project}/no*/ncu"))
    with pytest.raises(UsageError, match="Nsight Compute") as error:
        api.run(api.ProfileRequest(project=project, tool="ncu"), print)
    assert "--tool torch" in error.value.hint


def test_numbers_of_calls_are_those_of_the_program():
    numbers = [program.number_of(w, c, 2) for w in range(2) for c in (-1, 0, 1)]
    assert numbers == [0, 1, 2, 3, 4, 5]


CASE = {
    "name": "a",
    "shapes": [[4]],
    "dtypes": ["float32"],
    "ceilings": {
        "cold": {
            "bytes": 4_000_000,
            "flops": 8_000_000_000,
            "copy_ns": 2_000.0,
            "flops_per_s": 8e14,
            "roof_ns": 10_000.0,
            "bound": "arithmetic",
        }
    },
    "results": [
        {"candidate": "kernel", "refused": "", "skipped": "", "median_ns": 20_000.0},
        {"candidate": "peer", "refused": "", "skipped": "it does not compute this workload"},
        {"candidate": "wrong", "refused": "call 3 of 4: the result is wrong", "skipped": ""},
    ],
}


def launch(name, time_ns, **more):
    return KernelLaunch(kernel=name, time_ns=time_ns, dram_read=2e6, dram_written=1e6, **more)


def test_launches_stand_beside_the_roofline_and_shares_of_the_copy():
    racing = [Candidate(name=row["candidate"], kind="peer") for row in CASE["results"]]
    launches = {0: [launch("neg", 1_000.0)], 1: [launch("one", 15_000.0), launch("two", 5_000.0)]}
    work = api.workload_document(CASE, 0, racing, launches, {2: "raised NotImplementedError"})
    roof = work["roofline"]
    assert (roof["intensity"], roof["ridge"]) == (2000.0, 400.0)
    assert roof["copy_dram_bytes_per_s"] == 3e12
    kernel, peer, wrong = work["profiles"]
    assert [each["share"] for each in kernel["launches"]] == [0.75, 0.25]
    assert kernel["kernels_ns"] == 20_000.0
    assert kernel["dram_bytes"] == 6e6
    assert kernel["span_ns"] is None
    one, two = (each["limit"] for each in kernel["launches"])
    assert (one["by"], one["used"]) == ("waiting", pytest.approx(1 / 15))
    assert two["used"] == pytest.approx(0.2)
    assert (peer["skipped"], peer["refused"], peer["launches"]) == (
        "it does not compute this workload",
        "",
        [],
    )
    assert api.refusals({"workloads": [work]}) == ["a, wrong: call 3 of 4: the result is wrong"]
    assert wrong["launches"] == []


NOT_THERE = "==ERROR== Failed to find metric launch__cluster_size\n"
DENIED = "==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n"
KERNEL = {"cat": "kernel", "name": "f(float*)", "ts": 5.0, "dur": 2.0, "args": {}}


@pytest.fixture
def programs(monkeypatch):
    """The programs of a machine whose driver refuses counters: a table of what each does."""
    machine = {"gpu": "a GPU", "driver": None, "cuda": "13.0", "torch": "2.11.0"}
    measured = {"project": "p", "machine": machine, "settings": {}, "workloads": [CASE]}
    monkeypatch.setattr(bench, "run", lambda *_, **__: measured)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    answers = {"log": DENIED, "crash": ""}

    def run(command):
        argv = command.argv
        if "--version" in argv:
            return process.Completed(returncode=0, stdout="Version 2025.3.1.0 (x)\n", stderr="")
        start = messages.decode(argv[-1], [program.ProfileStart])
        if "--log-file" in argv:
            told = (
                answers["log"]
                if "launch__cluster_size" not in argv[argv.index("--metrics") + 1]
                else NOT_THERE
            )
            Path(argv[argv.index("--log-file") + 1]).write_text(told)
        if answers["crash"]:
            return process.Completed(returncode=1, stdout="", stderr=answers["crash"])
        into = Path(start.results)
        (into / program.RESULT).write_text(json.dumps({"failed": {}}))
        if not start.counts:
            (into / program.trace_name(1, 0)).write_text(json.dumps({"traceEvents": [KERNEL]}))
        return process.Completed(returncode=0, stdout="", stderr="")

    monkeypatch.setattr(process, "run", run)
    return answers


@pytest.mark.usefixtures("with_gpu", "programs")
def test_where_counters_are_refused_times_and_launches_are_left_with_what_to_do(project):
    notes = []
    document = api.run(api.ProfileRequest(project=project), notes.append)
    assert document["tool"]["name"] == "torch.profiler"
    (profile,) = document["workloads"][0]["profiles"]
    assert [(each["name"], each["time_ns"]) for each in profile["launches"]] == [("f", 2000.0)]
    assert "this GPU does not count launch__cluster_size" in notes
    assert any("ERR_NVGPUCTRPERM" in note for note in notes)
    assert any("NVreg_RestrictProfilingToAdminUsers=0" in note for note in notes)


@pytest.mark.usefixtures("with_gpu", "programs")
def test_counters_that_are_asked_for_and_refused_are_an_error(project):
    with pytest.raises(MachineError, match="ERR_NVGPUCTRPERM") as error:
        api.run(api.ProfileRequest(project=project, tool="ncu"), print)
    assert "--tool torch" in error.value.hint


@pytest.mark.usefixtures("with_gpu")
@pytest.mark.parametrize("tool", ["auto", "torch"])
def test_a_program_that_ends_early_is_an_error_with_its_last_words(project, programs, tool):
    programs["crash"] = "Traceback (most recent call last):\nRuntimeError: out of memory\n"
    with pytest.raises(KernforgeError, match="out of memory"):
        api.run(api.ProfileRequest(project=project, tool=tool), print)
