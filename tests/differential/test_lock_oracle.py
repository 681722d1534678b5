# SPDX-License-Identifier: Apache-2.0
"""What we write as ``kernels.lock`` is byte for byte what the hub's own client writes."""

import random

import pytest

from kernforge.application.project_lock import lock_text
from kernforge.artifact.metadata import KernelDepend
from kernforge.loader.lock import Pin, sort_key

rust = pytest.importorskip("kernels._rust")


def random_depend(rng):
    repo_id = f"{rng.choice(['a', 'B', 'b-c', 'Z'])}/{rng.choice(['x', 'y.z', 'Y', 'x_1'])}"
    if rng.random() < 0.5:
        return KernelDepend(repo_id=repo_id, version=rng.choice([0, 1, 2, 10, 99]))
    return KernelDepend(repo_id=repo_id, revision=rng.choice(["main", "v1", "v10", "é/x"]))


def theirs(depend):
    version = (
        rust.KernelVersion.Version(depend.version)
        if depend.version is not None
        else rust.KernelVersion.Revision(depend.revision)
    )
    return rust.KernelDependency(depend.repo_id, version)


@pytest.mark.parametrize("seed", range(50))
def test_lock_text_is_that_of_the_client(seed):
    rng = random.Random(seed)
    commits = {random_depend(rng): rng.randbytes(rng.choice([20, 32])).hex() for _ in range(8)}
    locks = {theirs(depend): rust.KernelLock(commit) for depend, commit in commits.items()}
    pins = [
        Pin(depend=depend, commit=commits[depend], asked=None, release=None, metadata={})
        for depend in sorted(commits, key=sort_key)
    ]
    text = lock_text(pins)
    assert text == rust.KernelLocks(locks).to_json()
    assert rust.KernelLocks.from_json(text) == rust.KernelLocks(locks)
