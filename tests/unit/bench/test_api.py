# SPDX-License-Identifier: Apache-2.0
"""A project's workloads and candidates, and what is said of mistakes in its files."""

import pytest

from kernforge.bench import api as bench
from kernforge.errors import UsageError


def test_candidates_are_read_and_not_run(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    path = tmp_path / "benchmarks" / "candidates.py"
    path.write_text("def kernel(m): 1/0\ndef eager(): ...\nPEERS = {'a': 1}\nraise SystemExit\n")
    found = bench.candidates(bench.BenchRequest(project=tmp_path, against=("o/n@v1",)))
    assert [(c.name, c.kind) for c in found] == [
        ("kernel", "kernel"),
        ("o/n@v1", "kernel"),
        ("torch eager", "eager"),
        ("torch.compile", "compiled"),
        ("a", "peer"),
    ]


def test_candidates_may_be_imported_or_assigned(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    path = tmp_path / "benchmarks" / "candidates.py"
    path.write_text("from toy import f as kernel\neager = abs\nPEERS: dict = {'a': 1, 'b': 2}\n")
    found = bench.candidates(bench.BenchRequest(project=tmp_path))
    assert [c.name for c in found] == ["kernel", "torch eager", "torch.compile", "a", "b"]


@pytest.mark.parametrize(
    "text",
    [
        "def other(): ...",
        "def (",
        "PEERS = dict(a=1)",
        "PEERS = {'a': 1, **more}",
        "PEERS = {1: abs}",
    ],
)
def test_a_project_without_candidates_is_reported(tmp_path, text):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "candidates.py").write_text(text)
    with pytest.raises(UsageError):
        bench.candidates(bench.BenchRequest(project=tmp_path))


def test_sized_workloads_come_from_the_project(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    path = tmp_path / "benchmarks" / "workloads.py"
    path.write_text(
        "from kernforge import Tensor, Workload\n"
        "def sized(n):\n"
        "    return Workload(name=str(n), inputs=(Tensor(shape=(n,)),), reference=abs, size=n)\n"
    )
    found = bench.workloads(bench.BenchRequest(project=tmp_path, sizes=(4, 8)))
    assert [each.name for each in found] == ["4", "8"]
    path.write_text("WORKLOADS = []")
    with pytest.raises(UsageError, match="has no function sized"):
        bench.workloads(bench.BenchRequest(project=tmp_path, sizes=(4,)))


GOOD = 'Workload(name="a", inputs=(Tensor(shape=(4,)), 2.0), reference=max)'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("WORKLOADS = [Workload(", "SyntaxError"),
        ("import nosuch", "No module named 'nosuch', line 2"),
        ("WORKLOADS = []", "has no WORKLOADS"),
        (f"WORKLOADS = {GOOD}", "has no WORKLOADS"),
        ("WORKLOADS = [{}]", "has no WORKLOADS"),
        (f"WORKLOADS = [{GOOD}, {GOOD}]", "the same name"),
        (f"WORKLOADS = [{GOOD}]".replace("(4,)", "4"), "line 2: a workload's tensor cannot have"),
        (f"WORKLOADS = [{GOOD}]".replace("(4,)", "(-4,)"), "cannot have the shape (-4,)"),
        (f"WORKLOADS = [{GOOD}]".replace("(4,)", "(4,), dtype='fp16'"), "line 2: a workload's"),
        (f"WORKLOADS = [{GOOD}]".replace("inputs=", "input="), "unexpected keyword argument"),
        (
            f"WORKLOADS = [{GOOD}]".replace("Tensor(shape=(4,)), ", "1.0, "),
            "a: inputs has no Tensor",
        ),
        (
            f"WORKLOADS = [{GOOD}]".replace("(Tensor(shape=(4,)), 2.0)", "2.0"),
            "inputs is not a tuple",
        ),
        (f"WORKLOADS = [{GOOD}]".replace("max", "None"), "reference is not a function"),
        (f"WORKLOADS = [{GOOD}]".replace("max", "max, outputs='int8'"), "('int8',)"),
        (
            f"WORKLOADS = [{GOOD}]".replace("max", "max, outputs=('i8',)"),
            "'i8', which is not one of",
        ),
        (f"WORKLOADS = [{GOOD}]".replace("max", "max, inplace=(2,)"), "there are 2 inputs"),
        (f"WORKLOADS = [{GOOD}]".replace("max", "max, size='big'"), "size is 'big'"),
        (f"WORKLOADS = [{GOOD}]".replace("max", "max, bytes=0"), "bytes is 0, not a number"),
        (f"WORKLOADS = [{GOOD}]".replace("max", "max, bytes=1e6"), "bytes is 1000000.0, not"),
        (f"WORKLOADS = [{GOOD}]".replace("2.0", "(1, max)"), "inputs has (1, <built-in function"),
    ],
)
def test_a_wrong_file_of_workloads_is_reported_with_its_line_and_what_to_do(tmp_path, text, said):
    (tmp_path / "benchmarks").mkdir()
    path = tmp_path / "benchmarks" / "workloads.py"
    path.write_text(f"from kernforge import Tensor, Workload\n{text}\n")
    with pytest.raises(UsageError) as told:
        bench.workloads(bench.BenchRequest(project=tmp_path))
    assert str(path) in told.value.message
    assert said in told.value.message
    assert told.value.hint


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("1 / 0", "sized(4) of "),
        ("None", "returns NoneType"),
        ("[]", "returns list"),
        ("[1]", "list"),
    ],
)
def test_a_sized_that_makes_no_workload_is_reported(tmp_path, body, said):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "workloads.py").write_text(f"def sized(n):\n    return {body}\n")
    with pytest.raises(UsageError) as told:
        bench.workloads(bench.BenchRequest(project=tmp_path, sizes=(4,)))
    assert said in told.value.message
    assert told.value.hint


def test_names_that_there_are_stand_beside_the_one_that_there_is_not(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "workloads.py").write_text(
        f"from kernforge import Tensor, Workload\nWORKLOADS = [{GOOD}]\n"
    )
    with pytest.raises(UsageError, match="no workload is called b") as told:
        bench.workloads(bench.BenchRequest(project=tmp_path, only=("b",)))
    assert told.value.hint == "there are 'a'"
