# SPDX-License-Identifier: Apache-2.0
"""What `kernforge test` says of a project that cannot be built."""

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernforge.builder import api as build
from kernforge.cli.commands import test as command
from kernforge.errors import StorageError

WORKSPACE = SimpleNamespace(project=SimpleNamespace(root=Path("/projects/relu")))


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/projects/relu/build/torch: Read-only file system", "kernforge build --build-dir"),
        ("/home/me/.cache/kernforge/store: Read-only file system", "KERNFORGE_HOME"),
    ],
)
def test_the_directory_that_cannot_be_written_is_the_one_that_is_changed(monkeypatch, path, hint):
    def fails(*_):
        raise StorageError(path, hint="kernforge's own files are in KERNFORGE_HOME")

    monkeypatch.setattr(build, "build_project", fails)
    with pytest.raises(StorageError, match="so it is not tested") as caught:
        command._build(WORKSPACE, (), Namespace(quiet=True, sandbox="auto"))
    assert hint in caught.value.hint
