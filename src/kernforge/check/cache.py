# SPDX-License-Identifier: Apache-2.0
"""Findings of variants that were checked before and have not changed since.

Only a build reads them, so that a build with nothing to do starts no program; ``kernforge check``
always checks. The key of the findings has everything that they depend on: every byte of the variant
and of the packages that hold the rules, the interpreter and what is installed in it, this machine.
Findings with an error are never kept.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge._version import __version__
from kernforge.check.finding import Finding
from kernforge.system import digest, files

if TYPE_CHECKING:
    from kernforge.store.local import Store
    from kernforge.system.process import Runner

STORE_KIND = "findings"
_FILE = "findings.json"
# Where the rules are, their tables, and what reads variants for them.
_RULES = ("artifact", "binary", "check", "data")
MODULES = ("abi3audit", "auditwheel", "elftools")
"""Modules of others that the rules for machine code need."""
_TOOLS = ("abi3audit", "auditwheel", "pyelftools", "torch", "apache-tvm-ffi")


def check(variant: Path, *, store: Store, run: Runner, imports: bool = True) -> tuple[Finding, ...]:
    """Findings of a variant by every rule, with this process's interpreter.

    Args:
        variant: its directory.
        store: where findings are kept.
        run: starts programs.
        imports: whether the variant's code may be run, to see that it can be imported.
    """
    key = _key(variant, imports=imports)
    if known := store.use(STORE_KIND, key):
        try:
            return tuple(Finding(**entry) for entry in json.loads((known / _FILE).read_bytes()))
        except (OSError, ValueError, TypeError):
            pass  # damaged: check again
    # Late: it brings modules that a build with nothing to do does not need.
    from kernforge.check.api import check_variant  # noqa: PLC0415

    findings = check_variant(variant, run=run, python=sys.executable if imports else None)
    if not any(finding.severity == "error" for finding in findings):
        text = json.dumps([asdict(finding) for finding in findings])
        store.tree(STORE_KIND, key, lambda tree: files.write_new(tree / _FILE, text), shared=False)
    return findings


def _key(variant: Path, *, imports: bool) -> str:
    content = {
        path.relative_to(variant).as_posix(): files.sha256_file(path)
        for path in variant.rglob("*")
        if path.is_file()
    }
    package = Path(__file__).parents[1]
    return digest.key(
        "findings",
        name=variant.name,
        content=content,
        version=__version__,
        rules={
            path.relative_to(package).as_posix(): files.sha256_file(path)
            for folder in _RULES
            for path in (package / folder).rglob("*")
            if path.is_file() and path.suffix != ".pyc"
        },
        python=[sys.executable, sys.version],
        installed=_installed(),
        tools=[_version(name) for name in _TOOLS],
        machine=list(os.uname()),
        imports=imports,
    )


def _installed() -> list[int]:
    """Changes whenever a package is installed or removed."""
    paths = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    return [Path(path).stat().st_mtime_ns for path in sorted(paths) if Path(path).is_dir()]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
