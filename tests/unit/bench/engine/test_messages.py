# SPDX-License-Identifier: Apache-2.0
"""What processes of a benchmark send: every message comes back, and nothing else goes through."""

import json

import pytest

from kernforge.bench.engine import messages
from kernforge.bench.engine.messages import (
    REQUESTS,
    Acknowledged,
    Argument,
    BeginWorkload,
    BufferAddress,
    CollectInputs,
    CollectResults,
    Measure,
    MessageError,
    Prepare,
    Refused,
    ReleaseMemory,
    Skipped,
    Times,
    WorkerStart,
)
from kernforge.bench.engine.workload import Candidate, Layout, Tensor
from kernforge.bench.hub import oracle

REPLIES = (Acknowledged, Times, Skipped, Refused)
TENSOR = Tensor(shape=(3, 4), dtype="uint8", low=0, high=9)
MESSAGES = [
    WorkerStart(
        device="cpu",
        candidate=Candidate(name="mine", kind="kernel", file="candidates.py", kernel="build"),
        buffer=BufferAddress(size=9, path="/proc/1/fd/3"),
        side=4,
        cpu=None,
    ),
    BeginWorkload(
        layout=Layout(inputs=(TENSOR,), outputs=()),
        arguments=(Argument(is_tensor=True), Argument(value=None), Argument(value=[1, {"a": 2.5}])),
        inplace=(0,),
        late=True,
        held=(1, 2),
        bytes=7,
        dtype="float16",
    ),
    Prepare(calls=3),
    Measure(mode="graph-hot"),
    CollectResults(),
    CollectInputs(),
    ReleaseMemory(),
    Acknowledged(),
    Times(times=(0.0, 1.5)),
    Skipped(why="a reason", in_all_modes=True),
    Refused(why="a reason\nof two lines"),
    oracle.Entries(verifies={"A.b": True}),
    oracle.Probed(held=(1,), used=True),
    oracle.Compare(dtype="int8", shape=(2,), size=2, got="a", right="b"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_every_message_comes_back(message):
    line = messages.encode(message)
    assert "\n" not in line
    assert messages.decode(line, [type(message)]) == message


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_worker_sends_no_requests(kind):
    (message,) = (each for each in MESSAGES if type(each) is kind)
    with pytest.raises(MessageError, match="is not a message that is expected"):
        messages.decode(messages.encode(message), REPLIES)


def times(value):
    return json.dumps({"kind": "Times", "times": value})


@pytest.mark.parametrize(
    "line",
    [
        "",
        "nonsense",
        "null",
        "[]",
        "7",
        '"Times"',
        "{}",
        '{"kind": null}',
        '{"kind": ["Times"], "times": []}',
        '{"kind": "Nothing"}',
        '{"kind": "__class__"}',
        '{"times": [1.0]}',
        '{"kind": "Times"}',
        '{"kind": "Times", "times": [1.0], "more": 1}',
        '{"kind": "Acknowledged", "times": [1.0]}',
        times(None),
        times(1.0),
        times({"0": 1.0}),
        times([None]),
        times(["1.0"]),
        times([True]),
        times([[1.0]]),
        times([-1.0]),
        times([float("nan")]),
        times([float("inf")]),
        times([10**400]),
        '{"kind": "Times", "times": [' + "1" * 5000 + "]}",
        '{"kind": "Refused", "why": 1}',
        '{"kind": "Refused", "why": null}',
        '{"kind": "Skipped", "why": "", "in_all_modes": 1}',
        "[" * 100_000,
        '{"kind":' * 100_000,
        times(json.loads("[" * 500 + "]" * 500)),
    ],
)
def test_what_is_not_a_reply_is_refused(line):
    with pytest.raises(MessageError) as error:
        messages.decode(line, REPLIES)
    assert len(str(error.value)) < 200


def test_a_reason_can_always_be_printed():
    reply = messages.decode('{"kind": "Refused", "why": "\\ud800 x"}', REPLIES)
    assert reply.why.encode() == b"? x"


@pytest.mark.parametrize("mode", ["", "warm", 1, None, ["hot"]])
def test_a_mode_is_one_of_those_that_there_are(mode):
    with pytest.raises(MessageError):
        messages.decode(json.dumps({"kind": "Measure", "mode": mode}), REQUESTS)
