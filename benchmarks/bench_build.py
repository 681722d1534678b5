# SPDX-License-Identifier: Apache-2.0
"""CPU seconds of a kernel for every published torch and CUDA, beside cpp_extension.

    python benchmarks/bench_build.py --cuda-home /usr/local/cuda-13.0

Of img2gray, one build of kernforge makes the variants that serve them all: the CPU's, CUDA 12's and
CUDA 13's. With ``--aten`` it is the tutorial's img2gray, with ``<torch/torch.h>`` in its ``.cu``:
it needs a variant for each torch. Which torch and CUDA a variant serves is asked of the resolver
that loads kernels. Beside it, in the same run, torch.utils.cpp_extension builds the same sources
for the same GPUs, with the installed torch, which must have CUDA, and the toolkit that is named:
once for the CPU and once for CUDA, each counted for every torch and CUDA of its kind. No GPU is
needed.

Writes benchmarks/results/build.json, or build-aten.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from results import RESULTS, describe, write

from kernforge.artifact.variant import Backend
from kernforge.loader.host import Host
from kernforge.loader.resolve import resolve
from kernforge.project import targets
from kernforge.system.environment import Environment
from kernforge.system.process import Command, Completed, run

ROOT = Path(__file__).parents[1]
INCLUDE = ROOT / "src" / "kernforge" / "include"
BINDING = "torch-ext/torch_binding.cpp"
PEER = """
import sys
from torch.utils.cpp_extension import load
load(
    name="img2gray", sources={sources!r}, build_directory={out!r}, is_python_module=False,
    extra_include_paths={include!r}, extra_cflags={flags!r}, extra_cuda_cflags={flags!r},
    with_cuda={cuda!r},
)
"""
# The same optimisation as kernforge gives.
FLAGS = ["-O3", "-DNDEBUG"]


@dataclass(frozen=True)
class Kernel:
    """What is built; ``flags`` are the definitions that kernforge gives too."""

    title: str
    folder: Path
    device: str
    host: str
    variants: tuple[str, ...]
    oldest: tuple[int, int]
    archs: tuple[str, ...]
    flags: tuple[str, ...] = ()


IMG2GRAY = Kernel(
    title="img2gray for all torch and CUDA versions, CPU seconds",
    folder=ROOT / "kernels" / "img2gray",
    device="img2gray.cu",
    host="img2gray_cpu.cpp",
    variants=tuple(f"torch-stable-abi*-{name}-*" for name in ("cpu", "cu126", "cu130")),
    oldest=(2, 10),
    archs=("7.5", "8.0", "8.6", "8.9", "9.0"),  # CUDA 12.6 and 13.0 both compile for these
    flags=("-DTORCH_TARGET_VERSION=0x020a000000000000",),
)
WITH_ATEN = Kernel(
    title="A tutorial's img2gray with ATen, for each torch with CUDA 13.0, CPU seconds",
    folder=ROOT / "tests" / "tutorials" / "img2gray",
    device="csrc/img2gray.cu",
    host="",
    variants=("*-cu130-*",),
    oldest=(2, 9),
    archs=("9.0",),
    # Python's headers are the binding's alone, as kernforge has it.
    flags=("-UTORCH_API_INCLUDE_EXTENSION_H",),
)


@dataclass(frozen=True)
class Place:
    """Where both build: a copy of the kernel, a home without results, a directory of the peer's."""

    kernel: Kernel
    project: Path
    home: Path
    peer: Path
    cuda_home: Path


def command(argv: list[str], env: dict[str, str]) -> Completed:
    """Run a program; it must end well."""
    done = run(Command(argv=tuple(argv), env={**os.environ, **env}))
    if done.returncode:
        sys.exit(f"{argv}\n{done.stdout}{done.stderr}")
    return done


def ours(place: Place) -> tuple[float, dict[str, str]]:
    """CPU seconds of one build of all variants, and their directories."""
    argv = [sys.executable, "-m", "kernforge", "build", str(place.project), "--no-check", "--json"]
    argv += [part for name in place.kernel.variants for part in ("--variant", name)]
    argv += [part for arch in place.kernel.archs for part in ("--arch", arch)]
    done = command(argv, {"KERNFORGE_HOME": str(place.home)})
    return done.cpu_s, json.loads(done.stdout)["variants"]


def theirs(place: Place, archs: tuple[str, ...]) -> float:
    """CPU seconds of one ``torch.utils.cpp_extension.load``."""
    kernel, out = place.kernel, place.peer / ("cuda" if archs else "cpu")
    device = kernel.device
    out.mkdir(exist_ok=True, parents=True)
    define = ["-DUSE_CUDA=1", "-DCUDA_KERNEL"] if archs else ["-DCPU_KERNEL"]
    script = PEER.format(
        sources=[str(place.project / name) for name in (BINDING, device if archs else kernel.host)],
        out=str(out),
        include=[str(INCLUDE / name) for name in ("torch-ext", "csrc")],
        flags=[*FLAGS, *kernel.flags, *define],
        cuda=bool(archs),
    )
    # Newer torch uses ccache when it finds it; a cold build must be cold.
    env = {"CCACHE_DISABLE": "1", "SCCACHE_RECACHE": "1", "TORCH_CUDA_ARCH_LIST": ";".join(archs)}
    env |= {"CUDA_HOME": str(place.cuda_home)}
    return command([sys.executable, "-c", script], env).cpu_s


def served(kernel: Kernel, variants: dict[str, str]) -> dict[str, int]:
    """How many published pairs of torch and CUDA the resolver serves with each variant."""
    one = Host(cpu="x86_64", os="linux", backend=Backend("cpu"), cxx11=True)
    hosts = []
    for series, published in targets.torch_releases().items():
        if series >= kernel.oldest:
            backends = [Backend("cpu"), *(Backend("cuda", version) for version in published)]
            hosts += [replace(one, torch=series, backend=backend) for backend in backends]
    best = [resolve(variants, host).best for host in hosts]
    return {name: sum(d is not None and d.name == name for d in best) for name in variants}


def measure(place: Place) -> list[tuple[str, float, list[tuple[int, float]]]]:
    """Cold, unchanged, and after an edit of the device code and of the binding."""
    ours(place)  # toolchains are fetched once and are no part of a build
    device = place.kernel.device
    shutil.rmtree(place.home / "store" / "actions")
    cases = []
    for case, edited in (
        ("cold", None),
        ("no change", None),
        (f"edit of {device}", device),
        ("edit of the binding", BINDING),
    ):
        if edited:
            with (place.project / edited).open("a") as stream:
                stream.write("// one line more\n")
        seconds, variants = ours(place)
        counts: dict[tuple[str, ...], int] = {}
        for name, count in served(place.kernel, variants).items():
            metadata = json.loads((Path(variants[name]) / "metadata.json").read_text())
            archs = tuple(metadata["backend"].get("archs") or ())
            counts[archs] = counts.get(archs, 0) + count
        peers = [(count, theirs(place, archs)) for archs, count in counts.items()]
        cases.append((case, seconds, peers))
        print(cases[-1], flush=True)
    return cases


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cuda-home", type=Path, required=True, help="the peer's toolkit: 13.0")
    parser.add_argument("--aten", action="store_true", help="the tutorial's, bound with ATen")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if torch.version.cuda is None:
        parser.error("it needs a torch with CUDA")
    load = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as directory:
        project, home = Path(directory, "project"), Path(directory, "home")
        kernel = WITH_ATEN if arguments.aten else IMG2GRAY
        shutil.copytree(kernel.folder, project, ignore=shutil.ignore_patterns("build"))
        (home / "store").mkdir(parents=True)
        shelf = Environment.read().home / "store" / "toolchains"
        shelf.mkdir(parents=True, exist_ok=True)
        (home / "store" / "toolchains").symlink_to(shelf.absolute())
        cases = measure(Place(kernel, project, home, Path(directory, "peer"), arguments.cuda_home))
    rows = []
    for case, seconds, peers in cases:
        total = sum(count * each for count, each in peers)
        terms = " + ".join(f"{count} x {each:.1f}" for count, each in peers)
        rows.append([case, f"{seconds:.1f}", f"{terms} = {total:.0f}", f"{total / seconds:.1f}x"])
    pairs = sum(count for count, _ in cases[0][2])
    write(
        arguments.json or RESULTS / ("build-aten.json" if arguments.aten else "build.json"),
        {**describe("kernforge", "torch"), "load": round(load, 1)},
        title=kernel.title,
        head=["", "kernforge", "cpp_extension", "ratio"],
        rows=rows,
        note=f"One build serves {pairs} pairs of torch and CPU or CUDA. Peer: pairs x "
        f"CPU seconds of one build, with torch {torch.__version__}. By "
        "`benchmarks/bench_build.py`.",
    )


if __name__ == "__main__":
    main()
