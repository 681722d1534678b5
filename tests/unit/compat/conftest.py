# SPDX-License-Identifier: Apache-2.0
"""A registry and builds of a kernel in Python, for this machine's CPU."""

import itertools

import pytest

from kernforge.registry.directory import DirectoryRegistry

_numbers = itertools.count()


@pytest.fixture
def registry(tmp_path):
    return DirectoryRegistry(tmp_path / "registry")


@pytest.fixture
def build(tmp_path, write_variant):
    """A function that creates a build directory with one variant and an id of its own."""

    def make_build(**fields):
        unique = f"compat{next(_numbers)}"
        directory = tmp_path / f"build-{unique}"
        write_variant(directory, unique=unique, **fields)
        return directory

    return make_build
