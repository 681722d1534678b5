# SPDX-License-Identifier: Apache-2.0
"""How long an author waits for four toy kernels: ``kernforge.load_inline`` beside torch's.

Each loader gets the same kernels in a fresh process with an empty cache of its own. Three forms are
timed: ``tutorial`` (one source for both loaders, torch's types in it, bound with ``functions``) and
``split`` (kernels on raw pointers, a binding on torch's stable ABI, which is how kernforge wants them;
torch's loader is given the same split sources with its own implicit headers) and ``project`` (what
``kernforge new`` writes, built and loaded by ``kernforge.load(directory)``; torch's loader knows none).
The moments: cold; after an edit of a kernel and of its launcher, and another; after edits of a kernel's
body alone; after an edit of nothing; in a second process. Between edits kernforge's work in the background is waited for, as an
author's next edit would be.

    python benchmarks/bench_jit.py OUT.json [--cpu] [--forms tutorial,split,project] [--loaders ...]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from machine import describe

KERNELS = {
    "scale": "a * x[i]",
    "shift": "x[i] + a",
    "square": "a * x[i] * x[i]",
    "clamp": "x[i] < a ? x[i] : a",
}

GLOBAL = """
__global__ void {name}_kernel(const float* x, float* y, float a, long n) {{
  long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = {body};
}}
"""
LOOP = """
void {name}_launch(const float* x, float* y, float a, long n) {{
  for (long i = 0; i < n; ++i) y[i] = {body};
}}
"""
TUTORIAL_CUDA = """
torch::Tensor {name}(torch::Tensor x, double a) {{
  auto y = torch::empty_like(x);
  long n = x.numel();
  const int block = {block};
  {name}_kernel<<<(n + block - 1) / block, block>>>(x.data_ptr<float>(), y.data_ptr<float>(),
                                                    float(a), n);
  return y;
}}
"""
TUTORIAL_CPU = """
torch::Tensor {name}(torch::Tensor x, double a) {{
  auto y = torch::empty_like(x);
  {name}_launch(x.data_ptr<float>(), y.data_ptr<float>(), float(a), x.numel());
  return y;
}}
"""
LAUNCH = """
void {name}_launch(const float* x, float* y, float a, long n) {{
  const int block = {block};
  {name}_kernel<<<(n + block - 1) / block, block>>>(x, y, a, n);
}}
"""
STABLE = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
using torch::stable::Tensor;
{functions}
STABLE_TORCH_LIBRARY({space}, m) {{ {defines} }}
STABLE_TORCH_LIBRARY_IMPL({space}, {key}, m) {{ {implements} }}
"""
STABLE_FUNCTION = """
void {name}_launch(const float* x, float* y, float a, long n);
Tensor {name}(const Tensor& x, double a) {{
  Tensor y = torch::stable::empty_like(x);
  {name}_launch(static_cast<const float*>(x.data_ptr()), static_cast<float*>(y.data_ptr()), float(a),
                x.numel());
  return y;
}}
"""


def sources(form: str, edited: int, *, block: int = 256, cpu: bool) -> dict[str, object]:
    """Arguments of load_inline for one form; an edit changes one kernel, and maybe the launchers."""
    bodies = dict(KERNELS)
    if edited:
        bodies["scale"] = f"a * x[i] + {edited}"
    kernel = LOOP if cpu else GLOBAL
    kernels = "".join(kernel.format(name=n, body=b) for n, b in bodies.items())
    if form == "tutorial":
        launch = TUTORIAL_CPU if cpu else TUTORIAL_CUDA
        code = kernels + "".join(launch.format(name=n, block=block) for n in bodies)
        declared = "".join(f"torch::Tensor {n}(torch::Tensor x, double a);\n" for n in bodies)
        if cpu:
            return {"cpp_sources": code, "functions": list(bodies)}
        return {"cpp_sources": declared, "cuda_sources": code, "functions": list(bodies)}
    space = f"bench_split{edited or ''}" if os.environ["BENCH_LOADER"] == "torch" else "bench_split"
    binding = STABLE.format(
        space=space,
        key="CPU" if cpu else "CUDA",
        functions="".join(STABLE_FUNCTION.format(name=n) for n in bodies),
        defines="".join(f'm.def("{n}(Tensor x, float a) -> Tensor");' for n in bodies),
        implements="".join(f'm.impl("{n}", TORCH_BOX(&{n}));' for n in bodies),
    )
    code = kernels if cpu else kernels + "".join(LAUNCH.format(name=n, block=block) for n in bodies)
    if cpu:
        return {"cpp_sources": [binding, code], "is_python_module": False}
    return {"cpp_sources": binding, "cuda_sources": code, "is_python_module": False}


def project(directory: Path, edited: int, block: int, *, cpu: bool) -> None:
    """Write what ``kernforge new`` writes, edited."""
    root = directory / "bench-toy"
    if not root.is_dir():
        argv = [sys.executable, "-m", "kernforge", "new", "bench-toy"]
        subprocess.run(argv, cwd=directory, check=True, stdout=subprocess.DEVNULL)
    source = root / ("bench_toy_cpu.cpp" if cpu else "bench_toy.cu")
    first = directory / "first.txt"
    if not first.exists():
        first.write_text(source.read_text())
    text = first.read_text()
    dispatch = "  return kernforge::dispatch"
    for old, new in (
        ("* factor;" if cpu else "* scale;", f"* {'factor' if cpu else 'scale'} + {edited};"),
        *(() if cpu else ((dispatch, f"if (count == -{block}) return cudaSuccess;\n{dispatch}"),)),
    ):
        if old not in text:
            raise SystemExit(f"{source.name} has no {old!r}")
        text = text.replace(old, new)
    if source.read_text() != text:
        source.write_text(text)


def child(form: str, *, cpu: bool, second: bool) -> None:
    """Load, edit and load again in this process; print seconds as JSON."""
    import torch  # noqa: PLC0415 - the parent of a timed process does without

    if os.environ["BENCH_LOADER"] == "torch":
        from torch.utils.cpp_extension import load_inline  # noqa: PLC0415
    else:
        from kernforge import load, load_inline  # noqa: PLC0415
    if not cpu:
        torch.zeros(1, device="cuda")
    x = torch.arange(5, dtype=torch.float32, device="cpu" if cpu else "cuda")

    def loaded_project(edited: int, block: int) -> float:
        place = Path(os.environ["BENCH_PROJECT"])
        project(place, edited, block, cpu=cpu)
        start = time.perf_counter()
        module = load(place / "bench-toy")
        seconds = time.perf_counter() - start
        if not torch.equal(module.bench_toy(x, 3.0), 3 * x + edited):
            raise SystemExit("the result is wrong")
        return seconds

    def timed(edited: int, block: int = 256) -> float:
        if form == "project":
            return loaded_project(edited, block)
        arguments = sources(form, edited, block=block, cpu=cpu)
        start = time.perf_counter()
        module = load_inline(name=f"bench_{form}", **arguments)
        seconds = time.perf_counter() - start
        if form == "split":
            torch_names_differ = edited and os.environ["BENCH_LOADER"] == "torch"
            module = getattr(
                torch.ops, f"bench_split{edited}" if torch_names_differ else "bench_split"
            )
        if not torch.equal(module.scale(x, 3.0), 3 * x + edited):
            raise SystemExit("the result is wrong")
        return seconds

    found = moments(timed, ours=os.environ["BENCH_LOADER"] == "kernforge", second=second)
    print("RESULT " + json.dumps(found))


def moments(timed: Callable[..., float], *, ours: bool, second: bool) -> dict[str, float]:
    """Seconds of each moment; ``timed`` loads a state of the sources and says how long it took."""
    if second:
        return {"second process": timed(0)}
    found = {"cold": timed(0), "edit": timed(1, 128)}
    if not ours:
        found["second edit"] = timed(2, 192)
        found["unchanged"] = timed(2, 192)
        return found
    found["second edit"] = timed(2, 192)
    for number in (3, 4, 5):
        moment = "device-only edit" if number == 3 else "later device-only edit"  # noqa: PLR2004
        found[moment] = timed(number, 192)
    found["unchanged"] = timed(5, 192)
    return found


def measure(loader: str, form: str, *, cpu: bool, cache: str) -> dict[str, object]:
    """Run one loader in fresh processes."""
    env = dict(os.environ, BENCH_LOADER=loader, KERNFORGE_HOME=f"{cache}/kernforge")
    env["TORCH_EXTENSIONS_DIR"] = f"{cache}/torch"
    env["BENCH_PROJECT"] = cache
    found = {}
    # In a second process torch's loader compiles again (17 s of 19, split): that is not waited for.
    for second in (False, True) if loader == "kernforge" else (False,):
        argv = [sys.executable, __file__, "--child", form, *(["--cpu"] if cpu else [])]
        argv += ["--second"] if second else []
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        if not lines:
            return {"error": (done.stdout + done.stderr)[-3000:]}
        found |= json.loads(lines[-1].removeprefix("RESULT "))
    return found


def table(where: str, results: dict[str, dict[str, object]]) -> dict[str, object]:
    """What the page of results shows."""
    moments = (
        *("cold", "edit", "second edit", "device-only edit", "later device-only edit"),
        *("unchanged", "second process"),
    )
    return {
        "title": f"Seconds until four small kernels can be called, on {where}",
        "head": ["form, loader", *moments],
        "rows": [
            [name, *(f"{found[m]:.2g}" if m in found else "" for m in moments)]
            for name, found in results.items()
        ],
        "note": "New processes with an empty cache, in one run. An edit changes a kernel and its "
        "launcher. A device-only edit changes the body of a kernel; torch's loader treats it like "
        "any edit. split: device code and binding in separate files. tutorial: one source that "
        "includes torch's headers. project: a kernel project. By `benchmarks/bench_jit.py`.",
    }


def main() -> None:
    """Time both loaders and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--forms", default="split,tutorial,project")
    parser.add_argument("--loaders", default="kernforge,torch")
    parser.add_argument("--child")
    parser.add_argument("--second", action="store_true")
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, cpu=arguments.cpu, second=arguments.second)
        return

    machine = describe("torch")
    where = f"{machine['cores']} cores"
    if not arguments.cpu:
        import torch  # noqa: PLC0415 - the parent of a timed process does without

        machine["gpu"] = torch.cuda.get_device_name()
        where += f" and an {torch.cuda.get_device_name().removeprefix('NVIDIA ')}"
    results: dict[str, dict[str, object]] = {}
    for form in arguments.forms.split(","):  # so that a run which is ended has whole pairs
        for loader in arguments.loaders.split(","):
            if loader == "torch" and form == "project":
                continue
            with tempfile.TemporaryDirectory() as cache:
                found = measure(loader, form, cpu=arguments.cpu, cache=cache)
            results[f"{form}, {loader}"] = found
            print(form, loader, json.dumps(found), flush=True)
            document = {"machine": machine, "unit": "s", "results": results}
            document["table"] = table(where, results)
            if arguments.out:
                arguments.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
