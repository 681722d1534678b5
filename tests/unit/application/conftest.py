# SPDX-License-Identifier: Apache-2.0
"""A project that is locked, and the registry that it is locked from."""

import itertools

import pytest

from kernforge.application import project_lock
from kernforge.publish.api import publish

_unique = (f"{number:07x}" for number in itertools.count(0x100))


@pytest.fixture
def released(registry, tmp_path, write_variant):
    """A function that publishes a version of a kernel and returns its commit."""

    def release(repo_id, version, **fields):
        unique = next(_unique)
        directory = tmp_path / f"build-{unique}"
        for variant in fields.pop("variants", ("torch-cpu",)):
            write_variant(
                directory, variant=variant, unique=unique, version=int(version[0]), **fields
            )
        return publish(directory, registry, repo_id, version).commit

    return release


@pytest.fixture
def project(tmp_path, registry):
    """A function that writes a project and locks it; returns its pins by repo id and version."""
    root = tmp_path / "app"

    def lock(*lines, upgrade=()):
        text = "\n".join(("[tool.kernels.dependencies]", *lines, ""))
        root.mkdir(exist_ok=True)
        (root / "pyproject.toml").write_text(text)
        found = project_lock.lock(project_lock.read(root), registry, upgrade=upgrade)
        return {(p.depend.repo_id, p.depend.version or p.depend.revision): p for p in found}

    lock.root = root
    return lock
