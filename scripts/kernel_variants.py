# SPDX-License-Identifier: Apache-2.0
"""Build the kernels for CUDA 12.8 and 13.0, for every architecture that their manifests name.

    python scripts/kernel_variants.py builds --json benchmarks/results/kernel-variants.json
    python scripts/kernel_variants.py plain --plain kernels/matmul kernels/moe

Each variant is checked by ``kernforge check``; the table has its size and what machine code lies in it.

``--plain`` builds copies of the projects whose device code is PTX for compute capability 8.0 and takes
no path of Hopper's own: what a GPU of 8.0 runs, run by a newer one whose driver compiles it. With
``scripts/test_gpu.py --builds plain`` the tests run on them; those of tf32 want tensor cores, so
leave them out by ``--pytest=-k --pytest="not tf32"``.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from kernforge.binary import fatbin

ROOT = Path(__file__).resolve().parents[1]
CUDA = ("12.8", "13.0")
TORCH = "211"
"""Of those that are bound to one torch."""
_IS_HOPPER = re.compile(r"major == 9 && minor == 0|device\.compute_capability == 90")


def built(project: Path, out: Path, cuda: tuple[str, ...]) -> dict[str, Any]:
    """Build variants of a project, and give what ``kernforge build --json`` says.

    Raises:
        SystemExit: a compiler or a check ended with an error.
    """
    stable = "stable-abi" in tomllib.loads((project / "build.toml").read_text())["torch"]
    name = "torch-stable-abi*" if stable else f"torch{TORCH}-cxx11"
    argv = [sys.executable, "-m", "kernforge", "build", str(project), "--json"]
    argv += ["--build-dir", str(out)]
    for one in cuda:
        argv += ["--variant", f"{name}-cu{one.replace('.', '')}-x86_64-linux"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{project.name}: {done.stdout}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def described(project: str, variant: Path, findings: list[dict[str, Any]]) -> dict[str, Any]:
    """One row: a variant's machine code and what the checks say of it."""
    (library,) = variant.glob("*.so")
    found = fatbin.architectures(library.read_bytes())
    return {
        "kernel": project,
        "variant": variant.name,
        "cuda": re.sub(r".*-cu(\d\d)(\d)-.*", r"\1.\2", variant.name),
        "bytes": library.stat().st_size,
        "machine_code": list(found.cubins),
        "ptx": list(found.ptx),
        "findings": [f for f in findings if f["where"].startswith(variant.name)],
    }


def plain(project: Path, into: Path) -> Path:
    """A copy of a project without what is for Hopper alone.

    Raises:
        SystemExit: the copy has no CUDA section.
    """
    copy = into / project.name
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns("build"))
    text = (copy / "build.toml").read_text()
    lists = re.compile(r'^cuda-capabilities = \[(?!"9\.0a"\]).*$', re.MULTILINE)
    text, count = lists.subn('cuda-capabilities = ["8.0+PTX"]', text)
    if not count:
        section = 'backend = "cuda"\n'
        text = text.replace(section, section + 'cuda-capabilities = ["8.0+PTX"]\n')
    if "8.0+PTX" not in text:
        sys.exit(f"{project} has no section for CUDA")
    (copy / "build.toml").write_text(text)
    asked = [path for path in copy.glob("*.cu") if _IS_HOPPER.search(path.read_text())]
    if bool(asked) != ('["9.0a"]' in text):
        sys.exit(f"{project}: which of its sources asks for Hopper is not found")
    for path in asked:
        path.write_text(_IS_HOPPER.sub("false", path.read_text()))
    return copy


def table(rows: list[dict[str, Any]]) -> dict[str, object]:
    """A row for each kernel and CUDA."""
    shown = []
    for row in rows:
        ptx = "".join(f" {name}+PTX" for name in row["ptx"])
        errors = [f["rule"] for f in row["findings"] if f["severity"] != "skipped"]
        cells = [row["kernel"], row["cuda"], " ".join(row["machine_code"]) + ptx]
        shown.append([*cells, f"{row['bytes'] / 1e6:.1f} MB", ", ".join(errors) or "clean"])
    return {
        "title": "Variants of the kernels for x86_64: compute capabilities and sizes",
        "head": ["kernel", "CUDA", "machine code for", "shared object", "`kernforge check`"],
        "rows": shown,
        "note": "By `scripts/kernel_variants.py`, without a GPU, an installed CUDA or torch. The tests "
        "ran on an H200 on builds for CUDA 13.0 ([gpu-tests.json]"
        "(../../benchmarks/results/gpu-tests.json)) and 12.8 ([gpu-tests-cuda12.json]"
        "(../../benchmarks/results/gpu-tests-cuda12.json)), and those of the five larger kernels on PTX "
        "for 8.0 alone, which the driver compiles ([gpu-tests-plain.json](../../benchmarks/results/gpu-tests-plain.json)).",
    }


def main() -> None:
    """Build, check, describe."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="the variants of each kernel go to OUT/KERNEL")
    parser.add_argument("kernels", nargs="*", type=Path, help="projects (default: all)")
    parser.add_argument("--plain", action="store_true", help="build PTX for 8.0 alone, see above")
    parser.add_argument("--json", type=Path, help="write what was built there")
    options = parser.parse_intermixed_args()
    chosen = options.kernels or [p.parent for p in sorted(ROOT.glob("kernels/*/build.toml"))]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory:
        for project in chosen:
            # The lock of a copy is changed, not the project's.
            if options.plain:
                copy, cuda = plain(project, Path(directory)), CUDA[-1:]
            else:
                copy, cuda = Path(directory, project.name), CUDA
                shutil.copytree(project, copy, ignore=shutil.ignore_patterns("build"))
            said = built(copy, options.out.resolve() / project.name, cuda)
            for path in said["variants"].values():
                rows.append(described(project.name, Path(path), said["findings"]))
                print({**rows[-1], "cpu_s": round(said["actions"]["cpu_s"], 1)}, flush=True)
    if options.json:
        document = {"format": "kernel-variants-1", "variants": rows, "table": table(rows)}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
