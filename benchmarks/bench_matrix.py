# SPDX-License-Identifier: Apache-2.0
"""CPU seconds of img2gray for every torch and CUDA that PyTorch is published for.

    python benchmarks/bench_matrix.py --cuda-home /usr/local/cuda-13.0

One build of kernforge makes the variants that serve them all: the CPU's, CUDA 12's and
CUDA 13's by nvcc. Which torch and CUDA a variant serves is asked of the resolver that loads
kernels. Beside it, in the same run, torch.utils.cpp_extension builds the same sources for the same
GPUs: once for the CPU and once for each CUDA major version, with the torch that is installed and
the toolkit that is named, and each is counted once for every torch and CUDA of its kind: an nvcc 13
stands in for those of CUDA 12. The torch must be one with
CUDA; no GPU is needed.

Neither side can be faster than its compilers, so the result also says what kernforge would need if
nothing but the compilations of the kernel's own sources took time.
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
from bench_build import BINDING, ROOT, STABLE, Half, Place, peer_build, prepare
from machine import describe

from kernforge.artifact.variant import Backend
from kernforge.loader.host import Host
from kernforge.loader.resolve import resolve
from kernforge.project import targets
from kernforge.system.process import Command, run

RESULT = ROOT / "benchmarks" / "results" / "matrix.json"
DEVICE = "img2gray.cu"
GPUS = ("7.5", "8.0", "8.6", "8.9", "9.0")
"""Those that CUDA 12.6 and 13.0 both compile for."""
VARIANTS = ("cpu", "cu126", "cu130")


@dataclass(frozen=True)
class Kind:
    """What one build of the peer stands for.

    Attributes:
        variant: the variant of kernforge that serves the same.
        half: the peer's build.
        archs: architectures, as the variant has them.
        hosts: how many torch and CUDA it is counted for.
    """

    variant: str
    half: Half
    archs: tuple[str, ...]
    hosts: int


def hosts() -> list[Host]:
    """Every torch and CUDA that is published and that the kernel's binding serves."""
    one = Host(cpu="x86_64", os="linux", backend=Backend("cpu"), cxx11=True)
    found = []
    for series, published in targets.torch_releases().items():
        if series >= STABLE:
            found.append(replace(one, torch=series))
            found += [replace(one, torch=series, backend=Backend("cuda", c)) for c in published]
    return found


def kinds(variants: dict[str, str]) -> list[Kind]:
    """The peer's builds, each with the hosts for which the resolver takes kernforge's variant."""
    everyone = hosts()
    best = [resolve(variants, host).best for host in everyone]
    unserved = [host for host, decision in zip(everyone, best, strict=True) if decision is None]
    if unserved:
        sys.exit(f"nothing serves {unserved}")
    found = []
    for name, directory in variants.items():
        metadata = json.loads((Path(directory) / "metadata.json").read_text())
        archs = tuple(metadata["backend"].get("archs") or ())
        backend = "cuda" if archs else "cpu"
        source = DEVICE if archs else "img2gray_cpu.cpp"
        half = Half(backend=backend, source=source, stable=True, archs=archs)
        count = sum(decision.name == name for decision in best if decision)
        found.append(Kind(variant=name, half=half, archs=archs, hosts=count))
    return found


def build(place: Place) -> dict[str, object]:
    """One build of all variants: its time, its variants and what its actions took."""
    argv = [sys.executable, "-m", "kernforge", "build", str(place.project), "--no-check", "--json"]
    argv += place.options
    argv += [part for name in VARIANTS for part in ("--variant", f"torch-stable-abi*-{name}-*")]
    argv += [part for arch in GPUS for part in ("--arch", arch)]
    env = {**os.environ, "KERNFORGE_HOME": str(place.store)}
    done = run(Command(argv=tuple(argv), env=env))
    if done.returncode:
        sys.exit(f"{argv}\n{done.stdout}{done.stderr}")
    document = json.loads(done.stdout)
    spent = {one["title"]: round(one["cpu_s"], 2) for one in document["actions"]["spent"]}
    return {
        "cpu_s": done.cpu_s,
        "wall_s": done.wall_s,
        "spent": spent,
        "variants": document["variants"],
    }


def own_compilations(spent: dict[str, float]) -> list[float]:
    """What each compilation of the kernel's own sources took."""
    sources = (BINDING, DEVICE, "img2gray_cpu.cpp")
    return [cpu_s for title, cpu_s in spent.items() if title.startswith(sources)]


def measure(place: Place) -> list[dict[str, object]]:
    """Cold, unchanged, and after an edit of the device code and of the binding."""
    build(place)  # toolchains are fetched once and are no part of a build
    shutil.rmtree(place.store / "store" / "actions")
    cases = []
    for case, edited in (
        ("cold", None),
        ("no change", None),
        (f"edit of {DEVICE}", DEVICE),
        ("edit of the binding", BINDING),
    ):
        if edited:
            with (place.project / edited).open("a") as stream:
                stream.write("// one line more\n")
        ours = build(place)
        peers = []
        for kind in kinds(ours.pop("variants")):
            theirs = replace(place, peer=place.peer / kind.variant)
            took = peer_build(theirs, kind.half)
            peers.append({"for": kind.variant, "archs": kind.archs, "hosts": kind.hosts, **took})
        cases.append({"case": case, "kernforge": ours, "peer": peers})
        print(json.dumps(cases[-1]), flush=True)
    return cases


def table(cases: list[dict], load: float) -> dict[str, object]:
    """The cases as the README shows them; ``load`` is the machine's before, for each core."""
    rows = []
    for one in cases:
        ours, peers = one["kernforge"], one["peer"]
        total = sum(peer["hosts"] * peer["peer_cpu_s"] for peer in peers)
        terms = " + ".join(f"{peer['hosts']} x {peer['peer_cpu_s']:.1f}" for peer in peers)
        theirs = f"{terms} = {total:.0f}"
        rows.append([one["case"], f"{ours['cpu_s']:.1f}", theirs, f"{total / ours['cpu_s']:.1f}x"])
    cold = cases[0]
    own = own_compilations(cold["kernforge"]["spent"])
    total = sum(peer["hosts"] * peer["peer_cpu_s"] for peer in cold["peer"])
    served = sum(peer["hosts"] for peer in cold["peer"])
    note = (
        f"One build of three variants serves {served} pairs of torch (from 2.10) and CPU, CUDA 12 "
        f"or CUDA 13. Peer: pairs x CPU seconds of one build, for the CPU and for each CUDA "
        f"version, measured with torch {torch.__version__} and nvcc 13.0. {sum(own):.1f} CPU "
        f"seconds of the cold build are the {len(own)} compilations of the kernel's own sources."
    )
    if load > 1:
        note += " Ratios vary by about 10 % from run to run."
    return {
        "title": "img2gray for all torch and CUDA versions, CPU seconds",
        "head": ["", "kernforge", "cpp_extension", "ratio"],
        "rows": rows,
        "note": note,
    }


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=RESULT)
    parser.add_argument("--store", type=Path, help="a home whose toolchains are used")
    parser.add_argument("--cuda-home", type=Path, required=True, help="the peer's toolkit: 13.0")
    arguments = parser.parse_args()
    if torch.version.cuda is None:
        sys.exit("the installed torch has no CUDA")
    load = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as directory:
        ours = argparse.Namespace(store=arguments.store, lock=None, cuda_home=None, options=())
        half = Half(backend="cuda", source=DEVICE, stable=True)
        place = prepare(Path(directory), half, ours)
        # Of the peer alone: kernforge's toolkits are those of its lock.
        cases = measure(replace(place, env={"CUDA_HOME": str(arguments.cuda_home)}))
    document = {
        "machine": {**describe("kernforge", "torch"), "load": round(load, 1)},
        "cases": cases,
        "table": table(cases, load),
    }
    arguments.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
