# SPDX-License-Identifier: Apache-2.0


import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from support.marked_layers import (  # noqa: E402 - skipped without torch
    FailingSource,
    Same,
    kernelize_on_cpu,
)
from torch import nn  # noqa: E402

from kernforge import (  # noqa: E402
    kernelize_report,
    use_kernel_mapping,
)


def test_the_report_is_a_table_and_tells_every_candidate(mapped, model):
    assert "not kernelized" in str(kernelize_report(model))
    with use_kernel_mapping(
        {"Same": {"cuda": FailingSource(None)}, "Other": {}}, inherit_mapping=True
    ):
        kernelize_on_cpu(nn.Sequential(model, Same()))
    report = kernelize_report(nn.ModuleList([Same(), Same(), nn.ReLU(), model]))
    assert str(report).splitlines() == [
        "module  layer  runs         because",
        "* (2)   Same   own forward  not kernelized",
        "3.0     Same   kernel       registered for cpu FALLBACK",
        "3.1     Other  kernel       registered for cpu FALLBACK",
        "2 of 4 layers run a kernel",
    ]
    assert "for cuda FALLBACK: it is for cuda, the model runs on cpu" in report.trace()
    assert "for cpu FALLBACK: chosen" in report.trace()
    assert len(report.replaced) == len(report.kept) == 2
    assert "no layer of this model is marked" in str(kernelize_report(nn.ReLU()))
