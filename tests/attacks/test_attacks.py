# SPDX-License-Identifier: Apache-2.0
"""Candidates with wrong results are refused, others are not."""

import pytest

torch = pytest.importorskip("torch")

from kernforge import Tensor, Workload  # noqa: E402 - needs torch
from kernforge.bench import project, run  # noqa: E402
from kernforge.bench.workload import MODES, Candidate, Settings  # noqa: E402

pytestmark = pytest.mark.torch
KEPT = {}
OUT = torch.empty(0)


def by_pointer(a, b):
    """The result of the last call whose inputs lay in the same place."""
    key = (a.data_ptr(), b.data_ptr())
    if key not in KEPT:
        KEPT[key] = a @ b
    return KEPT[key].clone()


def changes_input(a, b):
    out = a @ b
    a.zero_()
    return out


def one_memory(a, b):
    """Every call returns the same memory."""
    return torch.matmul(a, b, out=OUT.resize_(a.shape[0], b.shape[1]))


HONEST = {
    "library": lambda a, b: a @ b,
    "in blocks": lambda a, b: torch.cat([part @ b for part in a.split(32)]),
    "in float64": lambda a, b: (a.double() @ b.double()).float(),
    "strided result": lambda a, b: (b.T @ a.T).T,
}
WRONG = {
    "fewer terms": lambda a, b: a[:, :-8] @ b[:-8],
    "bfloat16": lambda a, b: (a.bfloat16() @ b.bfloat16()).float(),
    "half": lambda a, b: (a.half() @ b.half()).float(),
    "zeros": lambda a, b: a.new_zeros(a.shape[0], b.shape[1]),
    "view of an input": lambda a, b: a[:, : b.shape[1]],
    "other dtype": lambda a, b: (a @ b).double(),
    "nothing": lambda _a, _b: None,
    "kept by pointer": by_pointer,
    "changes an input": changes_input,
}


PRODUCT = Workload(
    name="product",
    inputs=(Tensor(shape=(160, 320)), Tensor(shape=(320, 160))),
    reference=lambda a, b: a.double() @ b.double(),
)


def rows(device, work=PRODUCT, functions=None):
    functions = functions or HONEST | WRONG | (
        {"one memory": one_memory} if device == "cpu" else {}
    )
    contenders = [Candidate(name=n, kind="peer", function=f) for n, f in functions.items()]
    modes = MODES[device]
    settings = Settings(device=device, modes=modes, most=6, block_s=0.005)
    (case,) = run.measure(project.each_of([work], contenders, device), settings, print).workloads
    assert len(case.results) == len(contenders) * len(modes)
    return case.results


def check(measured):
    for each in measured:
        if each.candidate in HONEST:
            assert not each.refused, (each.candidate, each.refused)
            assert each.checked == each.rounds == 6
            assert each.low_ns <= each.median_ns <= each.high_ns
        else:
            assert each.refused, each.candidate
            assert each.median_ns is None


def test_only_wrong_results_are_refused():
    check(rows("cpu"))


def test_what_a_result_dtype_cannot_hold_is_compared_after_rounding():
    functions = {"kernel": lambda x: x * x, "zeros": torch.zeros_like}
    squares = Workload(
        name="squares",
        inputs=(Tensor(shape=(99,), dtype="float16", low=100, high=300),),  # infinite above 255
        reference=lambda x: x.double() * x.double(),
    )
    for each in rows("cpu", squares, functions):
        assert bool(each.refused) == (each.candidate == "zeros"), each.refused


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_only_wrong_results_are_refused_on_a_gpu():
    check(rows("cuda"))
