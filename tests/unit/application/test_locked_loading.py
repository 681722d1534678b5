# SPDX-License-Identifier: Apache-2.0
"""The loader compares kernels with a project's lock."""

import pytest
from support.variants import replace_linked

from kernforge.application.download import parse
from kernforge.errors import IntegrityError, RequestError
from kernforge.loader import api as loader
from kernforge.loader import lock, search


def test_a_registry_that_changes_a_commit_is_detected(project, released, registry):
    commit = released("o/n", "1.0.0")
    project('"o/n" = 1')
    locks = lock.read(project.root / "kernels.lock")
    document = registry.metadata("o/n", commit, "torch-cpu")
    locks.check("o/n", commit, "torch-cpu", document)
    with pytest.raises(IntegrityError, match="is not what was locked"):
        locks.check("o/n", commit, "torch-cpu", document.replace(b"Apache-2.0", b"MIT"))
    with pytest.raises(RequestError, match="had no variant torch-cuda when it was locked"):
        locks.check("o/n", commit, "torch-cuda", document)
    with pytest.raises(RequestError, match=r"kernforge-kernels\.lock does not"):
        locks.check("o/n", "0" * 40, "torch-cpu", document)
    (project.root / "kernforge-kernels.lock").unlink()
    lock.read(project.root / "kernels.lock").check("o/n", commit, "torch-cpu", b"")


def test_the_loader_refuses_a_changed_commit(project, released, registry, monkeypatch):
    commit = released("o/n", "1.0.0")
    project('"o/n" = 1')
    for module in (loader, search):
        if hasattr(module, "probe"):
            monkeypatch.setattr(module, "probe", lambda _backend: parse("cpu-x86_64-linux"))
    ask = {"lockfile": project.root / "kernels.lock", "registry": registry}
    path = registry.fetch("o/n", commit, "torch-cpu") / "metadata.json"
    document = path.read_bytes()
    replace_linked(path, document.replace(b"Apache-2.0", b"MIT"))
    with pytest.raises(IntegrityError, match="is not what was locked"):
        loader.load_kernel("o/n", **ask)
    replace_linked(path, document)
    assert loader.load_kernel("o/n", **ask).ANSWER == 42
