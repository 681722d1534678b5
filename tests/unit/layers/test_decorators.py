# SPDX-License-Identifier: Apache-2.0

import copy
import pickle

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from support.marked_layers import (  # noqa: E402 - skipped without torch
    Caller,
    kernelize_on_cpu,
    same_function,
)
from torch import nn  # noqa: E402

from kernforge import (  # noqa: E402
    kernelize_report,
    replace_kernel_forward_from_hub,
    unkernelize,
)


def test_a_function_is_replaced_for_its_callers_and_copied_as_itself(mapped):
    model = Caller()
    assert (same_function.__name__, same_function.__doc__) == (
        "same_function",
        "Return the argument.",
    )
    assert kernelize_on_cpu(model)(0) == 1
    assert copy.deepcopy(same_function) is same_function
    assert pickle.loads(pickle.dumps(same_function)) is same_function  # noqa: S301 - ours
    (layer,) = kernelize_report(nn.Sequential(model, Caller())).layers
    assert (layer.path, layer.layer_name) == ("0.same_function", "same_function")
    assert unkernelize(model)(0) == 0


def test_a_class_of_others_can_be_marked(mapped):
    class Foreign(nn.Module):
        def forward(self, x):
            return x

    replace_kernel_forward_from_hub(Foreign, "Same")
    assert kernelize_on_cpu(Foreign())(0) == 1
