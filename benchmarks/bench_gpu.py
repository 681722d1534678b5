# SPDX-License-Identifier: Apache-2.0
"""Matrix products, transformer blocks and the tutorial's eight steps on a GPU, timed.

    kernforge build kernels/matmul && python benchmarks/bench_gpu.py matmul
    kernforge build kernels/linear-gelu && kernforge build benchmarks/cutlass-linear-gelu
    python benchmarks/bench_gpu.py linear-gelu   # beside cuBLASLt and, where it is built, CUTLASS
    python benchmarks/bench_gpu.py block         # of kernels/*/build beside torch's, both compiled
    python benchmarks/bench_gpu.py eight-steps   # compiles tests/tutorials/matmul_steps with nvcc

Writes benchmarks/results/NAME-GPU.json (or ``--json FILE``). Needs a Hopper GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from results import RESULTS, describe, write
from torch.nn.functional import gelu, linear

import kernforge
from kernforge import Tensor, Workload
from kernforge.bench import project, run
from kernforge.bench.workload import Candidate, Settings

ROOT = Path(__file__).parents[1]
HALF = "bfloat16"
STEPS = (
    *("naive: one thread a result", "coalesced loads", "tiles in shared memory"),
    *("8 x 8 results a thread", "16-byte loads, cp.async", "tensor cores by mma.sync"),
    *("TMA, wgmma, mbarriers", "persistent, clusters, overlap"),
)
Functions = dict[str, Callable[..., Any]]
Race = tuple[Workload, Functions]  # the first function is ours


def of_kernel(name: str) -> Any:
    """A kernel of this repository, built."""
    return kernforge.get_local_kernel(ROOT / "kernels" / name / "build", backend="cuda")


def product(rows: int, depth: int, columns: int, dtype: str = HALF) -> Workload:
    """A matrix product."""
    return Workload(
        name=f"{rows} x {depth} x {columns} {dtype}",
        inputs=(
            Tensor(shape=(rows, depth), dtype=dtype),
            Tensor(shape=(depth, columns), dtype=dtype),
        ),
        reference=lambda a, b: a.double() @ b.double(),
        flops=2 * rows * depth * columns,
    )


def matmul() -> Iterator[Race]:
    """The sizes that cuBLAS is measured by."""
    functions: Functions = {"matmul": of_kernel("matmul").matmul, "cuBLAS": torch.mm}
    for size in ((8192,) * 3, (4096,) * 3, (2048, 4096, 4096), (16384, 1024, 16384), (1024,) * 3):
        yield product(*size), functions
    yield product(4096, 4096, 4096, "float16"), functions


def linear_gelu() -> Iterator[Race]:
    """Large products, and few rows, which read the weight."""
    functions: Functions = {
        "linear_gelu": of_kernel("linear-gelu").linear_gelu,
        "torch._addmm_activation (cuBLASLt, fused)": lambda x, w, b: torch._addmm_activation(  # noqa: SLF001
            b, x, w.t(), use_gelu=True
        ),
        "torch linear, then gelu": lambda x, w, b: gelu(linear(x, w, b), approximate="tanh"),
        **cutlass(),
    }
    sizes = ((8192, 4096, 16384), (4096, 8192, 8192), (2048, 4096, 4096), (16, 8192, 8192))
    for rows, depth, columns in sizes:
        workload = Workload(
            name=f"{rows} x {depth} -> {columns} {HALF}",
            inputs=tuple(
                Tensor(shape=shape, dtype=HALF)
                for shape in ((rows, depth), (columns, depth), (columns,))
            ),
            reference=lambda x, w, b: gelu(
                linear(x.double(), w.double(), b.double()), approximate="tanh"
            ),
            flops=2 * rows * depth * columns,
        )
        yield workload, functions


def cutlass() -> Functions:
    """CUTLASS's kernels by name; none where they are not built."""
    build = ROOT / "benchmarks/cutlass-linear-gelu/build"
    if not build.is_dir():
        print(f"without CUTLASS: kernforge build {build.parent.relative_to(ROOT)}")
        return {}
    kernel = kernforge.get_local_kernel(build, backend="cuda")
    return {
        f"CUTLASS 4.4.2, {name}": lambda x, w, b, i=i: kernel.linear_gelu(x, w, b, i, 4)
        for i, name in enumerate(kernel.KERNELS)
    }


def block() -> Iterator[Race]:
    """A block of a transformer, forward and with gradients."""
    spec = importlib.util.spec_from_file_location(
        "transformer_block", ROOT / "tests/support/transformer_block.py"
    )
    if spec is None or spec.loader is None:
        raise ImportError("tests/support/transformer_block.py is missing")
    blocks = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(blocks)
    ours = blocks.of_kernels(of_kernel)
    dense = {"experts": 0, "width": 4096, "heads": 32, "inner": 16384}
    experts = {"experts": 128, "width": 2048, "heads": 32, "inner": 768, "top_k": 8}
    cases = (("dense 4096 to 16384", dense), ("128 experts of 768, 8 each", experts))
    for (name, sizes), (batch, length) in ((c, s) for c in cases for s in ((2, 2048), (16, 1))):
        torch._dynamo.reset()  # noqa: SLF001 - another size is another graph, not a dynamic one
        models = {}
        for who, parts in (("torch", blocks.Torch), ("kernels", ours)):
            with torch.device("cuda"):
                models[who] = blocks.Block(parts=parts, **sizes).to(torch.bfloat16)
        models["kernels"].load_state_dict(models["torch"].state_dict())
        compiled = {who: torch.compile(model, fullgraph=True) for who, model in models.items()}
        functions: Functions = {
            "kernels, compiled": compiled["kernels"],
            "torch, compiled": compiled["torch"],
            "torch, eager": models["torch"],
        }
        for what, way in (("forward", forward), ("forward, backward", gradient)):
            if what != "forward" and length == 1:
                continue
            workload = Workload(
                name=f"{name}, {batch} x {length} tokens, {what}",
                inputs=(Tensor(shape=(batch, length, sizes["width"]), dtype=HALF),),
                reference=way(models["torch"]),
                flops=0,
                tolerance=0.05,  # a token may get another of two nearly equal experts
                accepts=near,
            )
            yield workload, {who: way(function) for who, function in functions.items()}


def forward(model: Callable[..., Any]) -> Callable[..., Any]:
    """A call without gradients."""

    @torch.no_grad()
    def call(x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = model(x)
        return found

    return call


def gradient(model: Callable[..., Any]) -> Callable[..., Any]:
    """A call that gives the gradient of its input."""

    def call(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        (found,) = torch.autograd.grad(model(x).sum(), x)
        return found

    return call


def near(got: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    """Whether the results differ by 5 % of their norm or less."""
    pairs = zip(got, right, strict=True)
    return all(
        ((a.double() - b.double()).norm() <= 0.05 * b.double().norm()).item() for a, b in pairs
    )


def eight_steps() -> Iterator[Race]:
    """The steps of docs/explanation/matmul-in-eight-steps.md beside cuBLAS."""
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory) / "steps.so"
        argv = ["nvcc", "-std=c++20", "-O3", "-gencode=arch=compute_90a,code=sm_90a", "-shared"]
        argv += ["-Xcompiler", "-fPIC", f"-I{ROOT}/src/kernforge/include/csrc", "-o", str(library)]
        subprocess.run([*argv, str(ROOT / "tests/tutorials/matmul_steps/steps.cu")], check=True)
        step = ctypes.CDLL(str(library)).matmul_step

        def run(number: int, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            c = a.new_empty(a.shape[0], b.shape[1])
            pointers = [ctypes.c_void_p(each.data_ptr()) for each in (a, b, c)]
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            if error := step(number, *pointers, a.shape[0], b.shape[1], a.shape[1], stream):
                raise RuntimeError(f"step {number}: CUDA error {error}")
            return c

        functions: Functions = {
            f"{i} {name}": lambda a, b, i=i: run(i, a, b) for i, name in enumerate(STEPS, 1)
        }
        yield product(4096, 4096, 4096), functions | {"cuBLAS (torch.mm)": torch.mm}


RACES = {
    "matmul": matmul,
    "linear-gelu": linear_gelu,
    "block": block,
    "eight-steps": eight_steps,
}


def main() -> None:
    """Measure, and store the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=RACES)
    parser.add_argument("--rounds", type=int, default=20, help="at most")
    parser.add_argument("--json", type=Path, help="write there")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("There is no NVIDIA GPU here. Run this on a machine with one.")
    warnings.filterwarnings("ignore", module="torch")
    torch.manual_seed(0)
    settings = Settings(device="cuda", modes=("cold",), most=options.rounds, block_s=0.03)
    rows: list[list[str]] = []
    where: dict[str, Any] = describe("kernforge", "torch")
    for workload, functions in RACES[options.name]():
        contenders = [Candidate(name=n, kind="peer", function=f) for n, f in functions.items()]
        report = run.measure(project.each_of([workload], contenders, "cuda"), settings, print)
        (case,) = report.workloads
        where["gpu"] = report.machine.device
        first = case.results[0].median_ns
        for each in case.results:
            median = each.median_ns
            if median is None or first is None:
                rows.append([case.name, each.candidate, each.refused or each.skipped, "", ""])
                continue
            rate = f"{case.flops / median / 1e3:,.0f}" if case.flops else ""
            ratio = f"{median / first:.3f}"
            rows.append([case.name, each.candidate, f"{median / 1e3:,.1f}", rate, ratio])
        write(
            options.json or RESULTS / f"{options.name}-{where['gpu'].split()[1].lower()}.json",
            where,
            title=f"{options.name} on {where['gpu']}",
            head=["", "", "us", "TFLOP/s", "time by the first's"],
            rows=rows,
            note="Medians of rounds, in turns in one run, L2 overwritten before each call, results "
            "verified. By `benchmarks/bench_gpu.py`.",
        )


if __name__ == "__main__":
    main()
