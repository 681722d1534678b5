# SPDX-License-Identifier: Apache-2.0
"""New kernel projects, as ``kernforge new`` writes them."""

from kernforge.project import scaffold as new


def scaffold(name, *, dest, **options):
    """A new project; returns its files."""
    return new.create(new.project_files(name, **options), dest)
