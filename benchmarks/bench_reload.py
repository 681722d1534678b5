# SPDX-License-Identifier: Apache-2.0
"""What a thousand edits in one process hold on to: memory of the host and the GPU, files, threads.

Each edit changes a kernel's body of ``bench_jit``'s split form, so that each call compiles (by NVRTC),
links and loads another module; old ones stay valid, so their code stays. What nvcc compares in the
background is left out, as it would take ten minutes.

    python benchmarks/bench_reload.py OUT.json [--count 1000]
"""

import argparse
import gc
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import bench_jit
from machine import describe

PARTS = 5


def held(torch: object) -> dict[str, float]:
    """What the process holds now; memory in KiB."""
    gc.collect()
    torch.cuda.synchronize()
    found = {"modules": 0.0, "resident": 0.0, "anonymous": 0.0}
    path = ""
    for line in Path("/proc/self/smaps").read_text(errors="replace").splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            path = words[-1]
        elif words[0] == "Rss:":
            found["resident"] += int(words[1])
            found["modules"] += int(words[1]) if path.endswith("/bench_split.so") else 0
        elif words[0] == "Anonymous:":
            found["anonymous"] += int(words[1])
    found["GPU"] = -torch.cuda.mem_get_info()[0] / 1024
    found["files"] = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    found["threads"] = len(os.listdir("/proc/self/task"))  # noqa: PTH208
    return found


def measure(count: int) -> list[dict[str, float]]:
    """Growth per edit in each of some equal parts of the run."""
    import torch  # noqa: PLC0415 - after KERNFORGE_HOME is set

    from kernforge import load_inline  # noqa: PLC0415
    from kernforge.jit.device import swap  # noqa: PLC0415
    from kernforge.jit.session import PROCESS  # noqa: PLC0415

    x = torch.ones(100, device="cuda")

    def edit(number: int) -> None:
        arguments = bench_jit.sources("split", number, cpu=False)
        load_inline(name="bench_split", **arguments)
        if torch.ops.bench_split.scale(x, 2.0)[0].item() != 2 + number:
            raise SystemExit("the result is wrong")

    for number in (0, 1):  # NVRTC is used once it was seen to agree
        edit(number)
        PROCESS.wait()
    swap._verify = lambda *_: None  # noqa: SLF001 - see above
    parts, before, each = [], held(torch), count // PARTS
    for part in range(PARTS):
        start = time.perf_counter()
        for number in range(each):
            edit(2 + part * each + number)
        seconds = time.perf_counter() - start
        now = held(torch)
        grown = {name: (now[name] - before[name]) / each for name in now}
        parts.append({"edits": (part + 1) * each, "seconds": seconds / each, **grown})
        print(json.dumps(parts[-1]), flush=True)
        before = now
    return parts


def main() -> None:
    """Measure and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--count", type=int, default=1000)
    arguments = parser.parse_args()
    os.environ["BENCH_LOADER"] = "kernforge"
    with tempfile.TemporaryDirectory() as home:
        os.environ["KERNFORGE_HOME"] = home
        parts = measure(arguments.count)
        sizes = [p.stat().st_size for p in Path(home).rglob("bench_split.so")]
    names = ("seconds", "modules", "resident", "anonymous", "GPU", "files", "threads")
    document = {
        "machine": describe("torch"),
        "unit": "KiB per edit, but for seconds, files and threads per edit",
        "module_bytes": sum(sizes) / len(sizes),
        "results": parts,
        "table": {
            "title": f"{arguments.count} edits in one process, growth per edit",
            "head": [
                *("edits", "s", "modules' pages, KiB", "resident, KiB", "anonymous, KiB"),
                *("GPU, KiB", "open files", "threads"),
            ],
            "rows": [[str(p["edits"]), *(f"{p[n]:.3g}" for n in names)] for p in parts],
            "note": f"A module is a file of {sum(sizes) / len(sizes) / 1024:.0f} KiB; its pages are "
            "part of the resident memory. By `benchmarks/bench_reload.py`.",
        },
    }
    if arguments.out:
        arguments.out.write_text(json.dumps(document, indent=1) + "\n")
    sys.stdout.flush()
    os._exit(0)  # a thousand modules' destructors say nothing


if __name__ == "__main__":
    main()
