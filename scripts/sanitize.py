# SPDX-License-Identifier: Apache-2.0
"""Run the kernels under compute-sanitizer: memcheck, racecheck, initcheck and synccheck.

    python scripts/sanitize.py --at-once 8
    python scripts/sanitize.py kernels/moe --tool racecheck

Each kernel's ``tests/sanitize.py`` names calls that reach all of its paths; a process for each kernel
and tool makes them, on the artifact in ``kernels/KERNEL/build``. Values are not compared: the tests do
that. Every tensor is an allocation of its own there, so that one byte too many is found. What torch's own
kernels do is not looked at, but for initcheck, which must see what they write.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_OF_TORCH = ("2at6native", "at4cuda", "gemm", "cutlass", "nvjet", "splitK")
"""Parts of mangled names of kernels that are not ours."""
_TOO_LONG = 124  # as timeout(1) says it
_SHOWN, _SHOWN_LINES = 500, 20


def made_here(project: Path) -> None:
    """Make a project's calls in this process; print each of them, and how many there were."""
    import torch  # noqa: PLC0415

    import kernforge  # noqa: PLC0415

    kernel = kernforge.get_local_kernel(project / "build", backend="cuda")
    cases, calls = (
        _module(project / name) if (project / name).exists() else None
        for name in ("cases.py", "tests/sanitize.py")
    )
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = (
        True  # the tensor cores' path; the plain one has float32 tails
    )
    count, began = 0, time.monotonic()
    for name in calls.calls(kernel, cases):
        torch.cuda.synchronize()
        print(f"{time.monotonic() - began:6.1f} s  {name}", flush=True)
        count += 1
    print(json.dumps({"calls": count}))


def _module(path: Path) -> Any:
    name = f"{path.parent.name}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checked(project: Path, tool: str, program: str, limit: float) -> dict[str, object]:
    """What one tool says of one kernel."""
    from kernforge.testing.gpu import findings  # noqa: PLC0415

    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory, "log")
        argv = [program, "--tool", tool, "--log-file", str(log), "--show-backtrace", "device"]
        argv += ["--demangle", "simple", "--print-limit", "20"]
        if tool != "initcheck":
            for part in _OF_TORCH:
                argv += ["--kernel-name-exclude", f"kernel_substring={part}"]
        argv += [sys.executable, str(Path(__file__)), "--calls", str(project)]
        environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        try:
            done = subprocess.run(
                argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
                timeout=limit,
            )  # fmt: skip
            status, said = done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired as error:
            status = _TOO_LONG
            said = (error.stdout or b"").decode() + f"\nended after {limit:.0f} s"
        found = log.read_text() if log.exists() else ""
        text = findings(found, status, said)
        if status == _TOO_LONG:  # without a summary
            text = "\n".join([said.strip()[-_SHOWN:], *found.splitlines()[:_SHOWN_LINES]])
    last = said.strip().rpartition("\n")[2]
    return {
        "kernel": project.name,
        "tool": tool,
        "calls": json.loads(last)["calls"] if last.startswith('{"calls"') else None,
        "seconds": round(time.monotonic() - began, 1),
        "finds": text,
    }


def _cell(result: dict[str, Any] | None) -> str:
    if result is None:
        return ""
    if result["calls"] is None:
        return "not ended"
    return "findings" if result["finds"] else "nothing"


def table(results: list[dict[str, Any]], head: dict[str, Any]) -> dict[str, object]:
    """A row for each kernel: the calls, and what each tool found."""
    tools = [tool for tool in TOOLS if any(r["tool"] == tool for r in results)]
    rows = []
    for name in sorted({r["kernel"] for r in results}):
        own = {r["tool"]: r for r in results if r["kernel"] == name}
        calls = max((r["calls"] or 0 for r in own.values()), default=0)
        said = [_cell(own.get(tool)) for tool in tools]
        rows.append([name, f"{calls:,}", *said])
    return {
        "title": f"compute-sanitizer, on an {head['gpu']}",
        "head": ["kernel", "calls", *(f"{tool} finds" for tool in tools)],
        "rows": rows,
        "note": "`scripts/sanitize.py`: the calls of each kernel's `tests/sanitize.py`, a process for "
        "each tool. The file has what was found, and the last call of what did not end in time.",
    }


def main() -> None:
    """Check everything that is built."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "kernels", nargs="*", type=Path, help="projects (default: all that are built)"
    )
    parser.add_argument(
        "--tool", action="append", choices=TOOLS, help="may be repeated (default: all)"
    )
    parser.add_argument("--at-once", type=int, default=4, metavar="N", help="processes at once")
    parser.add_argument("--limit", type=float, default=300.0, metavar="S", help="of each process")
    parser.add_argument(
        "--json", type=Path, default=ROOT / "benchmarks/results/sanitizer-h200.json"
    )
    parser.add_argument("--calls", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.calls:
        made_here(options.calls)
        return
    import torch  # noqa: PLC0415

    from kernforge.system.environment import Environment  # noqa: PLC0415

    if not torch.cuda.is_available():
        sys.exit("there is no NVIDIA GPU here")
    program = Environment.read().kernforge_sanitizer or "compute-sanitizer"
    chosen = [p.resolve() for p in options.kernels]
    chosen = chosen or [p.parents[1] for p in sorted(ROOT.glob("kernels/*/tests/sanitize.py"))]
    built = [p for p in chosen if list(p.glob("build/*-cu*"))]
    if not built:
        sys.exit("no kernel has a CUDA variant: build with `kernforge build kernels/KERNEL`")
    version = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=True
    ).stdout
    head = {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "sanitizer": version.strip().rpartition("\n")[2],
        "not_built": [p.name for p in chosen if p not in built],
    }
    results: list[dict[str, Any]] = []
    with ThreadPoolExecutor(options.at_once) as pool:
        asked = [
            pool.submit(checked, project, tool, program, options.limit)
            for tool in options.tool or TOOLS
            for project in built
        ]
        for one in asked:
            result = one.result()
            results.append(result)
            print({k: v for k, v in result.items() if k != "finds"}, result["finds"], flush=True)
            document = {**head, "results": results, "table": table(results, head)}
            options.json.write_text(json.dumps(document, indent=1) + "\n")
    sys.exit(any(result["finds"] for result in results))


if __name__ == "__main__":
    main()
