# SPDX-License-Identifier: Apache-2.0
"""CUTLASS releases that build.toml's ``depends`` names, and where each comes from.

NVIDIA publishes some CUTLASS releases as wheels, which hold the source tree. Wheels of projects
that compile with CUTLASS carry others; only those headers are read of them. A release without a
wheel is read from a checkout that the user names, and what counts is its content.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kernforge.errors import ToolchainError, UsageError
from kernforge.system import digest
from kernforge.toolchain.installed import LocalTree
from kernforge.toolchain.lockfile import LockedTree

RELEASES = {
    "cutlass_2_10": "2.10.0",
    "cutlass_3_5": "3.5.1",
    "cutlass_3_6": "3.6.0",
    "cutlass_3_8": "3.8.0",
    "cutlass_3_9": "3.9.2",
    "cutlass_4_0": "4.0.0",
    "cutlass_4_4": "4.4.2",
    "cutlass_4_5": "4.5.2",
}
"""Release that kernel-builder takes for each name."""


class HeaderWheel(NamedTuple):
    """A wheel that carries the release of CUTLASS that its ``cutlass/version.h`` states."""

    release: str
    project: str
    version: str


# Each was compared with the release's tag: all but 4.5.0, which is a state of shortly before, are
# the release's own. No wheel has 2.10, and what calls itself 4.0.0 is of long before it.
CARRIED = {
    "cutlass_3_5": HeaderWheel("3.5.1", "nvidia-cutlass", "3.5.1.0"),
    "cutlass_3_6": HeaderWheel("3.6.0", "nvidia-cutlass", "3.6.0.0"),
    "cutlass_3_8": HeaderWheel("3.8.0", "nvidia-cutlass", "3.8.0.0"),
    "cutlass_3_9": HeaderWheel("3.9.2", "sgl-kernel", "0.1.2.post1"),
    "cutlass_4_0": HeaderWheel("4.2.0", "nvidia-cutlass", "4.2.0.0"),
    "cutlass_4_4": HeaderWheel("4.4.2", "flashinfer-python", "0.6.10"),
    "cutlass_4_5": HeaderWheel("4.5.0", "flashinfer-python", "0.7.2"),
}
"""The wheel with the headers of each name."""
VARIABLE = "CUTLASS_SRC_DIR"
# Where a CUTLASS tree keeps its headers; all are found as <cutlass/...> and <cute/...>.
HEADERS = ("include/", "tools/util/include/")
# Where wheels keep that tree: NVIDIA's own, and others, of which only CUTLASS's directories are
# read.
_NVIDIAS = "cutlass_library/source/"
_OTHERS = ("deep_gemm/", "flashinfer/data/cutlass/")
_DIRECTORIES = ("cutlass/", "cute/")
_VERSION_FILE = "cutlass/version.h"
_VERSION = re.compile(r"#define\s+CUTLASS_(MAJOR|MINOR|PATCH)\s+(\d+)")


def note(name: str) -> str:
    """Note on a name's wheel for the user; empty where kernel-builder takes the same release."""
    wanted, carried = RELEASES.get(name), CARRIED.get(name)
    if wanted is None or carried is None or carried.release == wanted:
        return ""
    return (
        f"{name} is CUTLASS {carried.release} of the package index, kernel-builder takes {wanted}: "
        f"{VARIABLE} names another"
    )


def below_wheel(name: str) -> str:
    """Path below ``include`` of a member of a wheel; empty for what is not a header of CUTLASS."""
    if name.startswith(_NVIDIAS):
        return _below_include(name.removeprefix(_NVIDIAS))
    for start in _OTHERS:
        if name.startswith(start):
            below = _below_include(name.removeprefix(start))
            return below if below.startswith(_DIRECTORIES) else ""
    return ""


def release(contents: Mapping[str, bytes]) -> str:
    """Version that headers state, as ``"4.0.0"``; empty when they state none."""
    text = contents.get(_VERSION_FILE, b"").decode(errors="replace")
    parts = dict(_VERSION.findall(text))
    return ".".join(parts[part] for part in ("MAJOR", "MINOR", "PATCH") if part in parts)


def identify(name: str, checkout: Path) -> LocalTree:
    """The headers of a CUTLASS checkout, for this name in ``depends``."""
    contents = {
        path.relative_to(checkout / top).as_posix(): path.read_bytes()
        for top in HEADERS
        for path in sorted((checkout / top).rglob("*"))
        if path.is_file()
    }
    if "cutlass/cutlass.h" not in contents:
        raise UsageError(
            f"{checkout} is not a CUTLASS checkout: there is no include/cutlass/cutlass.h in it",
            hint="name the root of a checkout; unpack an archive of one with tar or unzip first",
        )
    hashes = {path: digest.sha256(data) for path, data in contents.items()}
    key = digest.key("header-files", files=hashes)
    locked = LockedTree(kind=name, release=release(contents), digest=key)
    return LocalTree(locked=locked, path=checkout, files=contents)


def no_wheel(name: str) -> ToolchainError:
    """The error for a release that no wheel carries and the user did not name."""
    return ToolchainError(
        f"build.toml depends on {name} (CUTLASS {RELEASES.get(name, '')}), and no package index "
        "carries it",
        hint=f"get that release's sources, and name the checkout in {VARIABLE}",
    )


def _below_include(name: str) -> str:
    for prefix in HEADERS:
        if name.startswith(prefix) and not name.endswith("/"):
            return name.removeprefix(prefix)
    return ""
