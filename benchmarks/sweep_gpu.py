# SPDX-License-Identifier: Apache-2.0
"""Shapes, layouts and dtypes drawn at random: where is a kernel slower than torch's operators?

    kernforge build kernels/matmul --variant '*cu130-x86*'   # and the others
    python benchmarks/sweep_gpu.py --seconds 240             # all that are built
    python benchmarks/sweep_gpu.py matmul --beside ELSEWHERE  # races ELSEWHERE/matmul too

Each case is one call, or one gradient, of the kernel and of torch, in turns, with the L2 cache
overwritten before each, timed by events; what is slower by over 5 % is timed again. Prints the
worst and writes them to benchmarks/results/sweep-GPU.json; ``--all FILE`` keeps every case.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import random
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from results import RESULTS, describe, write

import kernforge
from kernforge.bench.timer import CudaTimer

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "kernels" / "moe" / "benchmarks"))
TICK_US = 0.5  # of events: what is less apart is level
HALVES = (torch.bfloat16, torch.float16)
FLOATS = (*HALVES, torch.float32)
# How far two roundings of one result may be apart, by its norm.
NEAR = {torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.float32: 2e-3, torch.float64: 1e-9}
Call: TypeAlias = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """One call: ``ours`` is given the kernel and the inputs, ``torch`` the inputs."""

    name: str
    inputs: tuple[Any, ...]
    ours: Call
    torch: Call
    differentiable: bool = True
    tf32: bool = False
    near: float = 1  # times NEAR: how far two roundings may be apart


class Draw:
    """What a case is made of, drawn at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - not for secrets

    def size(self, least: int = 1, most: int = 16384) -> int:
        """Powers of two, one off, multiples of 8 and anything, each as often at every scale."""
        value = round(math.exp(self.random.uniform(math.log(least), math.log(most))))
        power = 1 << max(0, value.bit_length() - 1)
        kinds = (power, power, power + 1, power - 1, -(-value // 8) * 8, -(-value // 8) * 8, value)
        return min(most, max(least, self.random.choice(kinds)))

    def one_of(self, *values: Any) -> Any:
        """One of the values; the first as often as all others together."""
        return values[0] if self.random.random() < 0.5 else self.random.choice(values[1:])  # noqa: PLR2004

    def tensor(
        self, shape: tuple[int, ...], dtype: torch.dtype, layouts: tuple[str, ...]
    ) -> tuple[torch.Tensor, str]:
        """Normal numbers in a layout: as it is, or one that costs."""
        layout = self.one_of(*layouts) if len(layouts) > 1 else layouts[0]
        *leading, rows, columns = (1, *shape) if len(shape) == 1 else shape

        def made(*size: int) -> torch.Tensor:
            return torch.randn(*leading, *size, device="cuda", dtype=dtype)

        given = {
            "": lambda: made(rows, columns),
            "transposed": lambda: made(columns, rows).mT,
            "gap": lambda: made(rows, columns + 8)[..., :columns],
            "unaligned": lambda: made(rows, columns + 1)[..., 1:],
            "every second": lambda: made(rows, 2 * columns)[..., ::2],
        }[layout]()
        return given.reshape(shape) if len(shape) == 1 else given, layout


def short(dtype: torch.dtype) -> str:
    """The name of a dtype without torch's."""
    return str(dtype).removeprefix("torch.")


def fits(numbers: float, flops: float = 0) -> bool:
    """Whether a call is some milliseconds at most."""
    return numbers <= 3e8 and flops <= 2e12  # noqa: PLR2004


OPERANDS = ("", "transposed", "transposed", "gap", "unaligned", "every second")


def matmul(draw: Draw) -> Case | None:
    """A product of one or more matrices, and what follows it."""
    dtype = draw.one_of(torch.bfloat16, *FLOATS, torch.float32, torch.float64)
    batch = draw.one_of(0, 0, draw.size(1, 64))
    rows, depth, columns = (draw.size() for _ in range(3))
    count = max(batch, 1)
    flops = 2.0 * count * rows * depth * columns
    numbers = count * (rows * depth + depth * columns + rows * columns)
    if not fits(numbers, flops * (20 if dtype in {torch.float32, torch.float64} else 1)):
        return None
    leading = (batch,) if batch else ()
    a, of_a = draw.tensor((*leading, rows, depth), dtype, OPERANDS)
    b, of_b = draw.tensor((*leading, depth, columns), dtype, OPERANDS)
    what = draw.one_of("", "bias", "bias, gelu", "residual", "bias, silu, residual")
    bias = torch.randn(columns, device="cuda", dtype=dtype) if "bias" in what else None
    residual = torch.randn(*leading, rows, columns, device="cuda", dtype=dtype)
    added = residual if "residual" in what else None
    activation = "gelu_tanh" if "gelu" in what else "silu" if "silu" in what else None

    def by_torch(a: Any, b: Any, bias: Any, added: Any) -> Any:
        if bias is None:
            z = torch.matmul(a, b)
        else:
            z = torch.addmm(bias, a, b) if a.dim() == 2 else torch.matmul(a, b) + bias  # noqa: PLR2004
        if activation:
            z = F.silu(z) if activation == "silu" else F.gelu(z, approximate="tanh")
        return z if added is None else z + added

    tf32 = dtype is torch.float32 and draw.one_of(False, True)
    size = f"{batch} x " * bool(batch) + f"{rows} x {depth} x {columns}"
    return Case(
        f"{size} {'tf32' if tf32 else short(dtype)}; {of_a}; {of_b}; {what}",
        (a, b, bias, added),
        lambda kernel, a, b, bias, added: kernel.matmul(
            a, b, bias=bias, activation=activation, residual=added
        ),
        by_torch,
        tf32=tf32,
    )


def linear_gelu(draw: Draw) -> Case | None:
    """A linear layer with few or many rows."""
    dtype = draw.one_of(torch.bfloat16, *FLOATS, torch.float32, torch.float64)
    rows = draw.one_of(draw.size(), draw.size(1, 64), draw.size(1, 64))
    depth, columns = draw.size(8), draw.size(8)
    slow = 20 if dtype in {torch.float32, torch.float64} else 1
    numbers = rows * depth + depth * columns + rows * columns
    if not fits(numbers, 2.0 * rows * depth * columns * slow):
        return None
    x, layout = draw.tensor((rows, depth), dtype, ("", *OPERANDS))
    weight, _ = draw.tensor((columns, depth), dtype, ("",))
    bias = draw.one_of(torch.randn(columns, device="cuda", dtype=dtype), None)
    how = draw.one_of("tanh", "none")
    tf32 = dtype is torch.float32 and draw.one_of(False, True)
    return Case(
        f"{rows} x {depth} -> {columns} {'tf32' if tf32 else short(dtype)}; {layout}; {how}"
        f"{'' if bias is not None else '; no bias'}",
        (x, weight, bias),
        lambda kernel, x, w, b: kernel.linear_gelu(x, w, b, how),
        lambda x, w, b: F.gelu(F.linear(x, w, b), approximate=how),
        tf32=tf32,
    )


def layer_norm(draw: Draw) -> Case | None:
    """LayerNorm and RMSNorm, of a sum too."""
    dtype = draw.one_of(torch.bfloat16, *FLOATS, torch.float64)
    rows, width = draw.size(1, 1 << 18), draw.size(8, 1 << 16)
    if not fits(rows * width, 0) or rows * width > 1e8:  # noqa: PLR2004
        return None
    x, layout = draw.tensor((rows, width), dtype, ("", "gap", "unaligned", "every second"))
    weight, bias = (torch.randn(width, device="cuda", dtype=dtype) for _ in range(2))
    what = draw.one_of("layer", "rms", "add layer", "add rms")
    residual = torch.randn_like(x) if "add" in what else None
    sizes, rms = (width,), "rms" in what

    def ours(kernel: Any, x: Any, weight: Any, bias: Any, residual: Any) -> Any:
        given = (weight,) if rms else (weight, bias)
        call = getattr(kernel, what.replace(" ", "_") + "_norm")
        return call(x, *(() if residual is None else (residual,)), sizes, *given, eps=1e-5)

    def by_torch(x: Any, weight: Any, bias: Any, residual: Any) -> Any:
        total = x if residual is None else x + residual
        y = (
            F.rms_norm(total, sizes, weight, 1e-5)
            if rms
            else F.layer_norm(total, sizes, weight, bias)
        )
        return y if residual is None else (y, total)

    return Case(
        f"{what} {rows} x {width} {short(dtype)}; {layout}",
        (x, weight, None if rms else bias, residual),
        ours,
        by_torch,
    )


VIEWS = ("", "transposed", "gap", "unaligned", "every second")


def elementwise(name: str, by_torch: Call, inputs: int = 1) -> Callable[[Draw], Case | None]:
    """A function of tensors of one shape."""

    def drawn(draw: Draw) -> Case | None:
        dtype = draw.one_of(*HALVES, torch.float32, torch.float64)
        shape = (draw.size(1, 65536), draw.size(1, 65536))
        if not fits(3 * shape[0] * shape[1]):
            return None
        given = [draw.tensor(shape, dtype, VIEWS) for _ in range(inputs)]
        layouts = "; ".join(layout for _, layout in given)
        return Case(
            f"{shape[0]} x {shape[1]} {short(dtype)}; {layouts}",
            tuple(t for t, _ in given),
            lambda kernel, *x: getattr(kernel, name)(*x),
            by_torch,
        )

    return drawn


def bitonic_sort(draw: Draw) -> Case | None:
    """Sorted rows and their largest."""
    dtype = draw.one_of(torch.float32, torch.bfloat16, torch.int32, torch.float64)
    rows, width = draw.size(1, 1 << 18), draw.size(2, 1 << 20)
    if rows * width > 3e7:  # noqa: PLR2004
        return None
    x = torch.randn(rows, width, device="cuda").mul(1e6).to(dtype)
    k = draw.one_of(0, min(width, draw.size(1, 128)))
    return Case(
        f"{f'top {k} of ' if k else ''}{rows} x {width} {short(dtype)}",
        (x,),
        (lambda kernel, x: kernel.topk(x, k)[0]) if k else (lambda kernel, x: kernel.sort(x)[0]),
        (lambda x: torch.topk(x, k)[0]) if k else (lambda x: torch.sort(x)[0]),
        differentiable=False,
    )


def moe(draw: Draw) -> Case | None:
    """A mixture of experts: beside torch's grouped product, or one expert after the other."""
    candidates: Any = importlib.import_module("candidates")
    dtype = draw.one_of(torch.bfloat16, torch.float16, torch.float32)
    tokens, experts = draw.size(), draw.size(2, 256)
    width, inner = draw.size(16, 8192), draw.size(16, 8192)
    # One expert's weight is 1, so that the gradient of the logits would be rounding alone.
    top = min(experts, draw.one_of(2, 4, 8))
    numbers = 3 * experts * width * inner + tokens * top * (width + inner)
    flops = 6.0 * tokens * top * width * inner
    if not fits(numbers, flops * (20 if dtype is torch.float32 else 1)):
        return None
    sizes = ((tokens, width), (experts, 2 * inner, width), (experts, width, inner))
    x, w1, w2 = (torch.randn(*each, device="cuda", dtype=dtype) * 0.1 for each in sizes)
    logits = torch.randn(tokens, experts, device="cuda")
    grouped = dtype is torch.bfloat16 and width % 8 == inner % 8 == 0
    by_torch = candidates.grouped if grouped else candidates.eager
    return Case(
        f"{tokens}, {top} of {experts}, {width} x {inner} {short(dtype)}",
        (x, logits, w1, w2),
        lambda kernel, *given: kernel.moe(*given, top),
        lambda *given: by_torch(*given, top),
        near=3,  # torch's rounds each expert's part of the gradient
    )


KERNELS: dict[str, Callable[[Draw], Case | None]] = {
    "matmul": matmul,
    "linear-gelu": linear_gelu,
    "layer-norm": layer_norm,
    "vector-add": elementwise("vector_add", torch.add, 2),
    "relu-scale": elementwise("relu_scale", lambda x: torch.relu(x) * 1.0),
    "gelu-approx": elementwise("gelu_approx", lambda x: F.gelu(x, approximate="tanh")),
    "bitonic-sort": bitonic_sort,
    "moe": moe,
}


def gradients(call: Call, inputs: tuple[Any, ...]) -> Call:
    """A call that computes the gradients of another's result by all its inputs.

    What comes in from above is the same for each contender.
    """
    source = torch.Generator(device="cuda").manual_seed(0)
    leaves = [None if t is None else t.detach().requires_grad_() for t in inputs]
    result = call(*leaves)
    results = result if isinstance(result, tuple) else (result,)
    incoming = [
        torch.randn(each.shape, generator=source, device="cuda").to(each.dtype) for each in results
    ]
    wanted = [t for t in leaves if t is not None]
    return lambda: torch.autograd.grad(results, wanted, incoming, retain_graph=True)


def medians(timer: CudaTimer, calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """The median of each in us: calls in turns, each after the L2 cache was overwritten."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            (nanoseconds,), _ = timer.block(calls[name], [()], timer.flush, 0)
            times[name].append(nanoseconds / 1e3)
    return {name: statistics.median(each) for name, each in times.items()}


def far(got: Any, want: Any) -> float:
    """The largest distance of results by their norms, in shares of what is near."""
    pairs = zip(*((t if isinstance(t, tuple) else (t,)) for t in (got, want)), strict=True)
    most = 0.0
    for one, other in pairs:
        near = NEAR.get(other.dtype, 0.0)
        off = (one.double() - other.double()).norm() / other.double().norm().clamp(min=1e-30)
        most = max(most, off.item() / near if near else float(off.item() > 0) * 2)
    return most


def slower(us: dict[str, float]) -> bool:
    """Whether the kernel takes longer than torch by over 5 %, as far as events can say."""
    return us["ours"] > 1.05 * us["torch"] and us["ours"] > us["torch"] + TICK_US


def raced(name: str, case: Case, kernels: dict[str, Any], draw: Draw) -> Any:
    """A row: the case, each contender's median in us, and how far ours is from torch's result."""
    torch.backends.cuda.matmul.allow_tf32 = case.tf32
    backward = case.differentiable and draw.one_of(False, False, False, True)
    functions: dict[str, Call] = {
        who: lambda *given, kernel=kernel: case.ours(kernel, *given)
        for who, kernel in kernels.items()
    }
    functions["torch"] = case.torch
    given = case.inputs
    calls = {
        who: gradients(function, given) if backward else lambda f=function: f(*given)
        for who, function in functions.items()
    }
    results = {who: call() for who, call in calls.items()}
    off = far(results["ours"], results["torch"]) / case.near
    del results
    timer = CudaTimer()  # of its own, for it holds the calls and so their inputs
    took = medians(timer, calls, 3)  # what is loaded at the first call, and how long all take
    rounds = max(7, min(21, int(5e4 / sum(took.values()))))
    took = medians(timer, calls, rounds)
    if slower(took):
        took = medians(timer, calls, 2 * rounds)
    label = f"gradient, {case.name}" if backward else case.name
    return {"kernel": name, "case": label, "us": took, "off": off}


def swept(options: argparse.Namespace) -> Iterator[Any]:
    """All rows, the kernels by turns, until the time is up."""
    kernels: dict[str, dict[str, Any]] = {}
    for name in options.names or KERNELS:
        builds = {"ours": ROOT / "kernels" / name / "build"}
        if options.beside:
            builds["beside"] = options.beside / name
        kernels[name] = {
            who: kernforge.get_local_kernel(path, backend="cuda")
            for who, path in builds.items()
            if path.is_dir() or who == "ours"
        }
    draw, end = Draw(options.seed), time.monotonic() + options.seconds
    while time.monotonic() < end:
        for name, loaded in kernels.items():
            if (case := KERNELS[name](draw)) is None:
                continue
            try:
                yield raced(name, case, loaded, draw)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
            except Exception as error:  # noqa: BLE001 - a case that fails is a finding too
                yield {
                    "kernel": name,
                    "case": case.name,
                    "error": f"{type(error).__name__}: {error}",
                }


def main() -> None:
    """Sweep, print, and store the worst."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *KERNELS], help="by default all")
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beside", type=Path, help="a directory with other builds, by kernel")
    parser.add_argument("--worst", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write there")
    parser.add_argument("--all", type=Path, help="write every case there, one a line")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("There is no NVIDIA GPU here. Run this on a machine with one.")
    warnings.filterwarnings("ignore", module="torch")
    torch.manual_seed(options.seed)
    found = list(swept(options))
    if options.all:
        options.all.write_text("".join(json.dumps(row) + "\n" for row in found))
    gpu = torch.cuda.get_device_name()
    timed = [row for row in found if "us" in row]
    timed.sort(key=lambda row: row["us"]["torch"] / row["us"]["ours"])
    rows = []
    for name in KERNELS:
        found_of = [row["us"] for row in timed if row["kernel"] == name]
        if found_of:
            count = sum(slower(us) for us in found_of)
            median = statistics.median(us["ours"] / us["torch"] for us in found_of)
            rows.append([name, f"{count} of {len(found_of)}", "", "", f"{median:.2f} (median)"])
    for row in [row for row in timed if slower(row["us"])][: options.worst]:
        us = row["us"]
        times = [f"{us[who]:.1f}" for who in ("ours", "torch")]
        rows.append([row["kernel"], row["case"], *times, f"{us['ours'] / us['torch']:.2f}"])
    for row in found:
        if "error" in row or row["off"] > 1:
            why = row.get("error") or f"{row['off']:.1f} times too far from torch's result"
            print(f"WRONG: {row['kernel']} {row['case']}: {why}")
    write(
        options.json or RESULTS / f"sweep-{gpu.split()[1].lower()}.json",
        describe("kernforge", "torch") | {"gpu": gpu},
        title=f"Shapes drawn at random on {gpu}: slower than torch by over 5 %, and the worst",
        head=["kernel", "case", "us", "torch, us", "time by torch's"],
        rows=rows,
        note="First how many cases of each kernel are slower. A case is sizes, dtype, the layout "
        "of each input where it is not contiguous, and what follows a product. Medians of calls in "
        "turns, L2 overwritten before each, events, which tick in half a microsecond: what is less "
        "apart is level. By `benchmarks/sweep_gpu.py`.",
    )


if __name__ == "__main__":
    main()
