# SPDX-License-Identifier: Apache-2.0
"""What became of each manifest of kernels-community: the table of ``community-census.json``.

    python scripts/community_outcomes.py

Joins the census (what is planned) with ``community.json`` (what was built, loaded and tested) and
with what is known of the rest: why it was not built, and how much it would take.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
CENSUS, BUILT = RESULTS / "community-census.json", RESULTS / "community.json"
OURS = ("cuda", "cpu")
CPU_S_OF_A_UNIT = 150
"""What each of three backward units of flash-attn2 took for sm_90: 4 to 6 GB, one processor core."""
_UNITS = {
    "flash-attn2": 72,
    "flash-attn3": 402,
    "flash-mla": 14,
    "layer-norm": 56,
    "natten": 108,
    "sgl-flash-attn3": 402,
    "vllm-flash-attn3": 182,
    "vllm-moe": 9,
}
"""Device units for an H100 that were not all compiled."""
_BLACKWELL = "not built: for Blackwell alone, of which no GPU was at hand"
LEFT = {
    "sage-attention": "not built: 13 units, ended after 500 s on two busy cores",
    "msa": _BLACKWELL,
    "nvfp4-gemm": _BLACKWELL,
    "quantization-eetq": "not built: needs CUTLASS 2.10, which --depends names",
    "gpt-oss-triton-kernels": "its tests were ended by a limit",
}
"""Why the rest of a manifest's CUDA was not built or not tested whole."""
TITLE = "Every manifest of kernels-community"
NOTE = (
    "Counts are tests of the kernel's own, or comparisons with references where it has none "
    "(`tests/community/references.py`). What is left out for ROCm, XPU and Metal is refused by name: "
    "the compilers are AMD's hipcc, Intel's oneAPI and Apple's. Minutes of a processor core are for "
    f"one architecture, at the {CPU_S_OF_A_UNIT} s that each of three units of flash-attn2 took."
)


def outcomes(census: dict[str, Any], built: dict[str, Any]) -> list[list[str]]:
    """One row for each manifest."""
    entries: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for entry in built["kernels"]:
        project, _, name = entry["built"]["kernel"].partition("/")
        if project == "community":
            entries[name, entry["built"]["backend"]].append(entry)
    rows = []
    for row in census["kernels"]:
        name, planned = row["directory"], row["planned"]
        ours = [
            outcome(entries[name, backend], left(row) if backend == "cuda" else "")
            or ("planned" if row["compiled"] else "nothing to compile")
            if backend in planned
            else ""
            for backend in OURS
        ]
        rows.append([name, *ours, others(planned)])
    return rows


def left(row: dict[str, Any]) -> str:
    """Why a manifest's CUDA was not built, and what it would take."""
    name = row["directory"]
    if many := _UNITS.get(name):
        minutes = many * CPU_S_OF_A_UNIT / 60
        return f"not built: {many} units, about {minutes:,.0f} CPU-minutes (estimated)"
    return LEFT.get(name, "")


def outcome(entries: list[dict[str, Any]], rest: str) -> str:
    """In words what became of one backend of a manifest."""
    texts = []
    for entry in entries:
        tested, variant = entry["tested"], entry["built"]["variant"]
        cuda = "CUDA 12.8: " if "-cu128-" in variant else ""
        if not tested:
            text = "built" if entry["built"]["built"] else f"not built: {entry['built']['why']}"
        elif not all(tested["loads"].values()):
            text = f"built, not loaded: {tested['why']}"
        else:
            counts = [(tested[name], name) for name in ("passed", "failed", "skipped")]
            shown = counts if not tested["passed"] else counts[:2]
            text = ", ".join(["loaded by both", *(f"{n:,} {name}" for n, name in shown if n)])
        texts.append(f"{cuda}{text}")
    return "; ".join([*texts, *([rest] if rest else [])])


def others(planned: dict[str, str]) -> str:
    """In words what becomes of the backends that are not built here."""
    refused = [b for b in planned if b not in OURS and planned[b].startswith("left out: needs ")]
    rest = [b for b in planned if b not in OURS and b not in refused]
    texts = [f"{', '.join(refused)}: refused"] if refused else []
    return "; ".join([*texts, *([f"{', '.join(rest)}: nothing to compile"] if rest else [])])


def table(census: dict[str, Any], built: dict[str, Any]) -> dict[str, Any]:
    """What docs/results shows."""
    return {
        "title": TITLE,
        "head": ["", "CUDA", "CPU", "others"],
        "rows": outcomes(census, built),
        "note": NOTE,
    }


def main() -> None:
    """Write the table anew."""
    census = json.loads(CENSUS.read_text())
    census["table"] = table(census, json.loads(BUILT.read_text()))
    CENSUS.write_text(json.dumps(census, indent=1) + "\n")
    for row in census["table"]["rows"]:
        print(" | ".join(row))


if __name__ == "__main__":
    main()
