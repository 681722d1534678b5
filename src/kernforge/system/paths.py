# SPDX-License-Identifier: Apache-2.0
"""Where kernforge keeps its files for this user."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def home() -> Path:
    """``KERNFORGE_HOME``, else kernforge's directory in the user's cache. It may not exist yet."""
    if chosen := os.environ.get("KERNFORGE_HOME"):
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_cache_path  # noqa: PLC0415 - import in milliseconds

    return user_cache_path("kernforge", appauthor=False)


def default_registry() -> str:
    """Path or URL of the registry: ``KERNFORGE_REGISTRY``, else ``registry`` in ``home()``."""
    return os.environ.get("KERNFORGE_REGISTRY") or str(home() / "registry")


def config_dir() -> Path:
    """Where this user's configuration lies. It may not exist yet."""
    if sys.platform == "linux":  # what platformdirs would say, 17 ms earlier
        chosen = os.environ.get("XDG_CONFIG_HOME", "")
        return Path(chosen if chosen.startswith("/") else "~/.config").expanduser() / "kernforge"
    from platformdirs import user_config_path  # noqa: PLC0415 - import in milliseconds

    return user_config_path("kernforge", appauthor=False)
