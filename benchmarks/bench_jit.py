# SPDX-License-Identifier: Apache-2.0
"""How long an author waits for ``load_inline``: kernforge's beside torch's, in one run.

Each loader gets the same tutorial's source (torch's types, bound by ``functions``, four kernels) in
a fresh process with an empty cache. The moments: cold; after an edit of a kernel and its launcher;
after an edit of a kernel's body alone; after an edit of nothing; in a second process; and until the
error of a source without a semicolon and of one with a misspelt function is there. ``project`` is
what ``kernforge new`` writes, loaded by ``kernforge.load(directory)``; torch's loader knows none.

    python benchmarks/bench_jit.py      # needs CUDA_HOME for torch's, a GPU for the project's row

Writes benchmarks/results/jit.json. CUDA is compiled for TORCH_CUDA_ARCH_LIST (9.0).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from results import RESULTS, describe, write

KERNELS = {
    "scale": "a * x[i]",
    "shift": "x[i] + a",
    "square": "a * x[i] * x[i]",
    "clamp": "x[i] < a ? x[i] : a",
}
CUDA = """
__global__ void {name}_kernel(const float* x, float* y, float a, long n) {{
  long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = {body};
}}
torch::Tensor {name}(torch::Tensor x, double a) {{
  auto y = torch::empty_like(x);
  long n = x.numel();
  const int block = {block};
  {name}_kernel<<<(n + block - 1) / block, block>>>(x.data_ptr<float>(), y.data_ptr<float>(), a, n);
  return y;
}}
"""
MISTAKES = {
    "no semicolon": ("empty_like(x);", "empty_like(x)"),
    "misspelt function": ("torch::empty_like", "torch::empty_lik"),
}
LOADERS = ("kernforge", "torch")
MOMENTS = ("cold", "edit", "device-only edit", "unchanged", "second process", *MISTAKES)


def source(edited: int, block: int, mistake: str = "") -> dict[str, object]:
    """Arguments of load_inline; an edit changes one kernel, and maybe the launchers."""
    bodies = KERNELS | ({"scale": f"a * x[i] + {edited}"} if edited else {})
    code = "".join(CUDA.format(name=n, body=b, block=block) for n, b in bodies.items())
    if mistake:
        code = code.replace(*MISTAKES[mistake], 1)
    declared = "".join(f"torch::Tensor {n}(torch::Tensor x, double a);\n" for n in bodies)
    return {"cpp_sources": declared, "cuda_sources": code, "functions": list(bodies)}


def child(loader: str, moment: str) -> None:
    """Load in this process; print the seconds of its moments as JSON."""
    if loader == "torch":
        from torch.utils.cpp_extension import load_inline  # noqa: PLC0415
    else:
        from kernforge import load_inline  # noqa: PLC0415

    def timed(edited: int, block: int = 256, mistake: str = "") -> float:
        arguments = source(edited, block, mistake)
        failed = False
        start = time.perf_counter()
        try:
            module = load_inline(name="bench_jit", **arguments)
        except Exception:
            failed = True
            if not mistake:
                raise
        seconds = time.perf_counter() - start
        if failed != bool(mistake):
            raise SystemExit(f"{mistake}: it compiled")
        if not failed and torch.cuda.is_available():
            x = torch.arange(5, dtype=torch.float32, device="cuda")
            torch.testing.assert_close(module.scale(x, 3.0), 3 * x + edited)
        return seconds

    if moment in MISTAKES:
        found = {moment: timed(0, mistake=moment)}
    elif moment == "second process":
        found = {moment: timed(3, 192)}
    else:
        found = {"cold": timed(0), "edit": timed(1, 128)}
        timed(2, 192)
        found["device-only edit"] = timed(3, 192)
        found["unchanged"] = timed(3, 192)
    print("RESULT " + json.dumps(found))


def project(cache: str) -> dict[str, float]:
    """Seconds of ``kernforge.load`` of a new project: cold, and after an edit of its source.

    None without a GPU: it is loaded for the CPU then.
    """
    if not torch.cuda.is_available():
        return {}
    new = [sys.executable, "-m", "kernforge", "new", "bench-toy"]
    subprocess.run(new, cwd=cache, check=True, stdout=subprocess.DEVNULL)
    root = Path(cache, "bench-toy")
    code = f"""
import time, json, pathlib
from kernforge import load
import torch
found, source = {{}}, pathlib.Path({str(root / "bench_toy.cu")!r})
edit = ("device-only edit", "* scale;", "* scale + 1;")
for moment, old, new in (("cold", "", ""), edit):
    source.write_text(source.read_text().replace(old, new) if old else source.read_text())
    start = time.perf_counter()
    load({str(root)!r})
    found[moment] = time.perf_counter() - start
print("RESULT " + json.dumps(found))
"""
    return run(["-c", code], cache)


def run(arguments: list[str], cache: str) -> dict[str, float]:
    """The result of a fresh process with its caches there."""
    env = {**os.environ, "KERNFORGE_HOME": f"{cache}/kernforge"}
    env["TORCH_EXTENSIONS_DIR"] = f"{cache}/torch"
    # Toolchains and facts about the compiler are there already.
    kept = Path(os.environ.get("KERNFORGE_HOME", Path.home() / ".cache" / "kernforge"))
    for part in ("store/toolchains", "store/compilers", "jit"):
        place = Path(cache, "kernforge", part)
        if (kept / part).is_dir() and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(kept / part)
    done = subprocess.run(
        [sys.executable, *arguments], env=env, capture_output=True, text=True, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        sys.exit(f"{arguments[1:3]}: {(done.stdout + done.stderr)[-3000:]}")
    found: dict[str, float] = json.loads(lines[-1].removeprefix("RESULT "))
    return found


def main() -> None:
    """Time both loaders and write the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")
    if arguments.child:
        child(*arguments.child)
        return
    results: dict[str, dict[str, float]] = {}
    for loader in LOADERS:
        with tempfile.TemporaryDirectory() as cache:
            found = results[f"tutorial, {loader}"] = {}
            # In a second process torch's loader compiles again: that is not waited for.
            moments = ["cold"] if loader == "torch" else ["cold", "second process"]
            for moment in moments:
                found |= run([__file__, "--child", loader, moment], cache)
        for moment in MISTAKES:
            with tempfile.TemporaryDirectory() as cache:
                found |= run([__file__, "--child", loader, moment], cache)
        print(loader, found, flush=True)
    with tempfile.TemporaryDirectory() as cache:
        results["project, kernforge"] = project(cache)
    where = describe("kernforge", "torch")
    write(
        arguments.json or RESULTS / "jit.json",
        where,
        title=f"Seconds until four small CUDA kernels can be called, on {where['cores']} cores",
        head=["form, loader", *MOMENTS],
        rows=[
            [name, *(f"{found[m]:.2g}" if m in found else "" for m in MOMENTS)]
            for name, found in results.items()
            if found
        ],
        note="New processes with an empty cache, in one run. An edit changes a kernel and its "
        "launcher, a device-only edit the body of a kernel. The last columns are the seconds until "
        "the error of a mistake is there. tutorial: one source with torch's types, bound by "
        "`functions`. project: a kernel project. By `benchmarks/bench_jit.py`.",
    )


if __name__ == "__main__":
    main()
