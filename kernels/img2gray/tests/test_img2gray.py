# SPDX-License-Identifier: Apache-2.0
"""Every backend gives the reference's bytes, whatever the picture's shape, strides and place."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernforge.testing import load_beside, op_tests

cases = load_beside(__file__, "cases")
reference = load_beside(__file__, "reference")
WEIGHTS = sorted(reference.WEIGHTS)
SHAPES = {
    "one pixel": (1, 1, 3),
    "a group and a pixel": (1, 17, 3),
    "odd by odd": (31, 33, 3),
    "a batch of tiny pictures": (3, 7, 5, 3),
    "several blocks and a rest": (127, 341, 3),
}

TestImg2gray = op_tests(
    op="img2gray",
    reference=reference.img2gray,
    inputs=lambda draw, shape: (draw(shape), "bt601"),
    shapes=SHAPES,
    dtypes=("uint8",),
    rowwise=True,
    large=(2**31 // 1009 + 10, 1009, 3),  # on the GPU pixels too
    leave_out={"special_values": "whole numbers have none"},
)

TestOut = op_tests(
    op="img2gray",
    call=lambda op, image, weights, out: op(image, weights, out=out),
    reference=lambda image, weights, out: reference.img2gray(image, weights),  # noqa: ARG005
    inputs=lambda draw, shape: (draw(shape), "default", draw.out(shape[:-1])),
    shapes=SHAPES,
    dtypes=("uint8",),
    views=("transposed", "cropped", "1 elements in"),
    leave_out={"special_values": "whole numbers have none"},
)
SENTINEL = 0xA5


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1234)


def random_image(shape, device):
    return torch.randint(0, 256, shape, dtype=torch.uint8, device=device)


def assert_gray(got, image, weights="default", rounding="nearest"):
    want = reference.img2gray(image, weights, rounding)
    assert (got.dtype, got.shape, got.device) == (want.dtype, want.shape, want.device)
    wrong = (got != want).nonzero()
    assert not len(wrong), f"{len(wrong)} differ, the first at {wrong[0].tolist()}"


@pytest.mark.parametrize("rounding", ["nearest", "truncate"])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_all_colours(kernel, device, weights, rounding):
    value = torch.arange(256, dtype=torch.uint8, device=device)
    for red in range(0, 256, 64):  # 64 reds at a time: the reference computes in 64 bits
        image = torch.cartesian_prod(value[red : red + 64], value, value).view(2048, 2048, 3)
        got = kernel.img2gray(image, weights, rounding=rounding)
        assert_gray(got, image, weights, rounding)


def test_truncated_values_of_the_tutorials(kernel, device):
    """0.21 * 27 + 0.07 * 19 is 7, in float32 below it; 0.21 * 19 + 0.72 * 6 + 0.07 * 67 is 13."""
    image = torch.tensor([[27, 0, 19], [19, 6, 67], [255, 255, 255], [1, 1, 1]], dtype=torch.uint8)
    got = kernel.img2gray(image[None].to(device), rounding="truncate")
    assert got[0].tolist() == [6, 13, 255, 1]


@pytest.mark.parametrize("width", [1, 15, 16, 17, 33, 75])
def test_truncated_rows_of_every_alignment_and_planes(kernel, device, width):
    parent = random_image((4, width + 18, 3), device)
    for x in range(18):
        crop = parent[1:3, x : x + width]
        for image in (crop, crop.contiguous().permute(2, 0, 1).contiguous().permute(1, 2, 0)):
            got = kernel.img2gray(image, rounding="truncate")
            assert_gray(got, image, "default", "truncate")


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("case", cases.TEST_CASES, ids=str)
def test_shapes(kernel, device, case, weights):
    image = random_image(case.shape, device)
    assert_gray(kernel.img2gray(image, weights), image, weights)


@pytest.mark.parametrize("size", cases.CROPS, ids=str)
def test_crops_at_every_alignment(kernel, device, size):
    height, width = size
    for pitch in (0, 1, 16):
        parent = random_image((height + 2, width + 20 + pitch, 3), device)
        for x in range(18):
            image = parent[1 : 1 + height, x : x + width]
            assert_gray(kernel.img2gray(image), image)


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(lambda t: t.permute(1, 0, 2), id="transposed"),
        pytest.param(lambda t: t[::2, ::3], id="every third pixel"),
        pytest.param(lambda t: t[:, :, :1].expand(-1, -1, 3), id="gray as rgb"),
        pytest.param(lambda t: t[:1].expand(9, -1, -1), id="one row repeated"),
        pytest.param(lambda t: t[:, :1].expand(-1, 9, -1), id="one column repeated"),
        pytest.param(lambda t: t.permute(2, 0, 1).contiguous().permute(1, 2, 0), id="planes"),
        pytest.param(lambda t: t.view(-1)[: 40 * 20 * 4].view(40, 20, 4)[..., 1:], id="argb"),
        pytest.param(lambda t: t.view(4, 10, 37, 3)[:, 2:9, 5:], id="batch of crops"),
        pytest.param(
            lambda t: t.view(4, 10, 37, 3).permute(3, 0, 1, 2)[:3, 1:3].permute(1, 2, 3, 0),
            id="batch of planes",
        ),
        pytest.param(lambda t: t.view(4, 10, 37, 3)[:, :1], id="first row of each"),
        pytest.param(lambda t: t.as_strided((3, 5, 3), (2, 3, 1)), id="overlapping rows"),
    ],
)
def test_strides(kernel, device, view):
    image = view(random_image((40, 37, 3), device))
    assert_gray(kernel.img2gray(image), image)


@pytest.mark.parametrize("pitch", [0, 1, 13, 16])
def test_out_is_written_and_nothing_around_it(kernel, device, pitch):
    height, width = 5, 75
    image = random_image((height, width, 3), device)
    for offset in range(17):
        buffer = torch.full(
            (64 + height * (width + pitch),), SENTINEL, dtype=torch.uint8, device=device
        )
        out = buffer.as_strided((height, width), (width + pitch, 1), offset)
        assert kernel.img2gray(image, out=out) is out
        assert_gray(out, image)
        out.fill_(SENTINEL)
        assert (buffer == SENTINEL).all()


@pytest.mark.parametrize("shape", [(0, 5, 3), (5, 0, 3), (0, 4, 4, 3), (2, 0, 4, 3), (2, 4, 0, 3)])
def test_empty(kernel, device, shape):
    image = random_image(shape, device)
    assert kernel.img2gray(image).shape == shape[:-1]
    out = torch.empty(shape[:-1], dtype=torch.uint8, device=device)
    assert kernel.img2gray(image, out=out) is out


@pytest.mark.parametrize("weights", WEIGHTS)
def test_gray_stays_gray(kernel, device, weights):
    value = torch.arange(256, dtype=torch.uint8, device=device)
    assert torch.equal(kernel.img2gray(value.view(1, 256, 1).expand(1, 256, 3), weights)[0], value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda k, i: k.img2gray(i.float()), r"image must be uint8, got Float"),
        (lambda k, i: k.img2gray(i[0]), r"\[H, W, 3\] or \[N, H, W, 3\], got \[6, 3\]"),
        (lambda k, i: k.img2gray(i[None, None]), r"got \[1, 1, 4, 6, 3\]"),
        (lambda k, i: k.img2gray(i[..., :2]), r"must be 3 .*got \[4, 6, 2\]"),
        (lambda k, i: k.img2gray(i, "bt709"), r"'default' or 'bt601', got 'bt709'"),
        (lambda k, i: k.img2gray(i, rounding="up"), r"'nearest' or 'truncate', got 'up'"),
        (lambda k, i: k.img2gray(i, out=i.new_empty(4, 5)), r"got \[4, 5\] for image \[4, 6, 3\]"),
        (
            lambda k, i: k.img2gray(i, out=i.new_empty(4, 6).short()),
            r"out must be uint8, got Short",
        ),
        (lambda k, i: k.img2gray(i, out=i.new_empty(6, 4).t()), r"packed rows .*got stride 4"),
        (
            lambda k, i: k.img2gray(i, out=i.new_empty(6).expand(4, 6)),
            r"packed rows .*got stride 0",
        ),
        (lambda k, i: k.img2gray(i, out=i.view(-1)[:24].view(4, 6)), r"must not share memory"),
        (lambda k, i: k.img2gray(i, out=i.view(-1)[48:].view(4, 6)), r"must not share memory"),
    ],
)
def test_refusals_say_the_value(kernel, device, call, message):
    with pytest.raises(ValueError, match=message):
        call(kernel, random_image((4, 6, 3), device))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
def test_a_picture_on_the_other_device_is_refused(kernel, device):
    other = "cuda" if device == "cpu" else "cpu"
    with pytest.raises(NotImplementedError, match=other.upper()):
        kernel.img2gray(random_image((4, 6, 3), other))
    with pytest.raises((ValueError, NotImplementedError)):
        kernel.img2gray(
            random_image((4, 6, 3), device),
            out=torch.empty(4, 6, dtype=torch.uint8, device=other),
        )


def test_more_pictures_than_a_grid_is_deep(kernel, device):
    image = random_image((70_000, 3, 7, 3), device)[:, 1:, 2:]
    assert_gray(kernel.img2gray(image), image)


def test_crop_of_more_than_2_to_the_31_elements(kernel, device):
    """As a crop it cannot become one long row: more rows than a grid has in a dimension."""
    width = 1009
    height = 2**31 // ((1 if device == "cuda" else 3) * width) + 10  # on the GPU pixels too
    need = height * width * 5
    free = torch.cuda.mem_get_info()[0] if device == "cuda" else _free_memory()
    if free < need + 2**30:
        pytest.skip(f"needs {need >> 20} MiB on {device}")
    row = random_image((1, width, 3), device)
    image = row.expand(height, width, 3).contiguous()
    want = reference.img2gray(row)
    assert bool((kernel.img2gray(image[:, 3:-2]) == want[:, 3:-2]).all())


def _free_memory():
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def test_threads_do_not_change_the_result(kernel, device):
    if device != "cpu":
        pytest.skip("the threads are the CPU's")
    image = random_image((499, 1001, 3), device)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 7):
            torch.set_num_threads(threads)
            results.append(kernel.img2gray(image[:, 1:]))
    finally:
        torch.set_num_threads(before)
    assert_gray(results[0], image[:, 1:])
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
