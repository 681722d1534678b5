# SPDX-License-Identifier: Apache-2.0
"""What a result must say of where and when it was measured."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import platform
from pathlib import Path

import kernforge


def describe(*packages: str) -> dict[str, object]:
    """Machine, versions and date.

    Args:
        packages: distributions whose versions matter to the result.
    """
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in packages},
    }


def _version(name: str) -> str:
    # From a checkout, kernforge is on the path without being installed.
    return kernforge.__version__ if name == "kernforge" else importlib.metadata.version(name)
