# SPDX-License-Identifier: Apache-2.0
"""The hub's Python client, unmodified, reads from a server."""

import hashlib

import pytest
from support.served import publish, served

from kernforge.registry.directory import DirectoryRegistry

huggingface_hub = pytest.importorskip("huggingface_hub")
from huggingface_hub import constants, errors  # noqa: E402

REPO = "acme/toy"
FILES = {
    "README.md": b"# toy\n",
    "build/torch-cpu/metadata.json": b"{}",
    "build/torch-cpu/toy.so": bytes(range(256)) * 10_000,
    "build/torch-cpu/empty.py": b"",
}
TOKEN = "hf_of_a_reader"  # noqa: S105


@pytest.fixture
def api(tmp_path, monkeypatch):
    """The client of a server with a token."""
    registry = DirectoryRegistry(tmp_path / "registry")
    publish(registry, REPO, FILES, "main", "v1", "v1.0.0", "team/dev")
    tokens = tmp_path / "tokens.toml"
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    tokens.write_text(f'[[token]]\nname = "alice"\nsha256 = "{digest}"\n')
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with served(registry.root, tmp_path / "log", "--trusted", "acme", "--tokens", tokens) as server:
        api = huggingface_hub.HfApi(endpoint=server.url, token=TOKEN)
        api.registry = registry
        yield api


def test_client_reads_all_that_a_server_has(api, tmp_path):
    commit = api.registry.ref(REPO, "v1")
    kernel = {"repo_id": REPO, "repo_type": "kernel"}
    refs = api.list_repo_refs(**kernel)
    assert {ref.name: ref.target_commit for ref in refs.branches}["v1"] == commit
    assert [ref.name for ref in refs.tags] == ["v1.0.0"]
    for revision in ("v1", "team/dev", "refs/heads/v1", commit, commit[:7]):
        assert api.repo_info(**kernel, revision=revision).sha == commit
    tree = api.list_repo_tree(**kernel, revision="v1", recursive=True)
    assert {item.path for item in tree if hasattr(item, "blob_id")} == set(FILES)
    folder = api.snapshot_download(**kernel, revision="v1", cache_dir=tmp_path / "cache")
    for path, data in FILES.items():
        file = tmp_path / "cache" / folder / path
        assert file.read_bytes() == data
        assert file.resolve().name == hashlib.sha256(data).hexdigest()
    assert api.get_organization_overview("acme").trustedKernelPublisher is True


def test_client_gets_the_exceptions_of_the_hub(api):
    kernel = {"repo_type": "kernel"}
    with pytest.raises(errors.RepositoryNotFoundError):
        api.list_repo_refs("acme/none", **kernel)
    with pytest.raises(errors.RepositoryNotFoundError):
        api.list_repo_refs(REPO, **kernel, token=False)
    with pytest.raises(errors.RevisionNotFoundError):
        api.repo_info(REPO, **kernel, revision="v9")
    with pytest.raises(errors.RemoteEntryNotFoundError):
        [*api.list_repo_tree(REPO, "none", **kernel)]
    with pytest.raises(errors.EntryNotFoundError):
        api.hf_hub_download(REPO, "none", **kernel)
    with pytest.raises(errors.HfHubHTTPError, match="404"):
        api.create_repo("acme/new", **kernel)
