# SPDX-License-Identifier: Apache-2.0
"""Publication to a hub: rights, cards, races and interruptions."""

import copy
import os

import pytest
from support.hub_server import READER, WRITER
from support.variants import contents

from kernforge.errors import KernforgeError, NetworkError, RegistryError
from kernforge.publish.api import publish

REPO = "owner/toy"
CPU, CUDA = "torch-cpu", "torch-cuda"
WRITES = {"POST", "PUT", "DELETE"}
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


def test_large_files_are_uploaded_as_such(hub, hub_place, build):
    result = publish(build("a"), hub_place.open(), REPO)
    assert result.url == f"{hub.url}/kernels/{REPO}/tree/v1.0.0"
    assert hub.repos[REPO].commits[result.commit][f"build/{CPU}/sub/data.so"].large
    assert not hub.repos[REPO].private


def test_a_foreign_branch_counts_as_a_version(hub, hub_place, build):
    theirs = contents(build("theirs", (CPU, CUDA)))
    hub.add(REPO, "v1", {**theirs, "benchmarks/other.py": b"1"})
    result = publish(build("ours", (CPU, CUDA)), hub_place.open(), REPO)
    assert result.version == "1.0.1"
    assert hub_place.texts() == {CPU: "ours", CUDA: "ours"}
    assert hub.files(REPO, "v1")["benchmarks/other.py"] == b"1"


def test_a_new_branch_does_not_inherit_the_variants_of_main(hub, hub_place, build):
    publish(build("a", (CPU, CUDA)), hub_place.open(), REPO, branch="main")
    publish(build("b", (CPU,)), hub_place.open(), REPO, branch="dev")
    assert hub_place.texts("dev") == {CPU: "b"}
    assert sorted(hub.repos[REPO].branches) == ["dev", "main"]


def test_a_private_kernel_stays_private(hub, hub_place, build):
    publish(build("a"), hub_place.open(), REPO, private=True)
    assert hub.repos[REPO].private
    publish(build("a"), hub_place.open(), "owner/public")
    with pytest.raises(RegistryError, match="and is public"):
        publish(build("b"), hub_place.open(), "owner/public", private=True)


def test_missing_rights_are_named(hub, hub_place, build, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", os.devnull)
    hub.forbidden.add("forbidden")
    for token, owner, words in (
        ("", "owner", "HTTP 401"),
        (READER, "owner", "HTTP 403"),
        (WRITER, "forbidden", "rights"),
    ):
        monkeypatch.setenv("HF_TOKEN", token)
        with pytest.raises(RegistryError, match=words):
            publish(build("a"), hub_place.open(), f"{owner}/toy")


def test_offline_nothing_is_published(hub_place, build, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(NetworkError, match="HF_HUB_OFFLINE"):
        publish(build("a"), hub_place.open(), REPO)


def test_a_retried_commit_is_made_once(hub, hub_place, build):
    publish(build("a"), hub_place.open(), REPO)
    before = len(hub.repos[REPO].commits)
    hub.fault("POST .*/commit/", "cut")
    result = publish(build("b"), hub_place.open(), REPO)
    assert (result.version, hub_place.texts()) == ("1.0.1", {CPU: "b"})
    assert len(hub.repos[REPO].commits) == before + 1


def test_concurrent_publishers_make_versions(hub, hub_place, build):
    publish(build("a"), hub_place.open(), REPO)
    others = iter(["b", "c"])

    def meanwhile(_repo_id, _branch):
        text = next(others, None)
        if text:
            hub.lock.release()  # the other publisher is served by another thread
            try:
                publish(build(text), hub_place.open(), REPO)
            finally:
                hub.lock.acquire()

    hub.on_commit = meanwhile
    publish(build("d"), hub_place.open(), REPO)
    tags = hub.repos[REPO].tags
    assert sorted(tags) == ["v1.0.0", "v1.0.1", "v1.0.2", "v1.0.3"]
    assert tags["v1.0.3"] == hub.repos[REPO].branches["v1"]
    assert sorted(hub_place.texts(tag)[CPU] for tag in tags) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("served", [False, True])
def test_an_interrupted_publication_is_finished_by_the_next(hub, hub_place, build, served):
    """Each request that changes something is once the first that the hub does not answer."""
    old, new = build("a"), build("b")
    publish(old, hub_place.open(), REPO, card="# toy")
    before, objects = copy.deepcopy(hub.repos[REPO]), dict(hub.objects)
    start = len(hub.requests)
    publish(new, hub_place.open(), REPO, card="# toy")
    writes = sum(line[0] in WRITES for line in hub.requests[start:])
    assert writes >= 4
    answer = hub.next_fault
    for first in range(writes):
        hub.repos[REPO], hub.objects = copy.deepcopy(before), dict(objects)
        left = [first]

        def deadly(line, left=left):
            if line.split()[0] in WRITES:
                left[0] -= 1
            if left[0] >= 0:
                return None
            return "cut" if served and left[0] == -1 else 503

        hub.next_fault = deadly
        with pytest.raises(KernforgeError):
            publish(new, hub_place.open(), REPO, card="# toy")
        hub.next_fault = answer
        assert hub_place.texts() in ({CPU: "a"}, {CPU: "b"})
        publish(new, hub_place.open(), REPO, card="# toy")
        assert (hub_place.texts(), hub_place.texts("v1.0.0")) == ({CPU: "b"}, {CPU: "a"})
        assert sorted(hub.repos[REPO].tags) == ["v1.0.0", "v1.0.1"]
        assert sorted(hub.repos[REPO].branches) == ["main", "v1"]


def test_a_generated_card_never_replaces_an_authors(hub, hub_place, build):
    generated = "# toy {}\n\n<!-- This card was generated by kernforge. -->\n".format
    publish(build("a"), hub_place.open(), REPO, card=generated)
    assert hub.files(REPO, "main")["README.md"].startswith(b"# toy ('torch-cpu',)")
    publish(build("a"), hub_place.open(), REPO, card="# by hand\n")
    publish(build("b"), hub_place.open(), REPO, card=generated)
    assert hub.files(REPO, "main")["README.md"] == b"# by hand\n"
