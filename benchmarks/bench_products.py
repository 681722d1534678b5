# SPDX-License-Identifier: Apache-2.0
"""linear-gelu and matmul beside cuBLAS, cuBLASLt and CUTLASS without a pause, on an NVIDIA Hopper GPU.

    kernforge build kernels/matmul
    python benchmarks/bench_products.py matmul --json matmul-h200.json
    kernforge build kernels/linear-gelu
    kernforge build benchmarks/cutlass-linear-gelu
    python benchmarks/bench_products.py linear-gelu --json linear-gelu-h200.json

``kernforge bench`` waits between calls, so that a GPU keeps its highest clock; here it stays as hot as
in a training run, and large products run at its power limit. Results are compared with float64 first.
Then contenders take turns in random order, in blocks of some 16 ms: a call after 256 MiB were written over
the L2 cache, timed by events, or, of what takes some microseconds, a CUDA graph of calls with one set of
tensors after the other, together larger than the cache. The figure is the median of the blocks' medians.
The kernels are those in ``build/`` of their projects; CUTLASS is left out where it is not built.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import gelu, linear

import kernforge
from kernforge.bench.engine.nvml import open_gpu

ROOT = Path(__file__).parents[1]
BLOCK_US = 16e3
MOST_CALLS = 100
CACHES, CALLS_OF_A_GRAPH = 4, 24
"""How many times the L2 cache the tensors of a graph are, and how many calls it has at least."""
CHECKED_ROWS = 64
NEAR = {"bfloat16": 6e-3, "float16": 2e-3, "float8_e4m3fn": 2e-2, "tf32": 2e-3, "float32": 1e-5}
"""Of the norm of the result, by what is multiplied: rounding, and GELU by an instruction."""
AT_ONCE, IN_GRAPHS = "256 MiB written before each call", "CUDA graphs, tensors beyond the L2 cache"
ALONE, TRANSPOSED = "torch linear alone", "b transposed"

Call = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Race:
    """Contenders on one workload.

    Attributes:
        workload: its name.
        make: draws one set of inputs.
        exact: the result of some rows in float64, of inputs and the rows.
        calls: the contenders by name, each a function of the inputs.
        flops: of a call; 0 where bytes are what matters.
        read: bytes that a call reads at least, for the share of a copy; 0 where operations matter.
        kind: what is multiplied, a dtype or tf32.
        graph: whether calls are timed in a graph.
        unchecked: contenders that compute something else.
    """

    workload: str
    make: Callable[[], tuple[Any, ...]]
    exact: Call
    calls: dict[str, Call]
    kind: str
    flops: float = 0
    read: float = 0
    graph: bool = False
    unchecked: frozenset[str] = frozenset()


def normal(*shape: int, dtype: torch.dtype, scale: float = 1.0) -> torch.Tensor:
    """Normal numbers on the GPU."""
    return (torch.randn(*shape, device="cuda") * scale).to(dtype)


# linear-gelu


def linear_gelu_races() -> Iterator[Race]:
    """Large products at the power limit, few rows, which read the weight, and small layers."""
    own = kernforge.get_local_kernel(ROOT / "kernels/linear-gelu/build", backend="cuda").linear_gelu
    alone = {ALONE: linear}
    fused = {
        "torch._addmm_activation (cuBLASLt, fused)": lambda x, w, b: torch._addmm_activation(  # noqa: SLF001
            b, x, w.t(), use_gelu=True
        )
    }
    then = {"torch linear, then gelu": lambda x, w, b: gelu(linear(x, w, b), approximate="tanh")}
    peers = alone | fused | then
    by_erf = {"linear_gelu, by erf": lambda x, w, b: own(x, w, b, "none")}
    kept = {
        "linear_gelu, values before GELU kept": lambda x, w, b: own(
            x, w, b.detach().requires_grad_()
        )
    }
    calls = {"linear_gelu": own} | peers
    half, single = torch.bfloat16, torch.float32
    for size in ((8192, 4096, 16384), (4096, 8192, 8192), (2048, 4096, 4096)):
        yield _layer(size, half, calls | by_erf | kept | cutlass())
    for rows in (1, 4, 8, 16, 32, 64, 128):
        yield _layer((rows, 8192, 8192), half, calls, graph=True, read=8192 * 8192 * 2)
    for rows in (1, 32):
        yield _layer((rows, 768, 3072), half, calls, graph=True)
    yield _layer((32, 768, 3072), single, calls, graph=True)
    yield _layer((32, 768, 3072), single, calls, graph=True, tf32=True)
    yield _layer((8, 4096, 4096), half, calls, graph=True)
    yield _layer((4096, 4096, 4096), single, calls)
    yield _layer((8192, 4096, 8192), single, calls, tf32=True)


def _layer(
    size: tuple[int, int, int],
    dtype: torch.dtype,
    calls: dict[str, Call],
    *,
    graph: bool = False,
    read: float = 0,
    tf32: bool = False,
) -> Race:
    rows, depth, columns = size

    def make() -> tuple[torch.Tensor, ...]:
        return (
            normal(rows, depth, dtype=dtype),
            normal(columns, depth, dtype=dtype, scale=depth**-0.5),
            normal(columns, dtype=dtype),
        )

    def exact(at: torch.Tensor, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return gelu(linear(x.double()[at], w.double(), b.double()), approximate="tanh")

    kind = "tf32" if tf32 else str(dtype).removeprefix("torch.")
    name = f"{rows} x {depth} -> {columns} {kind}"
    flops = 0 if read else 2.0 * rows * depth * columns
    alone = frozenset({ALONE})
    return Race(name, make, exact, calls, kind, flops, read, graph=graph, unchecked=alone)


def cutlass() -> dict[str, Call]:
    """CUTLASS's kernels by name; none where they are not built."""
    project = ROOT / "benchmarks/cutlass-linear-gelu/build"
    if not project.is_dir():
        print(f"without CUTLASS: kernforge build {project.parent.relative_to(ROOT)}")
        return {}
    kernel = kernforge.get_local_kernel(project, backend="cuda")
    return {
        f"CUTLASS 4.4.2, {name}{f', swizzle {swizzle}' * (swizzle > 1)}": (
            lambda x, w, b, i=i, swizzle=swizzle: kernel.linear_gelu(x, w, b, i, swizzle)
        )
        for i, name in enumerate(kernel.KERNELS)
        for swizzle in (1, 4)
    }


# matmul


def matmul_races() -> Iterator[Race]:
    """The sizes that cuBLAS is measured by, b as it is and transposed, other types, the options, and fp8."""
    kernel = kernforge.get_local_kernel(ROOT / "kernels/matmul/build", backend="cuda")
    own, scaled = kernel.matmul, kernel.scaled_matmul
    plain = {"matmul": own, "cuBLAS": torch.mm}
    half, single = torch.bfloat16, torch.float32
    shapes = ((8192, 8192, 8192), (4096, 4096, 4096), (2048, 4096, 4096), (16384, 1024, 16384))
    for shape in shapes:
        yield _product(shape, half, plain)
    for shape in shapes[:3]:
        yield _product(shape, half, plain, transposed=True)
    cube = (4096, 4096, 4096)
    yield _product(cube, torch.float16, plain)
    for transposed in (False, True):
        yield _product(cube, single, plain, tf32=True, transposed=transposed)
        yield _product(cube, single, plain, transposed=transposed)
    for small in (512, 1024):
        yield _product((small, small, small), half, plain, graph=True)

    bias, residual = normal(4096, dtype=half), normal(4096, 4096, dtype=half)
    tanh = {"bias": bias, "activation": "gelu_tanh"}
    options: dict[str, Call] = {
        "matmul and a bias": lambda a, b: own(a, b, bias=bias),
        "torch.addmm, with a bias": lambda a, b: torch.addmm(bias, a, b),
        "matmul, bias and gelu_tanh": lambda a, b: own(a, b, **tanh),
        "matmul, bias and gelu": lambda a, b: own(a, b, bias=bias, activation="gelu"),
        "matmul, bias and silu": lambda a, b: own(a, b, bias=bias, activation="silu"),
        "matmul and a residual": lambda a, b: own(a, b, residual=residual),
        "matmul, bias, gelu_tanh and residual": lambda a, b: own(a, b, **tanh, residual=residual),
        "torch, bias, gelu_tanh and residual": lambda a, b: (
            gelu(torch.addmm(bias, a, b), approximate="tanh") + residual
        ),
    }
    yield _product(cube, half, plain | options, name=", options", unchecked=frozenset(options))

    eight = torch.float8_e4m3fn
    one, many = torch.ones((), device="cuda"), torch.ones(4096, device="cuda")
    fast = {"out_dtype": half, "use_fast_accum": True}
    calls: dict[str, Call] = {
        "matmul, one scale": lambda a, b: scaled(a, b, one, one),
        "cuBLAS, one scale": lambda a, b: torch._scaled_mm(  # noqa: SLF001
            a, b, one, one, **fast
        ),
        "matmul, scales of rows and columns": lambda a, b: scaled(a, b, many, many),
        "cuBLAS, scales of rows and columns": lambda a, b: torch._scaled_mm(  # noqa: SLF001
            a, b, many[:, None], many[None], **fast
        ),
    }
    yield _product(cube, eight, calls, transposed=True)


def _product(
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    calls: dict[str, Call],
    *,
    name: str = "",
    transposed: bool = False,
    graph: bool = False,
    tf32: bool = False,
    unchecked: frozenset[str] = frozenset(),
) -> Race:
    rows, depth, columns = shape

    def make() -> tuple[torch.Tensor, ...]:
        b = (columns, depth) if transposed else (depth, columns)
        a, b = normal(rows, depth, dtype=dtype), normal(*b, dtype=dtype)
        return a, b.t() if transposed else b

    def exact(at: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.double()[at] @ b.double()

    kind = "tf32" if tf32 else str(dtype).removeprefix("torch.")
    workload = f"{rows} x {depth} x {columns} {kind}{f', {TRANSPOSED}' * transposed}{name}"
    flops = 2.0 * rows * depth * columns
    return Race(workload, make, exact, calls, kind, flops, graph=graph, unchecked=unchecked)


# Measuring


def check(race: Race) -> None:
    """Refuse to time what is wrong.

    Raises:
        SystemExit: a result is too far from float64.
    """
    given = race.make()
    at = torch.randint(0, given[0].shape[0], (CHECKED_ROWS,), device="cuda")
    want = race.exact(at, *given)
    for name, call in race.calls.items():
        if name in race.unchecked:
            continue
        off = ((call(*given).double()[at] - want).norm() / want.norm()).item()
        if not off <= NEAR[race.kind]:
            sys.exit(f"{race.workload}: {name} is {off:.1e} of the result off")


class Clock:
    """Times calls, each after the L2 cache was written over, or graphs of calls.

    Attributes:
        cache: bytes of the L2 cache.
    """

    def __init__(self) -> None:
        self._spill = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        self.cache = torch.cuda.get_device_properties(0).L2_cache_size

    def block(self, call: Callable[[], object], count: int, repeats: int) -> float:
        """Microseconds: the median of so many calls, each of which is ``repeats`` in a graph."""
        events = []
        for turn in range(count):
            if repeats == 1:
                self._spill.fill_(turn)
            pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            pair[0].record()
            call()
            pair[1].record()
            events.append(pair)
        torch.cuda.synchronize()
        return statistics.median(1e3 * a.elapsed_time(b) / repeats for a, b in events)


def prepared(race: Race, clock: Clock) -> tuple[dict[str, Callable[[], object]], int]:
    """What is called in a block, and how many calls of the contender that is."""
    sets = [race.make()]
    if not race.graph:
        return {n: lambda call=c: call(*sets[0]) for n, c in race.calls.items()}, 1
    size = sum(t.numel() * t.element_size() for t in sets[0])
    sets += [race.make() for _ in range(max(3, -(-CACHES * clock.cache // size)))]
    rounds = -(-CALLS_OF_A_GRAPH // len(sets))
    graphs: dict[str, Callable[[], object]] = {}
    for name, call in race.calls.items():
        call(*sets[0])
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            held = [call(*given) for given in sets * rounds]  # so that results share no memory
        del held
        graphs[name] = graph.replay
    return graphs, len(sets) * rounds


def raced(race: Race, clock: Clock, gpu: Any, seconds: float) -> list[dict[str, Any]]:
    """The rows of a race, in the order of its contenders."""
    torch.backends.cuda.matmul.allow_tf32 = race.kind == "tf32"
    check(race)
    runs, repeats = prepared(race, clock)
    counts = {}
    for name, run in runs.items():
        clock.block(run, 3, repeats)
        one = clock.block(run, 3, repeats) * repeats
        counts[name] = max(1, min(MOST_CALLS, int(BLOCK_US / (one + 100))))
    blocks: dict[str, list[float]] = {name: [] for name in runs}
    clocks: list[float] = []
    watts: list[float] = []
    limited = 0
    order = list(runs)
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(blocks[order[0]]) < 5:  # noqa: PLR2004 - a median of few
        random.shuffle(order)
        for name in order:
            blocks[name].append(clock.block(runs[name], counts[name], repeats))
        now = gpu.reading()
        clocks.append(now.sm_mhz or 0)
        watts.append(now.power_w or 0)
        limited += "power cap" in (now.reasons or ())
    rows = []
    for name in race.calls:
        us = statistics.median(blocks[name])
        row = {
            "workload": race.workload,
            "how": IN_GRAPHS if race.graph else AT_ONCE,
            "name": name,
            "median_us": round(us, 2),
            "blocks_us": [round(each, 2) for each in blocks[name]],
            "sm_mhz": statistics.median(clocks),
            "watts": round(statistics.median(watts)),
            "share_of_readings_at_the_power_limit": round(limited / len(clocks), 2),
        }
        if race.flops:
            row["tflops"] = round(race.flops / us / 1e6, 1)
        if race.read:
            row["tb_s"] = round(race.read / us / 1e6, 3)
        rows.append(row)
    return rows


def copied(clock: Clock) -> float:
    """TB/s of a copy of 1 GiB, read and written."""
    a, b = (torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(2))
    us = statistics.median(clock.block(lambda: b.copy_(a), 10, 1) for _ in range(5))
    return 2 * a.numel() / us / 1e6


# What is stored


def linear_gelu_table(rows: list[dict[str, Any]], gpu: str) -> dict[str, object]:
    """Rates of the three large sizes."""
    cold = [r["workload"] for r in rows if r["how"] == AT_ONCE]
    large = [name for name in dict.fromkeys(cold) if name.endswith("bfloat16")]
    names = dict.fromkeys(r["name"] for r in rows if r["workload"] in large)
    rate = {(r["workload"], r["name"]): f"{r['tflops']:.0f}" for r in rows if "tflops" in r}
    return {
        "title": f"linear-gelu on an {gpu} without a pause, TFLOP/s, bfloat16",
        "head": ["", *(w.removesuffix(" bfloat16") for w in large)],
        "rows": [[name, *(rate.get((w, name), "") for w in large)] for name in names],
        "note": "Contenders in blocks of 16 ms in random order in one run, cold L2. By "
        "`benchmarks/bench_products.py`; few rows, float32 and clocks are in the file.",
    }


def matmul_table(rows: list[dict[str, Any]], gpu: str) -> dict[str, object]:
    """Rates of bfloat16 beside cuBLAS."""
    shown = []
    for workload in dict.fromkeys(r["workload"] for r in rows):
        own = {r["name"]: r for r in rows if r["workload"] == workload}
        if "bfloat16" not in workload or len(own) != 2 or own["matmul"]["how"] != AT_ONCE:  # noqa: PLR2004
            continue
        mine, peer = own["matmul"], own["cuBLAS"]
        size, _, way = workload.partition(" bfloat16")
        cells = [f"{mine['tflops']:.0f}", f"{peer['tflops']:.0f}"]
        share = f"{peer['median_us'] / mine['median_us']:.3f}"
        shown.append([size, way.strip(", ") or "b as it is", *cells, share])
    return {
        "title": f"matmul on an {gpu} without a pause, TFLOP/s, bfloat16",
        "head": ["rows x depth x columns", "", "matmul", "cuBLAS", "share"],
        "rows": shown,
        "note": "Contenders in blocks of 16 ms in random order in one run, cold L2. By "
        "`benchmarks/bench_products.py`; options, other types and clocks are in the file.",
    }


PROJECTS = {
    "linear-gelu": (linear_gelu_races, linear_gelu_table),
    "matmul": (matmul_races, matmul_table),
}


def main() -> None:
    """Check, race, store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("project", choices=PROJECTS)
    parser.add_argument(
        "--workload",
        action="append",
        metavar="BEGINNING",
        help="only workloads whose names begin so; FILE keeps its rows of others; may be repeated",
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="of each workload")
    parser.add_argument(
        "--limit", type=float, default=1e9, help="begin no workload after these seconds"
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write the figures there; what FILE has beside them stays",
    )
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("there is no NVIDIA GPU here")
    began = time.monotonic()
    torch.manual_seed(0)
    gpu, clock = open_gpu("cuda"), Clock()
    races, table = PROJECTS[options.project]
    before = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    wanted = tuple(options.workload or ("",))
    document: dict[str, Any] = {
        **before,
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "kernforge": kernforge.__version__,
        "copy_tb_s": round(copied(clock), 3),
        "left_out": [],
        "rows": [r for r in before.get("rows", ()) if not r["workload"].startswith(wanted)],
    }
    for race in races():
        if not race.workload.startswith(wanted):
            continue
        if time.monotonic() - began > options.limit:
            document["left_out"].append(race.workload)
            continue
        rows = raced(race, clock, gpu, options.seconds)
        for row in rows:
            if "tb_s" in row:
                row["share_of_copy"] = round(row["tb_s"] / document["copy_tb_s"], 3)
            shown = {k: v for k, v in row.items() if k not in {"blocks_us", "how"}}
            print(round(time.monotonic() - began), shown, flush=True)
        document["rows"] += rows
        document["table"] = table(document["rows"], document["gpu"])
        if options.json:
            options.json.write_text(json.dumps(document, indent=1) + "\n")
    sys.exit(1 if document["left_out"] else 0)


if __name__ == "__main__":
    main()
