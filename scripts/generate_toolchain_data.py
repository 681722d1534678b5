# SPDX-License-Identifier: Apache-2.0
"""Write ``data/toolchain_wheels.json``: the hashes of the wheels that a toolchain may be made of.

Run it when there are new releases of CUDA or torch. It reads the configured package index;
what stands in the file already stays, and a file that has another hash now is an error.
"""

import json
import os
import sys
from pathlib import Path

from kernforge.toolchain import header_libraries, projects
from kernforge.toolchain.index.index import Index

OUT = Path(__file__).parents[1] / "src" / "kernforge" / "data" / "toolchain_wheels.json"
# Of those that carry CUTLASS for themselves only the versions that are read.
CARRIED = {(each.project, each.version) for each in header_libraries.CARRIED.values()}
ONLY = {project for project, _ in CARRIED} - {"nvidia-cutlass"}
# Of these the versions are many.
SINCE = {"torch": (2, 8), "apache-tvm-ffi": (0, 1)}
CPUS = ("x86_64", "aarch64")


def main() -> None:
    """Read the index and write the file."""
    index = Index.from_environment(dict(os.environ))
    known = json.loads(OUT.read_text())["sha256"] if OUT.is_file() else {}
    for project in sorted(projects.ALL):
        for wheel in index.wheels(project):
            linux = any(t.platform == "any" or t.platform.endswith(CPUS) for t in wheel.tags)
            recent = wheel.version.release[:2] >= SINCE.get(project, (0,))
            read = project not in ONLY or (project, str(wheel.version)) in CARRIED
            final = not wheel.version.is_prerelease and wheel.version.local is None
            if not (linux and recent and read and final and wheel.sha256):
                continue
            if known.setdefault(wheel.file, wheel.sha256) != wheel.sha256:
                sys.exit(f"{wheel.file} has sha256 {wheel.sha256} now, {known[wheel.file]} before")
    document = {
        "source": "the package index's own hashes of the Linux wheels of these projects",
        "sha256": dict(sorted(known.items())),
    }
    OUT.write_text(json.dumps(document, indent=0) + "\n")


if __name__ == "__main__":
    main()
