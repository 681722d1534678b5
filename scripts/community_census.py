# SPDX-License-Identifier: Apache-2.0
"""Facts of other people's manifests, and what kernforge plans for each: ``community-census.json``.

    python scripts/community_census.py CHECKOUT -o benchmarks/results/community-census.json

A checkout holds kernel projects, as huggingface/kernels-community does. Of a manifest is kept what
decides what is built: bounds, backends, the framework, and of each section its backend,
dependencies, capabilities, flags and the number of sources, whose names and texts are not.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from kernforge.artifact.version import Version2
from kernforge.errors import KernforgeError
from kernforge.manifest import document
from kernforge.manifest.document import Manifest, TorchNoarch, TvmFfi
from kernforge.project import targets, units
from kernforge.toolchain import front_end, header_libraries

CPU = "x86_64"
_SUFFIX = {"cpu": "cpp", "cuda": "cu"}
_OF_SECTION = ("cuda-capabilities", "cuda-flags", "cuda-minver")


def facts(manifest: Manifest) -> dict[str, Any]:
    """What a manifest says, without the names of its sources."""
    general, framework = manifest.general, manifest.framework
    kind = (
        "torch-noarch"
        if isinstance(framework, TorchNoarch)
        else "tvm-ffi"
        if isinstance(framework, TvmFfi)
        else "torch"
    )
    found: dict[str, Any] = {
        "name": general.name,
        "backends": list(general.backends),
        "framework": kind,
        "cuda": {k: str(v) for k in ("minver", "maxver") if (v := getattr(general.cuda, k))},
        "kernels": {},
    }
    if kind == "torch":
        found["torch"] = {k: str(v) for k in ("minver", "maxver") if (v := getattr(framework, k))}
        abi = {b: framework.stable_abi_for(b) for b in general.backends}
        found["stable-abi"] = {b: str(v) for b, v in abi.items() if v}
    for name, section in manifest.kernels.items():
        row: dict[str, Any] = {"backend": section.backend, "depends": list(section.depends)}
        for key in _OF_SECTION:
            if value := getattr(section, key.replace("-", "_"), None):
                row[key] = str(value) if isinstance(value, Version2) else list(value)
        found["kernels"][name] = {**row, "sources": len(section.src)}
    return found


def as_manifest(row: dict[str, Any]) -> Manifest:
    """A manifest with the same facts; each section has one source of a made-up name."""
    lines = ["[general]", f'name = "{row["name"]}"', "version = 1", "edition = 5"]
    lines += ['license = "x"', f"backends = {json.dumps(row['backends'])}"]
    if row["cuda"]:
        lines += ["[general.cuda]", *(f'{k} = "{v}"' for k, v in row["cuda"].items())]
    lines += [f"[{row['framework']}]"]
    if row["framework"] == "tvm-ffi":
        lines += ['src = ["x.cpp"]']
    if row["framework"] == "torch":
        lines += [f'{k} = "{v}"' for k, v in row["torch"].items()]
        if row["stable-abi"]:
            lines += ["[torch.stable-abi]", *(f'{k} = "{v}"' for k, v in row["stable-abi"].items())]
    for name, section in row["kernels"].items():
        source = f"{name.replace('-', '_')}.{_SUFFIX.get(section['backend'], 'cpp')}"
        lines += [f"[kernel.{name}]", f"src = {json.dumps([source])}"]
        lines += [f"{k} = {json.dumps(v)}" for k, v in section.items() if k != "sources"]
    return document.parse("\n".join(lines))


def planned(row: dict[str, Any]) -> dict[str, str]:
    """By backend what is built where no torch is installed, or why nothing is."""
    manifest = as_manifest(row)
    found = {}
    considered = targets.candidates(manifest, cpu=CPU)
    for backend in manifest.general.backends:
        mine = [c for c in considered if c.target and c.target.backend == backend]
        left = [c for c in considered if c.name == backend]
        built = [c.name.removesuffix(f"-{CPU}-linux") for c in mine if c.default]
        why = left[0].reason if left else "nothing is built unasked"
        text = ", ".join(built) or f"left out: {why}"
        if backend == "cuda" and any(c.target and c.target.cuda for c in mine):
            text += f"; {_device(manifest)}"
        found[backend] = text
    return found


def _device(manifest: Manifest) -> str:
    """What becomes of the device code for CUDA 12.8 and of the headers that it needs."""
    name, cuda = units.cutlass(manifest), Version2(12, 8)
    carried = header_libraries.CARRIED.get(name)
    parts = [f"{name}: {carried.release if carried else 'named by the user'}"] if name else []
    try:
        archs = {a for u in units.units(manifest, "cuda", cuda) if u.is_cuda for a in u.archs(cuda)}
        kept = front_end.supported(sorted(archs), cuda)
        for unit in units.units(manifest, "cuda", cuda):
            front_end.refuse_device_link(unit.cuda_flags, unit.path, str(cuda))
    except KernforgeError as error:
        return "; ".join([*parts, f"CUDA 12.8: {error.message}"])
    return "; ".join([*parts, f"CUDA 12.8 for {' '.join(map(str, kept))}"])


def main() -> None:
    """Read the manifests and write the census."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--commit", required=True, help="of the checkout")
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    rows = []
    for path in sorted(options.checkout.glob("*/build.toml")):
        row = facts(document.parse(path.read_text(), source=str(path)))
        rows.append({"directory": path.parent.name, **row, "planned": planned(row)})
        print(path.parent.name, rows[-1]["planned"])
    found = {"source": "huggingface/kernels-community", "commit": options.commit, "kernels": rows}
    options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
