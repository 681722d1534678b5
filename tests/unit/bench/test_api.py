# SPDX-License-Identifier: Apache-2.0
"""Plans, floors, clocks held against each other, and regressions."""

import copy

import pytest

from kernforge.bench import api as bench
from kernforge.bench import roofline
from kernforge.bench import text as bench_text
from kernforge.bench.engine import doubts, workload
from kernforge.bench.engine.workload import Layout, Settings, Tensor
from kernforge.cli.main import main
from kernforge.errors import UsageError


@pytest.mark.parametrize(
    ("call_s", "set_bytes", "calls"),
    [(1e-3, 1000, 20), (1.0, 1000, 1), (1e-9, 1000, 64), (1e-9, 100 << 20, 2), (1e-9, 1 << 40, 1)],
)
def test_a_turn_is_filled_but_fits(call_s, set_bytes, calls):
    assert workload.calls_of(call_s, set_bytes, Settings()) == calls


def test_tensors_of_a_call_do_not_overlap():
    parts = Layout(inputs=(Tensor(shape=(3,)), Tensor(shape=(0,))), outputs=(Tensor(shape=(65,)),))
    assert parts.offsets(0) == (0, 256, 512)
    assert parts.offsets(1)[0] == parts.set_bytes == 512 + 512


def test_the_order_is_random_and_repeatable():
    names = ["a", "b", "c", "d"]
    orders = {tuple(workload.turns(names, 1, turn)) for turn in range(20)}
    assert len(orders) > 5
    assert workload.turns(names, 1, 3) == workload.turns(names, 1, 3)


EMPTY = [(1.2e6, 0.2e6, 10)]  # an empty call costs 0.1 ms


@pytest.mark.parametrize(
    ("turns", "believed"),
    [
        ([(11e6, 10e6, 10)], True),
        ([(40e6, 10e6, 10), (11.4e6, 10e6, 10)], True),  # a busy machine once
        ([(24e6, 10e6, 10), (25e6, 10e6, 10)], False),
        ([(11e6, 10.0, 10)], False),
    ],
)
def test_time_that_a_worker_hides_is_seen(turns, believed):
    assert (doubts.hidden_time(turns, EMPTY) == "") is believed


@pytest.mark.parametrize(
    ("turns", "believed"),
    [
        ([(1.2e6, 0.2e6, 10)], True),
        ([(30e6, 0.2e6, 10), (1.9e6, 0.2e6, 10)], True),  # a busy machine once
        ([(12e6, 20e6, 10)], True),  # half of what it reported anyway
        ([(12e6, 0.2e6, 10), (13e6, 0.2e6, 10)], False),
    ],
)
def test_results_that_were_ready_before_the_clock_are_seen(turns, believed):
    assert (doubts.computed_ahead(turns, EMPTY) == "") is believed


@pytest.mark.parametrize(
    ("turns", "believed"),
    [
        ([], True),
        ([[1.0, 1.0, 1.1, 1.0]], True),
        ([[1.0, 1.0, 90.0, 1.0], [1.0, 1.0, 1.2, 1.0]], True),  # a busy machine once
        ([[1.0, 1.0, 90.0, 1.0], [1.0, 1.0, 1.2, 80.0]], False),
        ([[1.0, 3.0], [9.0]], True),  # too few to tell
        ([[0.0, 0.0, 0.0, 1.0]], False),
    ],
)
def test_calls_that_do_the_work_of_others_are_seen(turns, believed):
    told = [doubts.unevenness(turn) for turn in turns]
    assert (doubts.uneven([each for each in told if each is not None]) == "") is believed


@pytest.mark.parametrize(
    ("median_ns", "moved", "device", "right"),
    [
        (90_000, 1 << 29, "cuda", True),
        (70_000, 1 << 29, "cuda", False),
        (40_000, 1 << 20, "cuda", True),
        (40_000, 1 << 29, "cpu", True),
        (30_000, 1 << 29, "cpu", False),
    ],
)
def test_times_below_the_floor_are_refused(median_ns, moved, device, right):
    top = roofline.ceiling(moved=moved, flops=0, copies=[100_000.0, 120_000.0], products=(), side=1)
    assert (roofline.below_floor(median_ns, top, device) == "") is right


def test_arithmetic_can_be_the_roof():
    top = roofline.ceiling(moved=1, flops=4000, copies=[10.0], products=[1000.0], side=10)
    assert (top.bound, top.roof_ns) == ("arithmetic", 2000.0)


def document(median, *, refused="", gpu=None):
    row = {"candidate": "kernel", "mode": "hot", "refused": refused, "skipped": ""}
    if not refused:
        row |= {"median_ns": median, "low_ns": median * 0.99, "high_ns": median * 1.01}
    return {
        "format": bench.FORMAT,
        "machine": {"cpu": "one", "gpu": gpu},
        "settings": {"modes": ["hot"]},
        "workloads": [{"name": "4k", "results": [row]}],
    }


@pytest.mark.parametrize(
    ("now", "regressions"),
    [
        (document(100), 0),
        (document(104), 0),  # sure, but allowed
        (document(110), 1),
        (document(50), 0),
        (document(0, refused="wrong"), 1),
        (document(100) | {"workloads": []}, 1),
    ],
)
def test_a_regression_is_sure_and_larger_than_allowed(now, regressions):
    assert len(bench_text.regressions(now, document(100))) == regressions


def test_an_unsure_difference_is_no_regression():
    now = copy.deepcopy(document(120))
    now["workloads"][0]["results"][0]["low_ns"] = 90
    assert bench_text.regressions(now, document(100)) == []


@pytest.mark.parametrize("before", [{}, document(1, gpu="another")])
def test_only_results_of_this_machine_are_compared(before):
    with pytest.raises(UsageError):
        bench_text.regressions(document(1), before)


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


@pytest.mark.parametrize("text", ["def other(): ...", "def (", "PEERS = dict(a=1)"])
def test_a_project_without_candidates_is_told(tmp_path, text):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "candidates.py").write_text(text)
    with pytest.raises(UsageError):
        bench.candidates(bench.BenchRequest(project=tmp_path))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2^3:2^5", [8, 16, 32]),
        ("2^10:2^30:10", [1 << 10, 1 << 20, 1 << 30]),
        ("1000,2^4", [1000, 16]),
        ("7", [7]),
    ],
)
def test_sizes_are_powers_or_numbers(text, found):
    assert workload.sizes(text) == found


@pytest.mark.parametrize(
    "text", ["", "a", "2^a:2^9", "3^2:3^4", "2^9:2^3", "2^1:2^9:0", "2^99:2^99"]
)
def test_other_sizes_are_refused(text):
    with pytest.raises(UsageError):
        workload.sizes(text)


@pytest.mark.parametrize("calls", [1, 3, 8, 9, 64])
def test_every_call_is_part_of_one_time(calls):
    for mode in workload.modes_of("cuda"):
        step = workload.in_a_row(mode, calls)
        assert workload.samples_of(mode, calls) == len(range(0, calls, step))
        assert step == 1 or mode in ("launch", *workload.GRAPHS)


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
    ],
)
def test_a_wrong_file_of_workloads_is_told_with_its_line_and_what_to_do(tmp_path, text, said):
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
def test_a_sized_that_makes_no_workload_is_told(tmp_path, body, said):
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


@pytest.mark.parametrize("option", ["--out", "--html"])
def test_a_place_that_takes_no_result_is_refused_before_anything_is_measured(
    tmp_path, capsys, option
):
    (tmp_path / "file").write_text("")
    for path, code in ((tmp_path / "file" / "now", 11), (tmp_path, 2)):
        with pytest.raises(SystemExit) as stop:
            main(["bench", str(tmp_path), option, str(path)])
        assert stop.value.code == code
        assert str(path) in capsys.readouterr().err
    assert (tmp_path / "file").is_file()


def test_several_processes_share_the_rounds():
    whole = Settings(most=20, least=6, processes=6)
    assert (whole.session().least, whole.session().most, whole.session().processes) == (4, 4, 1)
    assert Settings().session() == Settings()


@pytest.mark.parametrize(
    ("mode", "call_s", "device", "set_up", "calls"),
    [
        ("launch", 1e-6, "cuda", False, 128),
        ("launch", 1e-6, "cuda", True, 32),
        ("launch", 1e-3, "cuda", False, 20),
        ("hot", 1e-6, "cuda", False, 32),
        ("cold", 1e-6, "cpu", False, 8),
    ],
)
def test_modes_have_rows_of_their_own_length(mode, call_s, device, set_up, calls):
    settings = Settings(device=device)
    assert workload.calls_of(call_s, 1000, settings, mode, set_up=set_up) == calls


@pytest.mark.parametrize(
    ("set_bytes", "calls"), [(8 << 10, 128), (1 << 20, 25), (24 << 20, 1), (26 << 20, 1)]
)
def test_a_hot_graph_has_the_calls_that_stay_in_the_cache(set_bytes, calls):
    settings, cache = Settings(device="cuda"), 50 << 20
    found = workload.calls_of(1e-6, set_bytes, settings, "graph-hot", cache_bytes=cache)
    assert found == calls
    assert workload.fits_cache(set_bytes, cache) == (calls * set_bytes <= cache // 2)


def test_short_rows_come_oftener_than_long_ones():
    assert [workload.rows_of(row_s, Settings()) for row_s in (0.0, 1e-3, 0.015, 1.0)] == [
        3,
        3,
        2,
        1,
    ]
