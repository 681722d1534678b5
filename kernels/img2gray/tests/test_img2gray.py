# SPDX-License-Identifier: Apache-2.0
"""Every backend gives the reference's bytes, whatever the picture's shape, strides and place."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

PROJECT = Path(__file__).parents[1]


def _load(name):
    """A file of the project under a name of its own: every kernel has a reference.py."""
    spec = importlib.util.spec_from_file_location(f"img2gray_{name}", PROJECT / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cases = _load("cases")
reference = _load("reference")
WEIGHTS = sorted(reference.WEIGHTS)
SENTINEL = 0xA5


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1234)


def random_image(shape, device):
    return torch.randint(0, 256, shape, dtype=torch.uint8, device=device)


def assert_gray(got, image, weights="default"):
    want = reference.img2gray(image, weights)
    assert (got.dtype, got.shape, got.device) == (want.dtype, want.shape, want.device)
    wrong = (got != want).nonzero()
    assert not len(wrong), f"{len(wrong)} differ, the first at {wrong[0].tolist()}"


@pytest.mark.parametrize("weights", WEIGHTS)
def test_all_colours(kernel, device, weights):
    value = torch.arange(256, dtype=torch.uint8, device=device)
    for red in range(0, 256, 64):  # 64 reds at a time: the reference computes in 64 bits
        image = torch.cartesian_prod(value[red : red + 64], value, value).view(2048, 2048, 3)
        assert_gray(kernel.img2gray(image, weights), image, weights)


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


def test_neighbours_of_the_image_do_not_matter(kernel, device):
    parent = random_image((3, 200, 3), device)
    image = parent[1:2, 7:150]
    first = kernel.img2gray(image)
    parent[0], parent[2], parent[1, :7], parent[1, 150:] = 255, 255, 255, 255
    assert torch.equal(first, kernel.img2gray(image))


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
    with pytest.raises(ValueError, match=f"image is on {other}.*this build runs on {device}"):
        kernel.img2gray(random_image((4, 6, 3), other))
    with pytest.raises(ValueError, match=r"must be on|this build runs on"):
        kernel.img2gray(
            random_image((4, 6, 3), device),
            out=torch.empty(4, 6, dtype=torch.uint8, device=other),
        )


def test_more_than_2_to_the_31_elements(kernel, device):
    width = 1009
    height = 2**31 // ((1 if device == "cuda" else 3) * width) + 10  # on the GPU pixels too
    need = height * width * 5
    free = torch.cuda.mem_get_info()[0] if device == "cuda" else _free_memory()
    if free < need + 2**30:
        pytest.skip(f"needs {need >> 20} MiB on {device}")
    row = random_image((1, width, 3), device)
    image = row.expand(height, width, 3).contiguous()
    want = reference.img2gray(row)
    assert bool((kernel.img2gray(image) == want).all())
    # As a crop it cannot become one long row: more rows than a grid has in a dimension.
    assert bool((kernel.img2gray(image[:, 3:-2]) == want[:, 3:-2]).all())


def _free_memory():
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def test_more_pictures_than_a_grid_is_deep(kernel, device):
    image = random_image((70_000, 3, 7, 3), device)[:, 1:, 2:]
    assert_gray(kernel.img2gray(image), image)


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


# torch's own compiler imports what torch itself deprecates.
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.gpu)])
def test_compiles_whole_and_once_for_equal_shapes(kernel, device, backend):
    if backend == "inductor" and device != "cuda":
        pytest.skip("inductor needs a compiler for the CPU")
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend=backend)
    def step(image, out):
        kernel.img2gray(image, "bt601", out=out)
        return 255 - kernel.img2gray(image)

    with torch._dynamo.config.patch(error_on_recompile=True):
        for _ in range(3):
            image = random_image((37, 53, 3), device)
            out = torch.zeros(37, 53, dtype=torch.uint8, device=device)
            assert torch.equal(step(image, out), 255 - reference.img2gray(image))
            assert_gray(out, image, "bt601")


def test_opcheck(kernel, device):
    image = random_image((5, 7, 3), device)
    out = torch.empty(5, 7, dtype=torch.uint8, device=device)
    ops = kernel._ops.ops
    torch.library.opcheck(ops.img2gray.default, (image, 0))
    torch.library.opcheck(ops.img2gray_out.default, (image, 1), {"out": out})


@pytest.mark.gpu
def test_cuda_graph_replays_on_new_pixels(kernel, device):
    if device != "cuda":
        pytest.skip("graphs are the GPU's")
    image = random_image((97, 211, 3), device)
    out = torch.empty(97, 211, dtype=torch.uint8, device=device)
    kernel.img2gray(image, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel.img2gray(image, out=out)
    image.copy_(random_image(image.shape, device))
    graph.replay()
    torch.cuda.synchronize()
    assert_gray(out, image)


@pytest.mark.gpu
def test_runs_on_the_current_stream(kernel, device):
    if device != "cuda":
        pytest.skip("streams are the GPU's")
    image = random_image((1080, 1920, 3), device)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        image.fill_(200)
        gray = kernel.img2gray(image)
    assert not stream.query(), "the launch waited, so it was on another stream"
    stream.synchronize()
    assert bool((gray == 200).all())
