# SPDX-License-Identifier: Apache-2.0
"""Builds to publish, and the registries to publish to: a directory, and a hub on this machine."""

import pytest
from support.hub_server import WRITER

from kernforge.artifact.integrity import verify_tree
from kernforge.artifact.metadata import Metadata
from kernforge.registry.api import _server, open_registry

REPO = "owner/toy"


@pytest.fixture
def build(tmp_path, write_variant):
    """A function that makes a build directory whose variants hold a text."""
    made = iter(range(1000))

    def make(text="", variants=("torch-cpu",), **fields):
        directory = tmp_path / f"build{next(made)}"
        for variant in variants:
            files = {"__init__.py": f"TEXT = {text!r}\n", "sub/data.so": text * 99, "empty.py": ""}
            backend = variant.removeprefix("torch-")
            options = {"backend": backend, "unique": f"{len(text):07x}", **fields}
            write_variant(directory, variant=variant, files=files, **options)
        return directory

    return make


class Place:
    """A registry as a new process sees it, and what a reader finds there."""

    def __init__(self, location):
        self.location = location

    def open(self):
        _server.cache_clear()
        return open_registry(self.location)

    def refs(self):
        return tuple(self.open().refs(REPO))

    def texts(self, reference="v1"):
        """Variant to the text of its build, each whole and as built."""
        registry = self.open()
        commit = registry.ref(REPO, reference)
        found = {}
        for name in registry.variants(REPO, commit or ""):
            path = registry.fetch(REPO, commit, name)
            metadata = Metadata.from_json(registry.metadata(REPO, commit, name))
            verify_tree(path, metadata.digest, within=registry.link_root(REPO))
            found[name] = (path / "__init__.py").read_text().split("'")[1]
        return found


@pytest.fixture
def on_hub(usual_hub, monkeypatch):
    """A hub on this machine that may be written to."""
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_TOKEN", WRITER)
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    return usual_hub


@pytest.fixture
def hub_place(on_hub):
    return Place("hf://")


@pytest.fixture
def bucket_places(buckets):
    """A function that makes a place in a new bucket."""
    return lambda: Place(f"s3://{buckets.add()}/our/kernels")


@pytest.fixture
def bucket_place(bucket_places):
    return bucket_places()


@pytest.fixture
def oci_place(oci_registry):
    return Place(oci_registry())


@pytest.fixture(params=["directory", "hub", "bucket", "oci"])
def place(request, tmp_path):
    """Each kind of registry that can be written to."""
    if request.param == "directory":
        return Place(str(tmp_path / "registry"))
    return request.getfixturevalue(f"{request.param}_place")
