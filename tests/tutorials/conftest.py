# SPDX-License-Identifier: Apache-2.0
"""Copies of the tutorials' projects, in the forms that the tutorials have."""

import pytest
from support import tutorials


@pytest.fixture
def tutorial(tmp_path):
    """A function that copies folders into a project of its own; see ``support.tutorials``."""

    def copy(*folders, edits=()):
        return tutorials.copy(tmp_path / folders[0], *folders, edits=edits)

    return copy
