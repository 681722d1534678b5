# SPDX-License-Identifier: Apache-2.0
"""CPU seconds to build img2gray for every torch that it serves, beside torch.utils.cpp_extension.

    python benchmarks/bench_build.py
    python benchmarks/bench_build.py --cuda-home /usr/local/cuda --store home --lock home/kernforge.lock

Both build the same sources with the same compilers in the same run, from a copy of the project:
first everything, then again without a change, then after a one-line edit of a device (or CPU)
source, then after one of the binding. Two bindings are built: the kernel's own on the stable ABI,
of which kernforge makes one build for all torches, and one on ATen, of which it makes one for each
torch. cpp_extension builds for the torch that is installed, so it is measured once and multiplied
by the number of torches. CUDA is built where torch has CUDA and a toolkit is there; elsewhere only
the CPU half is, and the result says so. The second form needs no network: see carry.py.
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

from kernforge.project import targets
from kernforge.system.environment import Environment
from kernforge.system.process import Command, run

ROOT = Path(__file__).parents[1]
KERNEL = ROOT / "kernels" / "img2gray"
INCLUDE = ROOT / "src" / "kernforge" / "include"
RESULT = ROOT / "benchmarks" / "results" / "build.json"
BINDING = "torch-ext/torch_binding.cpp"
STABLE = (2, 10)
ARCHS = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0")
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
FLAGS = ["-O3", "-DNDEBUG"]
STABLE_FLAG = "-DTORCH_TARGET_VERSION=0x020a000000000000"


@dataclass(frozen=True)
class Half:
    """One backend of one binding: what an edit touches, and what is built.

    Attributes:
        backend: ``"cpu"`` or ``"cuda"``.
        source: what the first edit touches.
        stable: whether the binding is the one on the stable ABI.
        archs: architectures of device code.
    """

    backend: str
    source: str
    stable: bool
    archs: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What a person calls it."""
        return f"{self.backend}, {'stable ABI' if self.stable else 'ATen'}"

    @property
    def pattern(self) -> str:
        """The variants that kernforge builds."""
        kind = "torch-stable-abi*" if self.stable else "torch2*-cxx11"
        return f"{kind}-{'cpu' if self.backend == 'cpu' else 'cu130'}-*"


@dataclass(frozen=True)
class Place:
    """Where both build, and with what.

    Attributes:
        project: a copy of the kernel.
        store: a home with toolchains and without results.
        peer: directory of the other's builds.
        options: more for kernforge build.
        env: more for both.
    """

    project: Path
    store: Path
    peer: Path
    options: tuple[str, ...]
    env: dict[str, str]


def kernforge_build(place: Place, half: Half) -> dict[str, object]:
    """One ``kernforge build``: CPU and wall seconds, compiler runs and variants."""
    argv = [sys.executable, "-m", "kernforge", "build", str(place.project), "--no-check", "--json"]
    argv += ["--variant", half.pattern, *place.options]
    argv += [part for arch in half.archs for part in ("--arch", arch)]
    done = _run(argv, {**place.env, "KERNFORGE_HOME": str(place.store)})
    document = json.loads(done.stdout)
    ran = [one["title"] for one in document["actions"]["spent"]]
    return {
        "kernforge_cpu_s": done.cpu_s,
        "kernforge_wall_s": done.wall_s,
        "compiled": sorted(title for title in ran if ".c" in title.split(",")[0].split()[0]),
        "torches": _torches(half, list(document["variants"])),
    }


def _torches(half: Half, variants: list[str]) -> int:
    """How many torch releases the variants serve with this backend."""
    if not half.stable:
        return len(variants)
    releases = targets.torch_releases().items()
    wanted = (13, 0)
    return sum(
        series >= STABLE and (half.backend == "cpu" or wanted in cuda) for series, cuda in releases
    )


def peer_build(place: Place, half: Half) -> dict[str, object]:
    """One ``torch.utils.cpp_extension.load``: CPU and wall seconds."""
    out = place.peer / f"{half.backend}-{half.stable}"
    out.mkdir(exist_ok=True, parents=True)
    cuda = half.backend == "cuda"
    define = ["-DUSE_CUDA=1", "-DCUDA_KERNEL"] if cuda else ["-DCPU_KERNEL"]
    define += [STABLE_FLAG] if half.stable else []
    script = PEER.format(
        name=f"img2gray_{half.backend}",
        sources=[str(place.project / BINDING), str(place.project / half.source)],
        out=str(out),
        include=[str(INCLUDE / name) for name in ("torch-ext", "csrc")],
        flags=[*FLAGS, *define],
        cuda_flags=[*FLAGS, *define],
        cuda=cuda,
    )
    # Newer torch uses ccache when it finds it; a cold build must be cold.
    env = {
        **place.env,
        "CCACHE_DISABLE": "1",
        "SCCACHE_RECACHE": "1",
        "TORCH_CUDA_ARCH_LIST": ";".join(half.archs),
    }
    done = _run([sys.executable, "-c", script], env)
    return {"peer_cpu_s": done.cpu_s, "peer_wall_s": done.wall_s}


def _run(argv: list[str], env: dict[str, str]):  # noqa: ANN202 - run.Completed
    done = run(Command(argv=tuple(argv), env={**os.environ, **env}))
    if done.returncode:
        sys.exit(f"{argv}\n{done.stdout}{done.stderr}")
    return done


def prepare(directory: Path, half: Half, arguments: argparse.Namespace) -> Place:
    """A copy of the kernel with the half's binding, and a home without results."""
    project = directory / "project"
    shutil.copytree(KERNEL, project, ignore=shutil.ignore_patterns("build"))
    if not half.stable:
        shutil.copy(Path(__file__).parent / "full_abi_binding.cpp", project / BINDING)
        manifest = project / "build.toml"
        manifest.write_text(manifest.read_text().replace('stable-abi = "2.10"\n', ""))
    if arguments.lock:
        shutil.copy(arguments.lock, project / "kernforge.lock")
    store = directory / "home"
    (store / "store").mkdir(parents=True)
    # Toolchains are fetched once and are no part of a build; results start from nothing.
    shelf = (arguments.store or Environment.read().home) / "store" / "toolchains"
    shelf.mkdir(parents=True, exist_ok=True)
    (store / "store" / "toolchains").symlink_to(shelf.absolute())
    options, env = tuple(arguments.options), {}
    if arguments.cuda_home:
        options += ("--cuda-home", str(arguments.cuda_home))
        env = {"CUDA_HOME": str(arguments.cuda_home)}
    return Place(project=project, store=store, peer=directory / "peer", options=options, env=env)


def measure(half: Half, arguments: argparse.Namespace) -> list[dict[str, object]]:
    """The four cases of one half."""
    with tempfile.TemporaryDirectory() as directory:
        place = prepare(Path(directory), half, arguments)
        # What a fetch of the toolchain, or the first look at it, would cost is not measured here.
        kernforge_build(place, half)
        shutil.rmtree(place.store / "store" / "actions")
        cases = []
        for case, edited in (
            ("cold", None),
            ("no change", None),
            (f"edit of {half.source}", half.source),
            ("edit of the binding", BINDING),
        ):
            if edited:
                with (place.project / edited).open("a") as stream:
                    stream.write("// one line more\n")
            found = {"half": half.title, "case": case, **kernforge_build(place, half)}
            cases.append({**found, **peer_build(place, half)})
            print(json.dumps(cases[-1]), flush=True)
        return cases


def halves(cuda: bool) -> list[Half]:  # noqa: FBT001
    """What is built here."""
    found = [Half(backend="cpu", source="img2gray_cpu.cpp", stable=s) for s in (True, False)]
    if cuda:
        found += [
            Half(backend="cuda", source="img2gray.cu", stable=s, archs=ARCHS) for s in (True, False)
        ]
    return found


def table(cases: list[dict], *, cuda: bool) -> dict[str, object]:
    """The cases as the page of results shows them."""
    rows = [
        [
            f"{one['half']}, {one['case']}",
            f"{one['kernforge_cpu_s']:.1f} ({one['kernforge_wall_s']:.1f})",
            f"{one['peer_cpu_s']:.1f} x {one['torches']}",
            f"{one['torches'] * one['peer_cpu_s'] / one['kernforge_cpu_s']:.1f}x",
        ]
        for one in cases
    ]
    note = "Peer: CPU seconds of one build x torch versions that the variants serve. It was "
    note += f"measured with torch {torch.__version__}."
    note += "" if cuda else " CUDA was not built: this torch has none, or there is no toolkit."
    return {
        "title": "img2gray for all torch versions, CPU seconds",
        "head": ["", "kernforge (wall s)", "cpp_extension", "ratio"],
        "rows": rows,
        "note": note,
    }


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=RESULT)
    parser.add_argument("--store", type=Path, help="a home whose toolchains are used")
    parser.add_argument("--lock", type=Path, help="a kernforge.lock for the project")
    parser.add_argument("--cuda-home", type=Path, help="the toolkit of both, which must be 13.0")
    parser.add_argument("options", nargs="*", help="more for kernforge build, after --")
    arguments = parser.parse_args()
    cuda = bool(torch.version.cuda and (arguments.cuda_home or shutil.which("nvcc")))
    cases = [case for half in halves(cuda) for case in measure(half, arguments)]
    document = {
        "machine": describe("kernforge", "torch"),
        "archs": list(ARCHS) if cuda else [],
        "cases": cases,
        "table": table(cases, cuda=cuda),
    }
    arguments.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
