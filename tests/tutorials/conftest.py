# SPDX-License-Identifier: Apache-2.0
"""Copies of the tutorials' projects, in the forms that the tutorials have."""

import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def tutorial(tmp_path):
    """A function that copies folders into a project of its own, the later over the earlier."""

    def copy(*folders, edits=()):
        root = tmp_path / folders[0]
        for folder in folders:
            shutil.copytree(HERE / folder, root, dirs_exist_ok=True)
        for path, old, new in edits:
            text = (root / path).read_text()
            assert old in text, f"{path} has no {old!r}"
            (root / path).write_text(text.replace(old, new))
        return root

    return copy
