# SPDX-License-Identifier: Apache-2.0
"""Trees of files: written from texts, and those of the kept store in a store of a test's own."""

import os
import shutil


def write(root, files):
    """Write texts by path; returns the directory."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def link_tree(old, new):
    """A second name for each file, which may have a gigabyte; a copy on another disk."""
    shutil.copytree(old, new, symlinks=True, dirs_exist_ok=True, copy_function=_link_or_copy)


def _link_or_copy(old, new):
    try:
        os.link(old, new)
    except OSError:
        shutil.copy2(old, new)
