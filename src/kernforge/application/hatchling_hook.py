# SPDX-License-Identifier: Apache-2.0
"""The hook for hatchling that writes a project's lock into its distribution's metadata.

A project enables it with ``[tool.hatch.build.hooks.kernforge]`` and ``kernforge`` in ``requires`` of
``[build-system]``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.plugin import hookimpl

from kernforge.application import project_lock


class LockHook(BuildHookInterface[Any]):
    """Adds the files of the lock to wheels; a source distribution has them from the project."""

    PLUGIN_NAME = "kernforge"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's
        """Add the files, under the names by which the loader finds them in a distribution.

        Raises:
            KernforgeError: the project requires kernels and its lock is missing or out of date.
        """
        root = Path(self.root)
        application = project_lock.read(root)
        if not application.asked:
            return
        project_lock.check(application)
        names = [name for name in project_lock.NAMES if (root / name).is_file()]
        if self.target_name == "sdist":
            build_data["force_include"] |= {str(root / name): name for name in names}
        elif self.target_name == "wheel":
            # The directory of the metadata has no name of its own in a hook's interface.
            metadata = f"{self.build_config.builder.artifact_project_id}.dist-info"
            for target in ("force_include", "force_include_editable"):
                build_data[target] |= {str(root / name): f"{metadata}/{name}" for name in names}


@hookimpl
def hatch_register_build_hook() -> type[LockHook]:
    """The class that hatchling requests from a plugin."""
    return LockHook
