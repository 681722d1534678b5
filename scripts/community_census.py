# SPDX-License-Identifier: Apache-2.0
"""What kernforge plans for each manifest of kernels-community: ``community-census.json``.

    python scripts/community_census.py

The manifests are those of ``tests/data/kernels_community.json``. ``community_outcomes.py`` adds the table.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.artifact.version import Version2
from kernforge.errors import KernforgeError
from kernforge.manifest import document
from kernforge.manifest.model import TorchNoarch
from kernforge.project import targets, units
from kernforge.toolchain import front_end, header_libraries

if TYPE_CHECKING:
    from kernforge.manifest.document import Manifest

ROOT = Path(__file__).parents[1]
MANIFESTS = ROOT / "tests" / "data" / "kernels_community.json"
CENSUS = ROOT / "benchmarks" / "results" / "community-census.json"
CPU = "x86_64"


def manifests() -> dict[str, Manifest]:
    """Every manifest by its directory."""
    texts = json.loads(MANIFESTS.read_text())["manifests"]
    return {name: document.parse(text, source=name) for name, text in texts.items()}


def planned(manifest: Manifest) -> dict[str, str]:
    """By backend what is built where no torch is installed, or why nothing is."""
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


def row(directory: str, manifest: Manifest) -> dict[str, Any]:
    """One entry of the census."""
    compiled = not isinstance(manifest.framework, TorchNoarch)
    return {"directory": directory, "compiled": compiled, "planned": planned(manifest)}


def main() -> None:
    """Plan all, and write the census."""
    kept = json.loads(MANIFESTS.read_text())
    rows = [row(name, manifest) for name, manifest in manifests().items()]
    table = json.loads(CENSUS.read_text()).get("table", {}) if CENSUS.exists() else {}
    found = {"source": "huggingface/kernels-community", "commit": kept["commit"], "kernels": rows}
    CENSUS.write_text(json.dumps({**found, "table": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
