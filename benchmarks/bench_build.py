# SPDX-License-Identifier: Apache-2.0
"""CPU seconds to build img2gray for every torch that it serves, beside torch.utils.cpp_extension.

    python benchmarks/bench_build.py

Both build the same sources with the same host compiler in the same run, from a copy of the
project: first everything, then again without a change, then after a one-line edit of a device (or
CPU) source, then after one of the binding. kernforge builds once for all torches, because the
binding is on the stable ABI; cpp_extension builds for the torch that is installed, so it is
measured once and multiplied by the number of torches. CUDA is built, too, where torch has CUDA
and nvcc is there; elsewhere only the CPU half is, and the result says so.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from machine import describe

from kernforge import matrix
from kernforge.home import home
from kernforge.run import Command, run

ROOT = Path(__file__).parents[1]
KERNEL = ROOT / "kernels" / "img2gray"
INCLUDE = ROOT / "src" / "kernforge" / "include"
RESULT = ROOT / "benchmarks" / "results" / "build.json"
STABLE = (2, 10)
PEER = """
import sys
from torch.utils.cpp_extension import load
load(
    name={name!r}, sources={sources!r}, build_directory={out!r}, is_python_module=False,
    extra_include_paths={include!r}, extra_cflags={flags!r}, extra_cuda_cflags={cuda_flags!r},
    with_cuda={cuda!r},
)
"""
# The same optimisation and definitions as kernforge gives.
FLAGS = ["-O3", "-DNDEBUG", "-DTORCH_TARGET_VERSION=0x020a000000000000"]


@dataclass(frozen=True)
class Half:
    """One backend of the project: what an edit touches."""

    backend: str
    source: str
    archs: tuple[str, ...] = ()


def kernforge_build(project: Path, store: Path, half: Half, options: list[str]) -> float:
    """CPU seconds of one ``kernforge build``."""
    backend = "cpu" if half.backend == "cpu" else "cu130"
    argv = [sys.executable, "-m", "kernforge", "build", str(project), "--no-check", *options]
    argv += ["--variant", f"torch-stable-abi*-{backend}-*"]
    argv += [part for arch in half.archs for part in ("--arch", arch)]
    return _measured(argv, {"KERNFORGE_HOME": str(store)})


def peer_build(project: Path, out: Path, half: Half) -> float:
    """CPU seconds of one ``torch.utils.cpp_extension.load``."""
    out.mkdir(exist_ok=True)
    cuda = half.backend == "cuda"
    define = ["-DUSE_CUDA=1", "-DCUDA_KERNEL"] if cuda else ["-DCPU_KERNEL"]
    script = PEER.format(
        name=f"img2gray_{half.backend}",
        sources=[str(project / "torch-ext/torch_binding.cpp"), str(project / half.source)],
        out=str(out),
        include=[str(INCLUDE)],
        flags=[*FLAGS, *define],
        cuda_flags=[*FLAGS, *define],
        cuda=cuda,
    )
    # Newer torch uses ccache when it finds it; a cold build must be cold.
    env = {
        "CCACHE_DISABLE": "1",
        "SCCACHE_RECACHE": "1",
        "TORCH_CUDA_ARCH_LIST": ";".join(half.archs),
    }
    return _measured([sys.executable, "-c", script], env)


def _measured(argv: list[str], env: dict[str, str]) -> float:
    done = run(Command(argv=tuple(argv), env={**os.environ, **env}))
    if done.returncode:
        sys.exit(f"{argv}\n{done.stdout}{done.stderr}")
    return done.cpu_s


def measure(half: Half, options: list[str]) -> list[dict[str, object]]:
    """The four cases of one backend."""
    with tempfile.TemporaryDirectory() as directory:
        project = Path(directory) / "project"
        shutil.copytree(KERNEL, project, ignore=shutil.ignore_patterns("build"))
        store = Path(directory) / "home"
        (store / "store").mkdir(parents=True)
        # Toolchains are fetched once and are no part of a build; results start from nothing.
        shelf = home() / "store" / "toolchains"
        shelf.mkdir(parents=True, exist_ok=True)
        (store / "store" / "toolchains").symlink_to(shelf)
        cases = []
        for case, edited in (
            ("cold", None),
            ("no change", None),
            (f"edit of {half.source}", half.source),
            ("edit of the binding", "torch-ext/torch_binding.cpp"),
        ):
            if edited:
                with (project / edited).open("a") as stream:
                    stream.write("// one line more\n")
            ours = kernforge_build(project, store, half, options)
            peer = peer_build(project, Path(directory) / "peer", half)
            cases.append(
                {"backend": half.backend, "case": case, "kernforge_cpu_s": ours, "peer_cpu_s": peer}
            )
            print(half.backend, case, f"{ours:.2f}", f"{peer:.2f}", flush=True)
        return cases


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=RESULT)
    parser.add_argument("options", nargs="*", help="more for kernforge build, after --")
    arguments = parser.parse_args()
    halves = [Half(backend="cpu", source="img2gray_cpu.cpp")]
    if torch.version.cuda and shutil.which("nvcc"):
        archs = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0")
        halves.append(Half(backend="cuda", source="img2gray.cu", archs=archs))
    # What a fetch of the toolchain would cost is not what is measured here.
    warm = [sys.executable, "-m", "kernforge", "build", str(KERNEL), *arguments.options]
    _measured([*warm, "--no-check", "--out", tempfile.mkdtemp()], {})
    cases = [case for half in halves for case in measure(half, arguments.options)]
    served = [series for series in matrix.torch_releases() if series >= STABLE]
    rows = [
        [
            f"{case['backend']}, {case['case']}",
            f"{case['kernforge_cpu_s']:.1f}",
            f"{case['peer_cpu_s']:.1f} x {len(served)}",
            f"{len(served) * case['peer_cpu_s'] / case['kernforge_cpu_s']:.1f}x",
        ]
        for case in cases
    ]
    document = {
        "machine": describe("kernforge", "torch"),
        "torches": [f"{v[0]}.{v[1]}" for v in served],
        "cases": cases,
        "table": {
            "title": f"img2gray for {len(served)} torch releases, CPU seconds",
            "head": ["", "kernforge", "cpp_extension", "ratio"],
            "rows": rows,
            "note": f"cpp_extension was measured with torch {torch.__version__} and counted once for "
            f"each of torch {served[0][0]}.{served[0][1]} to {served[-1][0]}.{served[-1][1]}.",
        },
    }
    arguments.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
