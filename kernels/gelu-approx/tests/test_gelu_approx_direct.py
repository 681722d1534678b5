# SPDX-License-Identifier: Apache-2.0
"""The way around torch.ops (kernforge/direct.h); vector-add's tests hold what one and two tensors share."""

from __future__ import annotations

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class Functions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Dispatches(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def x(device):
    torch.manual_seed(7)
    return torch.randn(4, 6, device=device)


def test_a_plain_tensor_takes_it_and_gives_the_same(kernel, x):
    assert torch.equal(kernel._direct(x), kernel._gelu_approx(x))
    assert torch.equal(kernel.gelu_approx(x=x), kernel._gelu_approx(x))
    leaf = torch.nn.Parameter(x)
    direct, by_ops = kernel._direct(leaf), kernel._gelu_approx(leaf)
    assert direct.grad_fn.name() == by_ops.grad_fn.name()
    slopes = [torch.autograd.grad(out.sum(), leaf)[0] for out in (direct, by_ops)]
    assert torch.equal(*slopes)
    with Dispatches() as modes:
        kernel._direct(x)
    assert modes.seen[0] == kernel._gelu_approx


def test_all_else_is_left_to_torch_ops(kernel, x):
    class Subclass(torch.Tensor):
        pass

    for given in ((), (x, x), (1.0,), (None,), (x.as_subclass(Subclass),)):
        assert kernel._direct(*given) is NotImplemented
    with Functions():
        assert kernel._direct(x) is NotImplemented
    assert type(kernel.gelu_approx(x.as_subclass(Subclass))) is Subclass


@pytest.mark.parametrize("wrong", [1.0, None, torch.ones(3, dtype=torch.int32)], ids=repr)
def test_errors_are_in_the_words_of_torch_ops(kernel, device, wrong):
    given = wrong.to(device) if isinstance(wrong, torch.Tensor) else wrong
    with pytest.raises(Exception) as by_ops:  # noqa: PT011 - whichever it is
        kernel._gelu_approx(given)
    with pytest.raises(type(by_ops.value)) as ours:
        kernel.gelu_approx(given)
    assert str(ours.value) == str(by_ops.value)
