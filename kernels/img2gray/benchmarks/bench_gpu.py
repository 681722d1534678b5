# SPDX-License-Identifier: Apache-2.0
"""img2gray on an NVIDIA GPU beside its peers and a device copy of as many bytes.

    python kernels/img2gray/benchmarks/bench_gpu.py --json out.json

How it measures: all contenders take turns in random order; each turn has new random pixels, and
between filling them and the run the L2 cache is overwritten and then filled with clean lines, so
neither hits nor write-backs of older data are counted. One event pair a run, around one call as a
user makes it, allocation of the result included; the median counts. The GPU has work queued before
the first event, so what is measured is the GPU's time and not Python's. Bytes are 4 a pixel: 3 read, 1
written; the copy moves the same number, half read and half written.

The kernel comes from ``KERNFORGE_KERNEL_DIR`` or the default registry, like in the tests.
"""

from __future__ import annotations

import argparse
import datetime as dt
import functools
import importlib.util
import json
import os
import platform
import random
import statistics
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

import kernforge

if TYPE_CHECKING:
    from collections.abc import Callable

PROJECT = Path(__file__).parents[1]
COPY = "device copy"
OURS = "img2gray"


def _load(name):
    spec = importlib.util.spec_from_file_location(f"img2gray_{name}", PROJECT / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def get_kernel():
    if directory := os.environ.get("KERNFORGE_KERNEL_DIR"):
        return kernforge.get_local_kernel(Path(directory))
    return kernforge.get_kernel("kernforge/img2gray", version=1)


def in_float(image):
    """The fastest that one writes without a kernel: float32, halves up, not always the exact byte."""
    r, g, b = image.unbind(-1)
    return (0.21 * r + 0.72 * g + 0.07 * b + 0.5).to(torch.uint8)


def in_integers(image):
    """The same bytes as the kernel's."""
    r, g, b = image.to(torch.int32).unbind(-1)
    return ((21 * r + 72 * g + 7 * b + 50) // 100).to(torch.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Something to time: ``call(given)``.

    ``weights`` names what it computes; the result may be ``slack`` off, for a peer that rounds in
    float32 or not at all. None: it computes nothing.
    """

    call: Callable[[torch.Tensor], torch.Tensor]
    given: torch.Tensor
    weights: str | None = "default"
    slack: int = 1


def contenders(kernel, image):
    """Every peer by name, each with the pixels laid out as it likes them best."""
    planes = image.movedim(-1, -3)
    compiled = functools.partial(torch.compile, fullgraph=True, dynamic=False)
    tuned = functools.partial(compiled, mode="max-autotune-no-cudagraphs")
    half = torch.empty(image.numel() * 2 // 3, dtype=torch.uint8, device="cuda")
    found = {
        OURS: Contender(call=kernel.img2gray, given=image, slack=0),
        f"{OURS} bt601": Contender(
            call=lambda x: kernel.img2gray(x, "bt601"), given=image, weights="bt601", slack=0
        ),
        COPY: Contender(call=torch.empty_like(half).copy_, given=half, weights=None),
        "torch eager": Contender(call=in_float, given=image),
        "torch.compile": Contender(call=compiled(in_float), given=image),
        "torch.compile, max-autotune": Contender(call=tuned(in_float), given=image),
        "torch.compile, any shape": Contender(
            call=torch.compile(in_float, fullgraph=True, dynamic=True), given=image
        ),
        "torch.compile, same bytes": Contender(call=compiled(in_integers), given=image, slack=0),
    }
    try:
        from torchvision.transforms.v2.functional import rgb_to_grayscale  # noqa: PLC0415
    except ImportError:
        print("torchvision is not installed: left out")
    else:
        for name, given in (("pixels", planes), ("planes", planes.contiguous())):
            found[f"torchvision, {name}"] = Contender(
                call=lambda x: rgb_to_grayscale(x).squeeze(-3), given=given, weights="bt601"
            )
    return found


def check(found, image, reference):
    """Hold everyone's first 64 rows against the reference, ours to the bit."""
    rows = image[..., :64, :, :]
    for name, peer in found.items():
        if peer.weights is None:
            continue
        want = reference.img2gray(rows, peer.weights)
        gap = (peer.call(peer.given)[..., :64, :].short() - want.short()).abs().max().item()
        if gap > peer.slack:
            raise SystemExit(f"{name} is {gap} off the reference on {tuple(image.shape)}")


class L2:
    """Makes the cache hold nothing of what comes next, and nothing that must be written back."""

    def __init__(self):
        size = 4 * torch.cuda.get_device_properties(0).L2_cache_size
        self.dirt = torch.empty(size, dtype=torch.uint8, device="cuda")
        self.clean = torch.ones(size // 4, dtype=torch.int32, device="cuda")

    def flush(self):
        self.dirt.zero_()
        self.clean.sum()


def measure(found, l2, rounds, seed):
    """Microseconds of each run of each contender."""
    order = list(found)
    shuffle = random.Random(seed).shuffle  # noqa: S311 - an order, no secret
    times = {name: [] for name in found}
    for turn in range(rounds + 3):
        shuffle(order)
        for name in order:
            peer = found[name]
            peer.given.random_(0, 256)
            l2.flush()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            peer.call(peer.given)
            end.record()
            end.synchronize()
            if turn >= 3:
                times[name].append(start.elapsed_time(end) * 1e3)
    return times


def table(shape, times):
    """Rows of figures, fastest first."""
    pixels = 1
    for size in shape[:-1]:
        pixels *= size
    medians = {name: statistics.median(values) for name, values in times.items()}
    rows = []
    for name in sorted(medians, key=medians.get):
        deciles = statistics.quantiles(times[name], n=10)
        rows.append(
            {
                "name": name,
                "median_us": round(medians[name], 2),
                "p10_us": round(deciles[0], 2),
                "p90_us": round(deciles[-1], 2),
                "gb_per_s": round(4 * pixels / medians[name] / 1e3, 1),
                "share_of_copy": round(medians[COPY] / medians[name], 4),
                "times_ours": round(medians[name] / medians[OURS], 3),
                "runs": len(times[name]),
            }
        )
    return rows


def machine(kernel):
    device = torch.cuda.get_device_properties(0)
    return {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "gpu": device.name,
        "kernforge": kernforge.__version__,
        "multiprocessors": device.multi_processor_count,
        "l2_bytes": device.L2_cache_size,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "kernel": json.loads((Path(kernel.__file__).parent / "metadata.json").read_text())["id"],
        "l2": "overwritten, then filled with clean lines, before each run",
        "bytes_per_pixel": 4,
    }


def readme_table(measured):
    """What README shows of it: each contender's time as a multiple of ours."""
    shapes = ["x".join(map(str, case["shape"][:-1])) for case in measured]
    rows = [
        [row["name"], *(_cell(row["name"], case["rows"]) for case in measured)]
        for row in measured[-1]["rows"]
    ]
    return {
        "title": "img2gray on an NVIDIA H200, GB/s (times as long as ours)",
        "head": ["", *shapes],
        "rows": rows,
        "note": "All in one run, interleaved, L2 flushed; more in kernels/img2gray/README.md.",
    }


def _cell(name, rows):
    (row,) = [row for row in rows if row["name"] == name]
    return f"{row['gb_per_s']:,.0f} ({row['times_ours']:.2f}x)"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--rounds", type=int, default=60, help="measured runs of each (60)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", module="torch._inductor")
    torch.manual_seed(args.seed)
    kernel, cases, reference, l2 = get_kernel(), _load("cases"), _load("reference"), L2()
    result = {"machine": machine(kernel), "cases": []}
    for case in cases.BENCH_CASES:
        torch._dynamo.reset()
        image = torch.randint(0, 256, case.shape, dtype=torch.uint8, device="cuda")
        found = contenders(kernel, image)
        check(found, image, reference)
        rows = table(case.shape, measure(found, l2, args.rounds, args.seed))
        result["cases"].append({"shape": case.shape, "regime": case.regime, "rows": rows})
        print(f"\n{case}  {case.regime}")
        for row in rows:
            print(
                f"  {row['name']:<28}{row['median_us']:>10.2f} us"
                f"{row['gb_per_s']:>9.1f} GB/s{row['share_of_copy']:>8.1%} of copy"
                f"{row['times_ours']:>8.2f} x ours"
            )
    result["table"] = readme_table(result["cases"])
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
