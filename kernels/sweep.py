# SPDX-License-Identifier: Apache-2.0
"""A sweep over sizes on an NVIDIA GPU: a kernel beside its peers and a device copy.

Each kernel's ``benchmarks/bench_gpu.py`` names its contenders and calls ``main``. Three times are
taken of each contender at each size, all in one process, contenders in random order each round:

``cold``    one call between two events, the L2 cache overwritten and then filled with clean lines
            before it, work queued ahead so that the GPU's time counts and not Python's
``graph``   calls replayed from one CUDA graph, per call; data stay in L2 where they fit
``launch``  the same calls from Python in a loop, per call: what a user pays for small tensors

Results are allocated by each call. Medians count. The copy moves as many bytes as the kernel,
half read and half written, to memory that is allocated by the call too.

Our function is measured under two names: a difference no larger than theirs is noise. A small cold
call takes one of a few times that lie 0.2 us apart, so that a median of few rounds jumps between
two of them (decision 150): such calls get ten times as many rounds, and a mean beside the median.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import math
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

COPY = "device copy"
AGAIN = "ours, again"
COMPILED = "torch.compile, max-autotune"
# Calls in one graph or loop: enough that starting it does not count.
CALLS = 200
# From this many elements on, the GPU and not the launch decides, and a loop would only take long.
LAUNCH_BOUND = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One kernel at one dtype and any size.

    ``make(n)`` gives fresh inputs of n elements; ``calls`` maps names to functions of them, the
    first is ours; ``expression`` is what torch.compile gets; ``reference`` is in higher precision;
    ``bytes_per_element`` counts each input read once and each output written once.
    """

    name: str
    make: Callable[[int], tuple[torch.Tensor, ...]]
    calls: dict[str, Callable[..., torch.Tensor]]
    expression: Callable[..., torch.Tensor]
    reference: Callable[..., torch.Tensor]
    bytes_per_element: int
    rtol: float


class L2:
    """Makes the cache hold nothing of what comes next, and nothing that must be written back."""

    def __init__(self):
        size = 4 * torch.cuda.get_device_properties(0).L2_cache_size
        self.dirt = torch.empty(size, dtype=torch.uint8, device="cuda")
        self.clean = torch.ones(size // 4, dtype=torch.int32, device="cuda")

    def flush(self):
        self.dirt.zero_()
        self.clean.sum()


def contenders(workload, n):
    """Every name with a function of no arguments; a copy of as many bytes among them."""
    given = workload.make(n)
    copied = torch.empty(n * workload.bytes_per_element // 2, dtype=torch.uint8, device="cuda")
    copied.random_(0, 256)
    calls = dict(workload.calls)
    calls[AGAIN] = next(iter(calls.values()))
    calls[COMPILED] = torch.compile(
        workload.expression, fullgraph=True, dynamic=False, mode="max-autotune-no-cudagraphs"
    )
    found = {name: (lambda call=call: call(*given)) for name, call in calls.items()}
    check(
        workload,
        {name: call(*given) for name, call in calls.items()} if n <= 1 << 24 else {},
        given,
    )
    found[COPY] = copied.clone
    return found


def check(workload, results, given):
    """Hold everyone's result against the reference: a wrong one is not worth timing."""
    for name, got in results.items():
        want = workload.reference(*given)
        gap = ((got.double() - want).norm() / want.norm()).item()
        if not gap <= workload.rtol:
            raise SystemExit(f"{workload.name}: {name} is {gap:.2e} off the reference")


def timed(call):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3


def cold_times(found, l2, rounds, shuffle):
    def once(call):
        l2.flush()
        return timed(call)

    return _rounds(
        {name: lambda call=call: once(call) for name, call in found.items()}, rounds, shuffle
    )


def graph_times(found, rounds, shuffle):
    replays = {}
    for name, call in found.items():
        call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(CALLS):
                call()
        replays[name] = lambda graph=graph: timed(graph.replay) / CALLS
    return _rounds(replays, rounds, shuffle)


def launch_times(found, rounds, shuffle):
    def loop(call):
        for _ in range(CALLS):
            call()

    return _rounds(
        {name: lambda call=call: timed(lambda: loop(call)) / CALLS for name, call in found.items()},
        rounds,
        shuffle,
    )


def _rounds(measures, rounds, shuffle):
    """Microseconds by name and round, everyone in turn, the first three turns left out."""
    order = list(measures)
    times = {name: [] for name in order}
    for turn in range(rounds + 3):
        shuffle(order)
        for name in order:
            took = measures[name]()
            if turn >= 3:
                times[name].append(took)
    return times


def middle(times):
    """Their mean without the twentieth that is least and the twentieth that is most."""
    times = sorted(times)
    out = len(times) // 20
    return statistics.fmean(times[out : len(times) - out])


def standing(times, ours):
    """In how many rounds one was faster than ours less those in which it was slower, in standard
    deviations of a fair coin: beyond 3 is no accident of this process."""
    ahead = sum((a < b) - (a > b) for a, b in zip(times, ours, strict=True))
    return round(ahead / math.sqrt(sum(a != b for a, b in zip(times, ours, strict=True)) or 1), 1)


def figures(workload, n, how, times, bytes_per_element):
    """Rows of figures, one a contender, of whom the first is ours."""
    ours = next(iter(times))
    medians = {name: round(statistics.median(us), 3) for name, us in times.items()}
    means = {name: middle(us) for name, us in times.items()}
    return [
        {
            "workload": workload,
            "elements": n,
            "how": how,
            "name": name,
            "median_us": median,
            "mean_us": round(means[name], 3),
            "rounds": len(times[name]),
            "gb_per_s": round(n * bytes_per_element / median / 1e3, 1),
            "share_of_copy": round(medians[COPY] / median, 4),
            "times_ours": round(median / medians[ours], 3),
            "mean_times_ours": round(means[name] / means[ours], 4),
            "standing": standing(times[name], times[ours]),
        }
        for name, median in medians.items()
    ]


def ahead_of_ours(rows):
    """Peers whose lead over ours at one size is more than that of ours under its second name."""
    again = {(r["workload"], r["elements"], r["how"]): r for r in rows if r["name"] == AGAIN}
    for row in rows:
        noise = again[row["workload"], row["elements"], row["how"]]
        widest = max(abs(1 - noise["times_ours"]), abs(1 - noise["mean_times_ours"]), 0.01)
        if row["name"] in (COPY, AGAIN, "ours") or row["standing"] <= 3:
            continue
        if 1 - row["mean_times_ours"] > widest:
            yield row


def sweep(workload, sizes, rounds, seed):
    """Rows of figures, one a size and contender."""
    shuffle = random.Random(seed).shuffle  # noqa: S311 - an order, no secret
    l2 = L2()
    rows = []
    for n in sizes:
        torch._dynamo.reset()
        found = contenders(workload, n)
        often = 10 * rounds if n <= LAUNCH_BOUND else rounds if n < 1 << 28 else rounds // 2
        times = {"cold": cold_times(found, l2, often, shuffle)}
        if n <= LAUNCH_BOUND:
            times["graph"] = graph_times(found, rounds, shuffle)
            times["launch"] = launch_times(found, rounds // 2, shuffle)
        for how, measured in times.items():
            found_at = figures(workload.name, n, how, measured, workload.bytes_per_element)
            rows += found_at
            print(
                f"{workload.name} {n:>11} {how:<7}"
                + "".join(f" | {row['name']} {row['median_us']:.2f}" for row in found_at),
                flush=True,
            )
        del found
        torch.cuda.empty_cache()
    return rows


# What a reader looks for first: the columns of the table that the README shows.
COLUMNS = (
    ("launch", 1 << 10),
    ("graph", 1 << 10),
    ("graph", 1 << 18),
    ("cold", 1 << 18),
    ("cold", 1 << 22),
    ("cold", 1 << 26),
    ("cold", 1 << 30),
)
HOW = {"launch": "from Python", "graph": "CUDA graph", "cold": ""}


def table(name, result):
    """The first workload's medians as ``scripts/generate_docs.py`` renders them."""
    of = result["rows"][0]["workload"]
    rows = [row for row in result["rows"] if row["workload"] == of]
    at = {(row["name"], row["how"], row["elements"]): row["median_us"] for row in rows}
    columns = [c for c in COLUMNS if (COPY, *c) in at]
    return {
        "title": f"{name} on an {result['machine']['gpu']}, us: {of.replace('torch.', '')}",
        "head": ["", *(f"2^{n.bit_length() - 1} {HOW[how]}".strip() for how, n in columns)],
        "rows": [
            [name if who == "ours" else who, *(f"{at[who, *c]:,.2f}" for c in columns)]
            for who in dict.fromkeys(row["name"] for row in rows)
        ],
        "note": "Medians, interleaved in one run, cold L2 unless said; the copy moves as many bytes. "
        f"Other sizes and dtypes are in the file; what they say is in kernels/{name}/README.md.",
    }


def get_kernel(name):
    if directory := os.environ.get("KERNFORGE_KERNEL_DIR"):
        return kernforge.get_local_kernel(Path(directory) / name)
    return kernforge.get_kernel(f"kernforge/{name}", version=1)


def machine(kernel):
    device = torch.cuda.get_device_properties(0)
    return {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "gpu": device.name,
        "multiprocessors": device.multi_processor_count,
        "l2_bytes": device.L2_cache_size,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "kernel": json.loads((Path(kernel.__file__).parent / "metadata.json").read_text())["id"],
    }


def main(name, workloads):
    """The command line of one kernel's sweep; ``workloads(kernel, dtype)`` lists what to time."""
    parser = argparse.ArgumentParser(description=f"{name} beside its peers, by size")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--rounds", type=int, default=30, help="measured runs of each (30)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--from", type=int, default=10, dest="low", help="smallest power of two")
    parser.add_argument("--to", type=int, default=30, help="largest power of two")
    parser.add_argument("--step", type=int, default=1)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", module="torch._inductor")
    torch.manual_seed(args.seed)
    kernel = get_kernel(name)
    result = {"machine": machine(kernel), "rows": []}
    sizes = [1 << power for power in range(args.low, args.to + 1, args.step)]
    for dtype in args.dtypes.split(","):
        for workload in workloads(kernel, getattr(torch, dtype)):
            result["rows"] += sweep(workload, sizes, args.rounds, args.seed)
            result["table"] = table(name, result)
            if args.json:
                args.json.write_text(json.dumps(result, indent=1) + "\n")
    for row in ahead_of_ours(result["rows"]):
        print("faster than ours:", json.dumps(row), file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit("run a kernel's benchmarks/bench_gpu.py")
