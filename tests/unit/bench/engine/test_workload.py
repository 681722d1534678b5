# SPDX-License-Identifier: Apache-2.0
"""Turns, rows and sizes: how many calls, where their tensors are, in which order."""

import pytest

from kernforge.bench.engine import workload
from kernforge.bench.engine.workload import Layout, Settings, Tensor
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
