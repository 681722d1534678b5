# SPDX-License-Identifier: Apache-2.0

from threading import Event

import pytest
from support.hub_server import READER

from kernforge.errors import NotPublishedError, RegistryError
from kernforge.registry.hub_client import HubClient
from kernforge.registry.hub_endpoint import HubEndpoint

pytest.importorskip("huggingface_hub")

REPO = "owner/toy"
LIBRARY = bytes(range(256)) * 4000


@pytest.fixture
def commit(hub):
    return hub.add(REPO, "v1", {"toy.so": LIBRARY})


@pytest.fixture
def client(hub, tmp_path):
    """A client of the hub, with or without the user's token."""

    def make_client(*, own_token: bool = False) -> HubClient:
        endpoint = HubEndpoint(url=hub.url, cache=tmp_path, offline=False, own_token=own_token)
        return HubClient(endpoint, wait=lambda _seconds: None)

    return make_client


def test_a_download_that_was_interrupted_is_continued(hub, client, commit, tmp_path):
    hub.fault("/cdn/", "cut", 2)
    counts = []
    file = client().files(REPO, commit)["toy.so"]
    target = tmp_path / "file"
    target.touch()
    client().download(
        REPO, commit, "toy.so", file, target=target, advance=counts.append, ended=Event()
    )
    assert target.read_bytes() == LIBRARY
    assert sum(counts) == len(LIBRARY), "no byte came twice"


def test_private_gated_and_absent_kernels_are_distinguished(
    hub, client, commit, monkeypatch, tmp_path
):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "absent"))
    with pytest.raises(NotPublishedError, match="has no kernel 'owner/none'"):
        client().refs("owner/none")
    hub.repos[REPO].private = True
    with pytest.raises(NotPublishedError, match="or it is private: set HF_TOKEN"):
        client(own_token=True).refs(REPO)
    monkeypatch.setenv("HF_TOKEN", READER)
    assert client(own_token=True).refs(REPO)["v1"] == commit
    hub.repos[REPO].private, hub.repos[REPO].gated = False, True
    assert client(own_token=True).refs(REPO)["v1"] == commit
    hub.tokens.clear()
    with pytest.raises(RegistryError, match="gated by its owner"):
        client().refs(REPO)
    assert set(hub.tokens) == {""}, "the token is another hub's"


def test_a_hub_says_which_publishers_it_trusts(hub, client):
    hub.publishers.add("famous")
    hub.organizations.add("small")
    trusted = {owner: client().trusts(owner) for owner in ("famous", "small", "a-user")}
    assert trusted == {"famous": True, "small": False, "a-user": False}
