# SPDX-License-Identifier: Apache-2.0
"""Pages of results, from the documents in ``benchmarks/results``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Group:
    """One page of results.

    Attributes:
        title: of the page.
        summary: what it answers, for the index.
        text: what all of its tables have in common.
        files: patterns of the names of its documents.
    """

    title: str
    summary: str
    text: str
    files: tuple[str, ...]


GROUPS = {
    "kernels": Group(
        "Kernels on the GPU",
        "the ten kernels beside torch, torch.compile and the roofline, and where they are slower",
        "The example kernels of the repository with torch 2.11 and CUDA 13.0 on an NVIDIA H200;\n"
        "one sweep is of an H100.\n"
        "All contenders of a table take turns in one run. The L2 cache is emptied before each "
        "call unless\nthe column says otherwise. A device copy that moves as many bytes is the "
        "ceiling; on data that\nfits into a cache, a kernel can be faster than this copy.\n\n"
        "Sweeps draw shapes, layouts and dtypes at random, so their tables have the worst that "
        "they found.\nWhat is still slower than torch:\n\n"
        "- layer-norm of every second column, which is copied first, with a residual where rows do "
        "not\n  begin on 16 bytes, and its gradients in float64;\n"
        "- products with few numbers in depth, and their gradients: they take torch's own "
        "launches, and one\n  or two more;\n"
        "- `topk` with one or with very many results, and a sort of one row;\n"
        "- gradients of `gelu_approx` of a transposed input; GELU by the normal distribution in "
        "float64, which\n  is exact in the tail, where torch's is not;\n"
        "- few experts in float32, multiplied without tensor cores at two thirds of cuBLAS's rate; "
        "gradients\n  in float16 and float32 of two or three experts, where both wait for the "
        "host.\n",
        ("*-h200.json", "sweep-*.json"),
    ),
    "jit": Group(
        "JIT",
        "seconds from a source to a call, and from an edit to a call",
        "`kernforge.load` and `kernforge.load_inline` beside `torch.utils.cpp_extension`, which "
        "takes the\nsame calls.\n",
        ("jit.json",),
    ),
    "build": Group(
        "Builds",
        "CPU seconds for every torch and CUDA, downloads, and the kernels of kernels-community",
        "`kernforge build` beside `torch.utils.cpp_extension`, on the same sources and "
        "architectures, with the\nsame compilers. One variant of kernforge serves several torch "
        "versions; cpp_extension builds once\nfor each of them.\n",
        ("build.json", "build-aten.json", "toolchain.json", "community.json", "sdists.json"),
    ),
    "load": Group(
        "Loading",
        "milliseconds of an import, of the first and of a repeated `get_kernel`",
        "`kernforge.get_kernel` beside `kernels.get_kernel`, for the same kernel in the same "
        "cache.\n",
        ("load.json",),
    ),
    "registry": Group(
        "Registries",
        "requests and milliseconds of a load from each kind of registry, and the speed of `serve`",
        "The same kernel in each kind of registry, and `kernels` beside kernforge on one server.\n",
        ("registry.json", "serve.json"),
    ),
    "compat": Group(
        "transformers and diffusers",
        "models that run with kernforge in the place of `kernels`",
        "transformers and diffusers, written for `kernels`, run with kernforge.\n",
        ("applications.json",),
    ),
}


def pages(results: Path) -> dict[str, str]:
    """The text of each page by its name, and that of their index."""
    tables = _tables(results)
    texts = {}
    for name, group in GROUPS.items():
        found = [path for pattern in group.files for path in sorted(results.glob(pattern))]
        parts = [f"# {group.title}\n", group.text]
        parts += [_table(tables.pop(path.name), path) for path in found if path.name in tables]
        texts[name] = "\n".join(parts)
    if tables:
        raise SystemExit(f"no page of results has {', '.join(tables)}: see GROUPS")
    lines = [f"- [{group.title}]({name}.md): {group.summary}" for name, group in GROUPS.items()]
    texts["README"] = "\n".join((_INDEX, *lines, ""))
    return texts


_INDEX = """# Results

Each table is made from a JSON document in `benchmarks/results`, which a script of the repository
wrote. kernforge and its peers are measured in the same run.
[Honest benchmarks](../explanation/honest-benchmarks.md) explains how kernels are measured.
"""


def _tables(results: Path) -> dict[str, dict[str, Any]]:
    """Each document that has a table."""
    documents = {p.name: json.loads(p.read_text()) for p in sorted(results.glob("*.json"))}
    return {name: document for name, document in documents.items() if "table" in document}


def _table(document: dict[str, Any], path: Path) -> str:
    """One table; a result file carries its own title, head, rows, note and machine."""
    table, machine = document["table"], document.get("machine", {})
    head, rows = table["head"], table["rows"]
    where = machine.get("gpu") or (f"{machine['cores']} cores" if "cores" in machine else "")
    measured = ", ".join(filter(None, (where, machine.get("date", "")[:10])))
    source = f"[{path.name}](../../benchmarks/results/{path.name})"
    lines = [f"## {table['title']}\n", _row(head), _row(["---"] * len(head)), *map(_row, rows)]
    end = f"{source} ({measured})" if measured else source
    return "\n".join([*lines, "", f"{table['note']} Source: {end}.\n"])


def _row(cells: list[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"
