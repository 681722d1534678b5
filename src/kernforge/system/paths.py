# SPDX-License-Identifier: Apache-2.0
"""Where kernforge keeps its files for this user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernforge.system.environment import Environment

if TYPE_CHECKING:
    from pathlib import Path


def home() -> Path:
    """``Environment.home`` of this process's variables."""
    return Environment.live().home
