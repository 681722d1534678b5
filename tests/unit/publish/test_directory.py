# SPDX-License-Identifier: Apache-2.0
"""Publication to a directory: killed at any moment, and by several at once."""

import random
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import mortal

from kernforge.errors import UsageError
from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry

REPO = "owner/toy"
CPU, CUDA = "torch-cpu", "torch-cuda"
CHILD = """
from kernforge.publish.api import publish
from kernforge.registry import DirectoryRegistry

publish(pathlib.Path(sys.argv[3]), DirectoryRegistry(pathlib.Path(root)), "owner/toy")
"""


def child(build, registry, deadly=0):
    return mortal.run(CHILD, registry.root, deadly, build)


def texts(registry, reference="v1"):
    commit = registry.ref(REPO, reference)
    paths = [registry.fetch(REPO, commit, name) for name in registry.variants(REPO, commit)]
    return {(path / "__init__.py").read_text() for path in paths}


def test_a_kill_leaves_a_whole_version(tmp_path, build):
    old, new = build("old", (CPU, CUDA)), build("new", (CPU, CUDA))
    whole = DirectoryRegistry(tmp_path / "whole")
    publish(old, whole, REPO)
    steps = int(child(new, whole).stdout)
    assert steps > 40
    moments = random.Random(5).sample(range(1, steps), 12)
    left = set()
    for moment in {*moments, steps}:
        registry = DirectoryRegistry(tmp_path / f"killed{moment}")
        publish(old, registry, REPO)
        assert child(new, registry, moment).returncode == -signal.SIGKILL
        (text,) = texts(registry)
        left.add(text)
        assert publish(new, registry, REPO).version == "1.0.1"
        assert texts(registry) == {"TEXT = 'new'\n"}
    assert left == {"TEXT = 'old'\n", "TEXT = 'new'\n"}


def test_concurrent_publishers_make_whole_versions(tmp_path, build):
    registry = DirectoryRegistry(tmp_path / "registry")
    builds = [build(text) for text in "abc"]
    with ThreadPoolExecutor(len(builds)) as pool:
        ended = list(pool.map(lambda directory: child(directory, registry), builds))
    assert [process.returncode for process in ended] == [0] * len(builds)
    tags = ("v1.0.0", "v1.0.1", "v1.0.2")
    assert list(registry.refs(REPO)) == ["main", "v1", *tags]
    assert len(set.union(*(texts(registry, tag) for tag in tags))) == len(builds)


def test_a_directory_has_no_private_kernels(build, tmp_path):
    with pytest.raises(UsageError, match="no private kernels"):
        publish(build("a"), DirectoryRegistry(tmp_path / "r"), REPO, private=True)
