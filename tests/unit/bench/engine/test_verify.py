# SPDX-License-Identifier: Apache-2.0
"""What is drawn, what is right, and what goes through the exchange."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from kernforge.bench.engine import exchange, messages, verify
from kernforge.bench.engine.exchange import Exchange, HostBuffer, Scratch, open_buffer
from kernforge.bench.engine.workload import Tensor, Workload
from kernforge.errors import StorageError, UsageError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def workload(**fields):
    given = (Tensor(shape=(4, 8)), Tensor(shape=(8, 2)))
    defaults = {"name": "w", "inputs": given, "reference": lambda a, b: a.double() @ b.double()}
    return Workload(**{**defaults, **fields})


def drawn(work):
    return verify.draw(work, torch.Generator().manual_seed(1))


def test_operations_are_counted_unless_declared():
    work = workload()
    assert verify.counted_flops(work, drawn(work)) == 2 * 4 * 8 * 2
    assert verify.counted_flops(workload(flops=7), drawn(work)) == 7
    plain = workload(inputs=(Tensor(shape=(9,)),), reference=lambda x: x + 1)
    assert verify.counted_flops(plain, drawn(plain)) == 0


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (lambda a: a, "raises TypeError: <lambda>() takes 1 positional argument but 2"),
        (lambda a, _: a.nosuch(), "raises AttributeError: 'Tensor' object has no attribute"),
        (lambda _a, _b: None, "returns NoneType"),
        (lambda a, b: (a, b, 2.0), "returns float"),
    ],
)
def test_a_reference_that_gives_no_result_is_reported(reference, said):
    work = workload(reference=reference)
    with pytest.raises(UsageError, match="the reference of workload w") as told:
        verify.expected(work, drawn(work))
    assert said in told.value.message
    assert ("test_verify.py, line" in told.value.message) == ("nosuch" in said or "has no" in said)


def test_inputs_that_cannot_be_made_are_reported():
    for wrong in (Tensor(shape=(1 << 50,)), Tensor(shape=(4,), dtype="int32", low=9, high=3)):
        with pytest.raises(UsageError, match="workload w: its inputs cannot be made") as told:
            drawn(workload(inputs=(wrong,)))
        assert told.value.hint
        assert "\n" not in told.value.message


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [("uint8", 0, 255), ("int16", 0, 255), ("bool", 0, 1), ("int64", 0, 255)],
)
def test_integers_take_all_values(dtype, low, high):
    work = workload(inputs=(Tensor(shape=(20_000,), dtype=dtype),), reference=abs)
    (found,) = drawn(work)
    assert (int(found.min()), int(found.max())) == (low, high)


@pytest.mark.parametrize(
    ("got", "wanted", "right"),
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([1.0, 2.0 + 1e-5], [1.0, 2.0], True),
        ([1.0, 2.001], [1.0, 2.0], False),
        ([math.nan, math.inf], [math.nan, math.inf], True),
        ([1.0, math.inf], [1.0, -math.inf], False),
        ([1.0, 0.0], [1.0, math.nan], False),
        ([math.nan, 1.0], [1.0, 1.0], False),
    ],
)
def test_numbers_must_be_near_and_the_rest_in_place(got, wanted, right):
    mine = torch.tensor(got)
    theirs = torch.tensor(wanted, dtype=torch.float64)
    assert (verify.difference(workload(), (mine,), (theirs,)) is None) is right


def test_a_wrong_element_behind_the_first_part_is_found(monkeypatch):
    monkeypatch.setattr(verify, "_PART", 4)
    wanted = torch.arange(30.0, dtype=torch.float64).view(5, 6)
    got = wanted.float()
    assert verify.difference(workload(), (got,), (wanted,)) is None
    got[3, 1] += 1
    told = verify.difference(workload(), (got,), (wanted,))
    assert told == "the result is wrong at [3, 1]: 20.0, expected 19.0"


def test_memory_for_the_exchange_that_is_not_there_is_reported_before_it_is_touched(monkeypatch):
    asked = []
    monkeypatch.setattr("os.posix_fallocate", lambda _file, at, size: asked.append((at, size)))
    work = workload()
    turn = [drawn(work), drawn(work)]
    parts = verify.layout(work, verify.expected(work, turn[0]))
    monkeypatch.setattr("kernforge.system.machine.available_memory", lambda: parts.set_bytes)
    judge = Exchange(HostBuffer(4 * parts.set_bytes), parts)
    judge.put(turn[:1])
    judge.put(turn[:1])
    assert asked == [(0, parts.set_bytes)]
    with pytest.raises(StorageError, match="MB more memory, and 0 are free") as told:
        judge.put([*turn, *turn])
    assert "give the container more memory" in told.value.hint
    assert asked == [(0, parts.set_bytes)]


def test_the_exchange_has_no_name_that_would_outlive_it():
    buffer = HostBuffer(1 << 12)
    buffer.reserve(1 << 12)
    buffer.bytes[5] = 7
    code = (
        "import sys; from kernforge.bench.engine import messages\n"
        "from kernforge.bench.engine.exchange import open_buffer\n"
        "address = messages.decode(sys.argv[1], [messages.BufferAddress])\n"
        "memory = open_buffer(address); memory[6] = memory[5] + 1"
    )
    subprocess.run([sys.executable, "-c", code, messages.encode(buffer.address)], check=True)
    assert buffer.bytes[5:7].tolist() == [7, 8]
    assert Path(buffer.address.path).stat().st_nlink == 0
    buffer.close()
    assert not Path(buffer.address.path).exists()


@pytest.mark.parametrize("most_at_once", [0, 1 << 20])
def test_the_exchange_hands_over_and_forgets(tmp_path, monkeypatch, most_at_once):
    monkeypatch.setattr(exchange, "_MOST_AT_ONCE", most_at_once)
    work = workload()
    turn = [drawn(work), drawn(work)]
    parts = verify.layout(work, verify.expected(work, turn[0]))
    buffer = HostBuffer(2 * parts.set_bytes)
    judge = Exchange(buffer, parts)
    judge.put(turn)
    theirs = open_buffer(buffer.address)
    at = parts.offsets(1)
    assert theirs[at[0] : at[0] + 128].view(torch.float32).view(4, 8).equal(turn[1][0])
    assert judge.changed_inputs(turn, ()) is None
    theirs[at[1]] ^= 1
    assert judge.changed_inputs(turn, ()) == 1
    assert judge.changed_inputs(turn, (1,)) is None
    theirs[at[2] : at[2] + 32].view(torch.float32).fill_(3.0)
    assert judge.results(2)[1][0].tolist() == [[3.0, 3.0]] * 4
    assert judge.results(2)[1][0].tolist() == [[0.0, 0.0]] * 4


def test_exchanges_that_share_scratch_memory_are_not_mistaken(tmp_path):
    work, scratch = workload(), Scratch()
    parts = verify.layout(work, verify.expected(work, drawn(work)))
    buffers = [HostBuffer(2 * parts.set_bytes) for _ in range(2)]
    one, other = (Exchange(buffer, parts, scratch) for buffer in buffers)
    first, second = [drawn(work)], [drawn(work), drawn(work)]
    one.put(first)
    other.put(second)
    assert other.changed_inputs(second, ()) is None
    # What was laid out for the one is no longer there to compare with, so its calls are, one by one.
    assert one.changed_inputs(first, ()) is None
    open_buffer(buffers[0].address)[parts.offsets(0)[0]] ^= 1
    assert one.changed_inputs(first, ()) == 0
    assert other.changed_inputs(second, ()) is None
