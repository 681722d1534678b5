# SPDX-License-Identifier: Apache-2.0
"""What a mistake in a source costs: ``kernforge.load_inline`` beside torch's, in one run.

Each loader gets the same source (a tutorial's: torch's types, bound by ``functions``) in a fresh process
with an empty cache of its own: once right, once without a semicolon, once with a misspelt member, once
with a misspelt function. Three things are measured: seconds until the error (or the module) is there,
seconds until the process has ended, and processor seconds of the process with all its compilers.
Figures of a busy machine are not worth much; their ratios to the loader's own good build are.

CUDA is compiled for TORCH_CUDA_ARCH_LIST, by default 9.0: no GPU is needed. torch's loader needs
CUDA_HOME and a torch for CUDA; `--loaders kernforge` needs neither.

    python benchmarks/bench_typo.py OUT.json [--languages cpp,cuda] [--loaders kernforge,torch]
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import describe

CPP = """torch::Tensor scale(torch::Tensor x, double a) {
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  auto y = torch::empty_like(x);
  auto* from = x.data_ptr<float>();
  auto* to = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = a * from[i];
  return y;
}
"""
CUDA = """__global__ void scale_kernel(const float* x, float* y, float a, int64_t n) {
  int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = a * x[i];
}
torch::Tensor scale(torch::Tensor x, double a) {
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  auto y = torch::empty_like(x);
  int64_t n = x.numel();
  scale_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), float(a), n);
  return y;
}
"""
DECLARED = "torch::Tensor scale(torch::Tensor x, double a);\n"
MISTAKES = {
    "good": ("", ""),
    "no semicolon": ("empty_like(x);", "empty_like(x)"),
    "misspelt member": ("x.is_contiguous()", "x.is_contigous()"),
    "misspelt function": ("torch::empty_like", "torch::empty_lik"),
}


def source(language: str, mistake: str) -> dict[str, object]:
    """Arguments of load_inline."""
    old, new = MISTAKES[mistake]
    text = CUDA if language == "cuda" else CPP
    if old not in text:
        raise SystemExit(f"the source has no {old!r}")
    text = text.replace(old, new)
    if language == "cuda":
        return {"cpp_sources": DECLARED, "cuda_sources": text, "functions": ["scale"]}
    return {"cpp_sources": text, "functions": ["scale"]}


def child(language: str, mistake: str) -> None:
    """Load in this process; print the seconds as JSON."""
    import torch  # noqa: PLC0415, F401 - not in the clock

    if os.environ["BENCH_LOADER"] == "torch":
        from torch.utils.cpp_extension import load_inline  # noqa: PLC0415
    else:
        from kernforge import load_inline  # noqa: PLC0415
    arguments = source(language, mistake)
    used = time.process_time()
    start = time.perf_counter()
    failed = ""
    try:
        load_inline(name="bench_typo", **arguments)
    except Exception as error:  # noqa: BLE001 - each loader has its own
        failed = str(error)
    seconds = time.perf_counter() - start
    if bool(failed) == (mistake == "good"):
        raise SystemExit(f"{mistake}: {failed or 'it compiled'}")
    print("RESULT " + json.dumps({"until told": seconds, "before": used}), flush=True)


def measure(loader: str, language: str, mistake: str) -> dict[str, float]:
    """One attempt in a fresh process with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        env = dict(os.environ, BENCH_LOADER=loader, KERNFORGE_HOME=f"{cache}/kernforge")
        env |= {"TORCH_EXTENSIONS_DIR": f"{cache}/torch"}
        # What every module of a machine shares, such as the identity of its compiler, is there.
        kept = Path(os.environ.get("KERNFORGE_HOME", Path.home() / ".cache" / "kernforge"))
        for part in ("store/toolchains", "store/compilers", "jit"):
            if (kept / part).is_dir():
                place = Path(cache, "kernforge", part)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(kept / part)
        argv = [sys.executable, __file__, "--child", f"{language},{mistake}"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        whole = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        if not lines:
            raise SystemExit(done.stdout + done.stderr)
        found = json.loads(lines[-1].removeprefix("RESULT "))
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        files = (path for path in Path(cache).rglob("*") if path.is_file())
        return {
            "until told": found["until told"],
            "until the end": whole,
            "cpu": cpu - found["before"],
            "cache MB": sum(path.stat().st_size for path in files) / 1e6,
        }


def table(results: dict[str, dict[str, dict[str, float]]], where: str) -> dict[str, object]:
    """What the page of results shows: each in units of the loader's own good build, and in seconds."""
    rows = []
    for name, found in results.items():
        good = found["good"]
        for mistake, figures in found.items():
            ratio = figures["until told"] / good["until told"]
            rows.append(
                [
                    f"{name}, {mistake}",
                    f"{figures['until told']:.1f}",
                    f"{ratio:.2f}",
                    f"{figures['until the end']:.1f}",
                    f"{figures['cpu']:.1f}",
                    f"{figures['cpu'] / good['cpu']:.2f}",
                    f"{figures['cache MB']:.1f}",
                ]
            )
    return {
        "title": f"What a mistake costs, on {where}",
        "head": [
            *("loader, source", "s until told", "of a good build", "s until the process ends"),
            *("CPU s", "of a good build", "MB in the cache"),
        ],
        "rows": rows,
        "note": "New processes with an empty cache, in one run. A source with torch's types that is "
        "bound by `functions`; the others are that source with one mistake. Other work on the "
        "machine makes seconds longer, and CPU seconds hardly. By `benchmarks/bench_typo.py`.",
    }


def main() -> None:
    """Measure both loaders and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--languages", default="cpp,cuda")
    parser.add_argument("--loaders", default="kernforge,torch")
    parser.add_argument("--child")
    arguments = parser.parse_args()
    if arguments.child:
        child(*arguments.child.split(","))
        return
    if "cuda" in arguments.languages.split(","):
        os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")
        if "torch" in arguments.loaders.split(","):
            from torch.utils.cpp_extension import CUDA_HOME  # noqa: PLC0415 - only for this

            if not CUDA_HOME or not Path(CUDA_HOME, "bin", "nvcc").is_file():
                parser.error(
                    f"torch's loader found no nvcc ({CUDA_HOME}); it needs CUDA_HOME, and a torch for CUDA"
                )
    machine = describe("torch")
    results: dict[str, dict[str, dict[str, float]]] = {}
    for language in arguments.languages.split(","):
        for loader in arguments.loaders.split(","):
            found = results[f"{language}, {loader}"] = {}
            for mistake in MISTAKES:
                found[mistake] = measure(loader, language, mistake)
                print(language, loader, mistake, json.dumps(found[mistake]), flush=True)
            document = {"machine": machine, "unit": "s", "results": results}
            document["table"] = table(results, f"{machine['cores']} cores")
            if arguments.out:
                arguments.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
