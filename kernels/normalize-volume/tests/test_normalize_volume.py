# SPDX-License-Identifier: Apache-2.0
"""Every backend gives the reference, the same bits as the others, and moments that are exact."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

from kernforge.testing import assert_bitwise, assert_near, load_beside, op_tests

DTYPES = ("int16", "uint8", "uint16")
RESULTS = (torch.float32, torch.bfloat16, torch.float16)
DRAWN = torch.Generator()
# test_every_misalignment has more of them.
FEW_VIEWS = ("transposed", "every second", "one repeated", "1 elements in", "8 elements in")
FACTOR = 5.0  # 3.5 units in the last place, of which the reference's rounding has one half


cases = load_beside(__file__, "cases")
reference = load_beside(__file__, "reference")
per_dtype = pytest.mark.parametrize("dtype", [getattr(torch, name) for name in DTYPES], ids=DTYPES)
per_result = pytest.mark.parametrize("result", RESULTS, ids=lambda d: str(d)[6:])

TestGiven = op_tests(
    op="normalize_volume",
    reference=reference.normalize_volume,
    inputs=lambda draw, shape: (draw(shape), 100.25, 37.5),
    shapes=cases.SHAPES,
    dtypes=DTYPES,
    views=FEW_VIEWS,
    elementwise=True,
    large=(1, 1, 2**31 + 1029),
    factor=FACTOR,
    leave_out={"special_values": "integers have none", "gradients": "of integers there are none"},
)

TestComputed = op_tests(
    op="normalize_volume",
    reference=reference.normalize_volume,
    inputs=lambda draw, shape: (draw(shape),),
    shapes=cases.MOMENTS,
    dtypes=DTYPES,
    views=FEW_VIEWS,
    factor=FACTOR,
    leave_out={"special_values": "integers have none", "gradients": "of integers there are none"},
)


@pytest.fixture(autouse=True)
def seed():
    DRAWN.manual_seed(1234)


def volume(shape, dtype, device="cpu", low=None, high=None):
    info = torch.iinfo(dtype)
    low, high = low if low is not None else info.min, high if high is not None else info.max
    return torch.randint(low, high + 1, shape, generator=DRAWN).to(dtype).to(device)


def every_value(dtype, device):
    info = torch.iinfo(dtype)
    return torch.arange(info.min, info.max + 1).to(dtype).view(1, 4, -1).to(device)


def by_torch(v, offset, scale, limits=(-math.inf, math.inf)):
    """The formula of normalize_volume.h in torch's float32, whose division rounds correctly."""
    offset, scale = (torch.tensor(x, dtype=torch.float64) for x in (offset, scale))
    whole = offset.round().float()
    rest = (offset - whole.double()).float()
    return (((v.cpu().float() - whole) - rest) / scale.float()).clamp(*limits)


@per_dtype
@per_result
def test_the_bits_are_the_formulas_for_every_value(kernel, device, dtype, result):
    v = every_value(dtype, device)
    offsets = [0.5, -1000.0, 40000.01, -3e9]
    scales = [255.0, 0.37, 1e10]
    if result == torch.float32:
        offsets += [0.0, 127.3, 32767.0, 1e-3]
        scales += [1.0, 1e-4, 3.0]
        scales += [math.exp(x) for x in torch.randn(4, generator=DRAWN).mul(4).tolist()]
    for scale in scales:
        for offset in offsets:
            got = kernel.normalize_volume(v, offset, scale, dtype=result)
            assert_bitwise(got.cpu(), by_torch(v, offset, scale).to(result))


@per_dtype
@per_result
@pytest.mark.parametrize("largest", [4095.0, 255.0, 65535.0, 0.37])
def test_one_number_is_the_value_that_becomes_one(kernel, device, dtype, result, largest):
    v = every_value(dtype, device)
    got = kernel.normalize_volume(v, largest, dtype=result)
    divisor = torch.tensor(largest, dtype=torch.float32)
    assert_bitwise(got.cpu(), (v.cpu().float() / divisor).to(result))
    assert_bitwise(got, kernel.normalize_volume(v, max=largest, dtype=result))
    assert_bitwise(got, kernel.normalize_volume(v, 0.0, largest, dtype=result))
    if torch.iinfo(dtype).max >= largest > 1:
        assert bool((got[v.int() == int(largest)] == 1).all())


def test_mean_and_std_may_be_named(kernel, device):
    v = volume((2, 3, 4), torch.int16, device)
    by_place = kernel.normalize_volume(v, 1.5, 2.5)
    assert_bitwise(by_place, kernel.normalize_volume(v, mean=1.5, std=2.5))
    assert_bitwise(by_place, kernel.normalize_volume(v, 1.5, std=2.5))


@per_dtype
@per_result
def test_window(kernel, device, dtype, result):
    v = every_value(dtype, device)
    for low, high in ((-160, 240), (0, 1), (10.5, 99.25), (0, 255), (-1024, 3071)):
        got = kernel.window_volume(v, low, high, dtype=result)
        assert_bitwise(got.cpu(), by_torch(v, low, high - low, (0.0, 1.0)).to(result))
        exact = reference.window_volume(v, low, high)
        assert_near(got, exact, exact, factor=FACTOR)
        if isinstance(low, int):
            assert bool((got[v.int() <= low] == 0).all())
            assert bool((got[v.int() >= high] == 1).all())


@per_dtype
@per_result
def test_computed_in_every_result(kernel, device, dtype, result):
    v = volume((2, 9, 61, 83), dtype, device)
    got = kernel.normalize_volume(v, dtype=result)
    exact = reference.normalize_volume(v)
    assert got.dtype == result
    assert_near(got, exact, exact, factor=FACTOR)
    for one, alone in zip(got, v, strict=True):
        assert_bitwise(one, kernel.normalize_volume(alone, dtype=result))


def moments(v):
    """Mean and deviation by Python's integers and fractions."""
    n, first = v.numel(), int(v.long().sum())
    second = int(v.long().square().sum())
    spread = n * second - first * first
    # Twice the digits of a double before the root is taken.
    return float(Fraction(first, n)), math.isqrt(spread << 200) / 2**100 / n


@per_dtype
@pytest.mark.parametrize("shape", [s for s in cases.MOMENTS.values() if 0 not in s], ids=str)
def test_moments_are_exact(kernel, device, dtype, shape):
    for v in (
        volume(shape, dtype, device),
        volume(shape, dtype, device, high=torch.iinfo(dtype).min + 1),
        volume(shape, dtype, device, low=torch.iinfo(dtype).max - 1),
        torch.full(shape, torch.iinfo(dtype).max).to(dtype).to(device),
        torch.full(shape, torch.iinfo(dtype).min).to(dtype).to(device),
    ):
        mean, std = kernel.volume_mean_std(v)
        assert (mean.shape, std.shape, mean.dtype) == (shape[:-3], shape[:-3], torch.float64)
        batch = v.reshape(-1, *shape[-3:])
        for one, m, s in zip(batch, mean.reshape(-1), std.reshape(-1), strict=True):
            wanted = moments(one)
            assert abs(m.item() - wanted[0]) <= math.ulp(wanted[0])
            assert abs(s.item() - wanted[1]) <= 2 * math.ulp(wanted[1])


@per_dtype
def test_a_volume_of_one_value_becomes_zeros(kernel, device, dtype):
    for shape in ((2, 3, 4), (2, 8, 100, 100)):
        v = torch.full(shape, 77, dtype=torch.int64).to(dtype).to(device)
        assert bool((kernel.normalize_volume(v) == 0).all())
        assert bool((kernel.volume_mean_std(v)[1] == 0).all())


def test_no_voxels_have_no_mean(kernel, device):
    mean, std = kernel.volume_mean_std(torch.zeros(2, 0, 3, 3, dtype=torch.uint8, device=device))
    assert bool(mean.isnan().all() & std.isnan().all())
    assert kernel.volume_mean_std(torch.zeros(0, 1, 3, 3, dtype=torch.uint8, device=device))[
        0
    ].shape == (0,)


@per_dtype
@per_result
@pytest.mark.parametrize("start", [1, 2, 7, 8])
def test_every_misalignment(kernel, device, dtype, result, start):
    for shape in ((3, 11, 37), (2, 3, 120, 100)):
        n = math.prod(shape)
        buffer = volume((n + 32,), dtype, device)
        part = buffer[start : start + n].view(shape)
        apart = part.clone()
        assert_bitwise(
            kernel.normalize_volume(part, 3.0, 7.0, dtype=result),
            kernel.normalize_volume(apart, 3.0, 7.0, dtype=result),
        )
        assert_bitwise(
            kernel.normalize_volume(part, dtype=result),
            kernel.normalize_volume(apart, dtype=result),
        )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda k, v: k.normalize_volume(v.float()), "uint8, int16 or uint16, got Float"),
        (lambda k, v: k.normalize_volume(v[0]), r"\[Z, Y, X\] or \[N, Z, Y, X\], got \[5, 6\]"),
        (lambda k, v: k.normalize_volume(v, dtype=torch.float64), "or float16, got Double"),
        (lambda k, v: k.normalize_volume(v, mean=1.0), "both mean and std"),
        (lambda k, v: k.normalize_volume(v, std=1.0), "both mean and std"),
        (lambda k, v: k.normalize_volume(v, max=1.0, std=1.0), "max, or mean and std"),
        (lambda k, v: k.normalize_volume(v, 1.0, max=1.0), "each once"),
        (lambda k, v: k.normalize_volume(v, 1.0, 2.0, 3.0), "each once"),
        (lambda k, v: k.normalize_volume(v, 0.0), "divisor must be from 1e-30 .*got 0.0"),
        (lambda k, v: k.normalize_volume(v, 1.0, 0.0), "divisor must be from 1e-30 .*got 0.0"),
        (lambda k, v: k.normalize_volume(v, 1.0, math.nan), "divisor must be .*got -?nan"),
        (lambda k, v: k.normalize_volume(v, math.inf, 1.0), "offset must be .*got inf"),
        (lambda k, v: k.window_volume(v, 2.0, 1.0), "divisor must be .*got -1.0"),
        (lambda k, v: k.volume_mean_std(v.int()), "uint8, int16 or uint16, got Int"),
    ],
)
def test_refusals_say_the_value(kernel, device, call, message):
    with pytest.raises(ValueError, match=message):
        call(kernel, torch.zeros(4, 5, 6, dtype=torch.int16, device=device))


def test_sums_that_may_not_fit_are_refused(kernel, device):
    v = torch.zeros(1, dtype=torch.uint8, device=device).expand(1, 2**17 + 1, 2**17)
    with pytest.raises(ValueError, match=r"more than 2\^34 voxels"):
        kernel.volume_mean_std(v)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
def test_a_tensor_on_the_other_device_is_refused(kernel, device):
    other = "cuda" if device == "cpu" else "cpu"
    v = torch.zeros(1, 2, 3, dtype=torch.uint8, device=other)
    for call in (kernel.normalize_volume, kernel.volume_mean_std):
        with pytest.raises(NotImplementedError, match=other.upper()):
            call(v)


@pytest.mark.gpu
def test_moments_of_more_than_2_to_the_31_voxels(kernel, device):
    if device != "cuda":
        pytest.skip("the CPU's index is the same at any length")
    n = 2**31 + 1029
    if torch.cuda.mem_get_info()[0] < 8 * n:
        pytest.skip(f"needs {8 * n >> 20} MiB")
    v = torch.full((1, 1, n), 65535, dtype=torch.uint16, device=device)
    v.view(torch.int16)[..., : n // 2] = 0
    low, high = n // 2, n - n // 2
    mean, std = kernel.volume_mean_std(v)
    assert abs(mean.item() - float(Fraction(65535 * high, n))) <= 1e-11
    assert abs(std.item() - 65535 * math.sqrt(low * high) / n) <= 1e-11
    out = kernel.normalize_volume(v, dtype=torch.bfloat16)
    assert bool((out[..., :low] == -1).all())
    assert bool((out[..., low:] == 1).all())
