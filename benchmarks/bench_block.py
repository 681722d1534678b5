# SPDX-License-Identifier: Apache-2.0
"""A block of a transformer made of the collection's kernels beside torch's own, both compiled, on a GPU.

    python bench_block.py --json block.json

The blocks are those of tests/support/transformer_block.py, each one graph (``fullgraph=True``), in
bfloat16: RMSNorm, attention, RMSNorm of the sum, and a dense MLP (linear, GELU, linear) or a mixture of
experts, for which torch has ``torch._grouped_mm``. Attention is torch's in both. Results are compared
first. Then all take turns in random order, 256 MiB are written before every call, and the figure is the
median of the rounds. The kernels are those in ``kernels/*/build``.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.util
import json
import random
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch

import kernforge

ROOT = Path(__file__).parents[1]
NEAR = 0.05  # of bfloat16, where a token may get another of two nearly equal experts
OURS, TORCH = "kernels, compiled", "torch, compiled"


def _blocks() -> Any:
    path = ROOT / "tests/support/transformer_block.py"
    spec = importlib.util.spec_from_file_location("transformer_block", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


blocks = _blocks()
DENSE = blocks.Sizes(width=4096, heads=32, inner=16384)
MIXTRAL = blocks.Sizes(width=4096, heads=32, inner=14336, experts=8, top_k=2)
QWEN = blocks.Sizes(width=2048, heads=32, inner=768, experts=128, top_k=8)
CASES = {
    "dense 4096 to 16384, 2 x 2048 tokens": (DENSE, (2, 2048), True),
    "8 experts of 14336, 2 each, width 4096, 2 x 2048 tokens": (MIXTRAL, (2, 2048), True),
    "128 experts of 768, 8 each, width 2048, 2 x 2048 tokens": (QWEN, (2, 2048), True),
    "dense 4096 to 16384, 16 x 1 tokens, CUDA graphs": (DENSE, (16, 1), False),
    "128 experts of 768, 8 each, width 2048, 16 x 1 tokens, CUDA graphs": (QWEN, (16, 1), False),
}
"""Sizes, batch and length, and whether gradients are measured."""


def measured(calls: dict[str, Any], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Microseconds of each call, taken in turns."""
    spill = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(4):
            call()
    until = time.monotonic() + seconds
    order = list(calls)
    while len(times[order[0]]) < rounds and (
        time.monotonic() < until or len(times[order[0]]) < 5  # noqa: PLR2004 - a median of few
    ):
        random.shuffle(order)
        for name in order:
            spill.fill_(0)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            calls[name]()
            end.record()
            torch.cuda.synchronize()
            times[name].append(1000 * begin.elapsed_time(end))
    return times


def compare(got: torch.Tensor, want: torch.Tensor, what: str) -> None:
    """End the program where a result is too far from another one."""
    off = ((got.double() - want).norm() / want.norm()).item()
    if not off <= NEAR:
        sys.exit(f"{what} is {off} of the result off")


def of_case(name: str, parts: Any, rounds: int, seconds: float) -> list[dict[str, object]]:
    """The rows of one case, forward and with gradients.

    Raises:
        SystemExit: the results are not the same.
    """
    sizes, (batch, length), gradients = CASES[name]
    mode = "default" if gradients else "reduce-overhead"
    models = {}
    for who, given in ((TORCH, blocks.Torch), (OURS, parts)):
        with torch.device("cuda"):
            models[who] = blocks.Block(sizes, given).to(torch.bfloat16)
    models[OURS].load_state_dict(models[TORCH].state_dict())
    compiled = {who: torch.compile(m, fullgraph=True, mode=mode) for who, m in models.items()}
    x = torch.randn(batch, length, sizes.width, device="cuda", dtype=torch.bfloat16)
    calls = {**compiled, "torch, eager": models[TORCH]}
    rows = []
    with torch.no_grad():
        want = models[TORCH](x).double()
        for who, call in calls.items():
            compare(call(x), want, f"{name}: {who}")
        forward = {who: lambda call=call: call(x) for who, call in calls.items()}
        rows.append({"case": name, "what": "forward", **_medians(forward, rounds, seconds)})
    if gradients:
        inputs = {who: x.clone().requires_grad_() for who in calls}
        grad = torch.randn_like(x)

        def step(who: str) -> None:
            models[OURS if who == OURS else TORCH].zero_grad()
            inputs[who].grad = None
            calls[who](inputs[who]).backward(grad)

        both = {who: lambda who=who: step(who) for who in calls}
        rows.append({"case": name, "what": "forward, backward", **_medians(both, rounds, seconds)})
        compare(inputs[OURS].grad, inputs["torch, eager"].grad.double(), f"{name}: the gradient")
    return rows


def _medians(calls: dict[str, Any], rounds: int, seconds: float) -> dict[str, object]:
    times = measured(calls, rounds, seconds)
    return {
        "rounds": len(times[OURS]),
        "us": {who: round(statistics.median(each), 1) for who, each in times.items()},
        "fastest_us": {who: round(min(each), 1) for who, each in times.items()},
    }


def table(rows: list[dict[str, Any]], gpu: str) -> dict[str, object]:
    """What docs/results shows."""
    shown = []
    for row in rows:
        us = row["us"]
        ratio = us[TORCH] / us[OURS]
        values = (f"{us[who]:,.0f}" for who in (OURS, TORCH, "torch, eager"))
        shown.append([row["case"], row["what"], *values, f"{ratio:.2f}x"])
    return {
        "title": f"A block of a transformer in bfloat16, one compiled graph, on an {gpu}, us",
        "head": ["block", "", OURS, TORCH, "torch, eager", "torch / kernels, both compiled"],
        "rows": shown,
        "note": "layer-norm, matmul and linear-gelu or moe in the place of torch's functions; torch's "
        "mixture is `torch._grouped_mm`, attention is torch's in both. Gradients of products are "
        "cuBLAS's in linear-gelu and `torch._grouped_mm` in moe.",
    }


def main() -> None:
    """Compile, compare, measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60, help="at most, of each case")
    parser.add_argument("--seconds", type=float, default=4.0, help="at most, of each row")
    parser.add_argument(
        "--limit", type=float, default=1e9, help="begin no case after these seconds"
    )
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("there is no NVIDIA GPU here")
    warnings.filterwarnings("ignore", module="torch")
    began = time.monotonic()
    torch.manual_seed(0)
    parts = blocks.of_kernels(
        lambda name: kernforge.get_local_kernel(ROOT / "kernels" / name / "build", backend="cuda")
    )
    gpu = torch.cuda.get_device_name()
    rows: list[dict[str, object]] = []
    for name in CASES:
        if time.monotonic() - began > options.limit:
            print(f"{name}: no time is left")
            continue
        torch._dynamo.reset()  # noqa: SLF001 - another size is another graph, not a dynamic one
        rows += of_case(name, parts, options.rounds, options.seconds)
        for row in rows[-2:]:
            print(row, round(time.monotonic() - began, 1), flush=True)
        document = {
            "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
            "gpu": gpu,
            "torch": torch.__version__,
            "kernforge": kernforge.__version__,
            "rows": rows,
            "table": table(rows, gpu),
        }
        if options.json:
            options.json.write_text(json.dumps(document, indent=1) + "\n")
        torch.cuda.empty_cache()
    sys.exit(0 if len({row["case"] for row in rows}) == len(CASES) else 1)


if __name__ == "__main__":
    main()
