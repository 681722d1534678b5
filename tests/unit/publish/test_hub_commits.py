# SPDX-License-Identifier: Apache-2.0

import pytest
from support.hub_server import WRITER

from kernforge.publish.hub_commits import Operation, batches, plan

pytest.importorskip("huggingface_hub")
# The hub's own client hands files to its HTTP library in a way that the latter wants changed.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
CPU, CUDA = "torch-cpu", "torch-cuda"


@pytest.fixture(autouse=True)
def environment(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("KERNFORGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("KERNELS_CACHE", str(tmp_path / "kernels"))
    monkeypatch.setenv("HF_TOKEN", WRITER)
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("time.sleep", lambda _seconds: None)


@pytest.fixture
def build(tmp_path, write_variant):
    """Lay out builds whose files say ``text``."""

    def make(text, variants=(CPU,), version=1):
        directory = tmp_path / f"build-{text}-{'-'.join(variants)}-{version}"
        for name in variants:
            write_variant(
                directory,
                variant=name,
                backend=name.removeprefix("torch-"),
                files={"__init__.py": f"TEXT = {text!r}\n", "toy.so": text * 99, "empty.py": ""},
                unique=f"{len(text):07x}",
                version=version,
            )
        return directory

    return make


def test_a_plan_is_the_difference_of_two_trees():
    head = {"README.md": "r", "build/a/x": "1", "build/a/y": "2", "build/b/z": "3", "other/q": "4"}
    target = {"build/a/x": "1", "build/a/y": "5", "build/c/w": "6"}
    assert plan(head, target, whole=["build"]) == (
        Operation(path="build/a/y", content="5"),
        Operation(path="build/b/z", content=None),
        Operation(path="build/c/w", content="6"),
    )
    assert plan(target, target, whole=["build"]) == ()


def test_a_batch_holds_whole_variants_where_they_fit():
    def many(variant, count):
        return [Operation(path=f"build/{variant}/{n}", content="x") for n in range(count)]

    groups = batches([*many("a", 4), *many("b", 5), *many("c", 3), *many("d", 25)], most=10)
    assert [len(group) for group in groups] == [9, 3, 10, 10, 5]
    assert {o.path.split("/")[1] for o in groups[0]} == {"a", "b"}
    assert batches([]) == []
