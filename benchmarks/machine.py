# SPDX-License-Identifier: Apache-2.0
"""What a result must say of where and when it was measured."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import platform

import kernforge
from kernforge.system import machine


def describe(*packages: str) -> dict[str, object]:
    """Machine, versions and date.

    Args:
        packages: distributions whose versions matter to the result.
    """
    return {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "cpu": machine.processor_name(),
        "cores": machine.cores(),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in packages},
    }


def _version(name: str) -> str:
    # From a checkout, kernforge is on the path without being installed.
    return kernforge.__version__ if name == "kernforge" else importlib.metadata.version(name)
