# SPDX-License-Identifier: Apache-2.0
"""The headers of a torch that is installed on this machine, in the place of a wheel's."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.errors import UsageError
from kernforge.system import digest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_VERSION = re.compile(r"^__version__ = ['\"]([^'\"]+)['\"]", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchHome:
    """An installed torch.

    Attributes:
        path: directory of its package, which holds ``include``.
        release: its full version.
        digest: of its version and of the names and sizes of its headers, which are 10,000 files.
    """

    path: Path
    release: str
    digest: str


def identify(path: Path) -> TorchHome:
    """Say which torch lies in the directory of a package.

    Raises:
        UsageError: there is none, or its headers were left out.
    """
    stated = path / "version.py"
    match = _VERSION.search(stated.read_text()) if stated.is_file() else None
    if match is None or not (path / "include" / "torch").is_dir():
        raise UsageError(
            f"{path} holds no torch with its headers",
            hint="install torch from its own wheel",
        )
    sizes = dict(_sizes(path))
    found = digest.key("torch-home", version=match[1], sizes=sizes)
    return TorchHome(path=path, release=match[1], digest=found)


def _sizes(root: Path) -> Iterator[tuple[str, int]]:
    for directory, _, names in os.walk(root / "include"):
        for name in names:
            path = f"{directory}/{name}"
            yield os.path.relpath(path, root), os.stat(path).st_size  # noqa: PTH116 - many files
