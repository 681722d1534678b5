# SPDX-License-Identifier: __LICENSE__
"""The kernel against its reference."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch


def _load(name):
    path = Path(__file__).parents[1] / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"__PYTHON_NAME___{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cases = _load("cases")
reference = _load("reference")
DTYPES = sorted(cases.TOLERANCES)


def assert_close(got, x, scale, dtype):
    relative, absolute = cases.TOLERANCES[dtype]
    assert (got.shape, got.dtype, got.device) == (x.shape, x.dtype, x.device)
    assert got.is_contiguous()
    want = reference.__PYTHON_NAME__(x, scale)
    torch.testing.assert_close(got.double(), want, rtol=relative, atol=absolute, equal_nan=True)


def random(shape, dtype, device):
    return torch.randn(shape, device=device, dtype=torch.float32).to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", cases.TEST_SHAPES.values(), ids=list(cases.TEST_SHAPES))
def test_values(kernel, device, shape, dtype):
    torch.manual_seed(1)
    x = random(shape, dtype, device)
    assert_close(kernel.__PYTHON_NAME__(x, 1.7), x, 1.7, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_16_bit_pattern_or_special_value(kernel, device, dtype):
    if dtype == "float32":
        x = torch.tensor([0.0, -0.0, 1e-45, 3.4e38, float("inf"), float("-inf"), float("nan")])
    else:
        x = torch.arange(-(2**15), 2**15).to(torch.int16).view(getattr(torch, dtype))
    x = x.to(device)
    assert_close(kernel.__PYTHON_NAME__(x, 1.0), x, 1.0, dtype)
    assert torch.equal(kernel.__PYTHON_NAME__(x, 1.0).isnan(), x.isnan())


@pytest.mark.parametrize("dtype", DTYPES)
def test_views(kernel, device, dtype):
    torch.manual_seed(2)
    parent = random((40, 50), dtype, device)
    views = (
        parent.t(),
        parent[::2, ::3],
        parent[:, 1:],
        parent.view(-1)[1:],
        parent[:1].expand(9, -1),
    )
    for x in views:
        assert_close(kernel.__PYTHON_NAME__(x, 0.5), x, 0.5, dtype)


def test_another_dtype_is_refused(kernel, device):
    with pytest.raises(ValueError, match=r"float32, float16 or bfloat16, got Int"):
        kernel.__PYTHON_NAME__(torch.ones(3, dtype=torch.int32, device=device))


def test_compiles_whole(kernel, device):
    x = random((8, 8), "float32", device)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(x):
        return kernel.__PYTHON_NAME__(x, 2.0) + 1

    torch.testing.assert_close(step(x), x.clamp(min=0) * 2 + 1)


def test_opcheck(kernel, device):
    x = random((5, 7), "float32", device)
    op = kernel._ops.ops.__PYTHON_NAME__.default  # noqa: SLF001
    torch.library.opcheck(op, (x, 2.0))
