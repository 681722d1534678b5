# SPDX-License-Identifier: Apache-2.0
"""Publication to a bucket: races, interruptions, kills, and what an upload discards."""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernforge.errors import KernforgeError, RegistryError, UsageError
from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry
from kernforge.system import http

REPO, ROOT = "owner/toy", "kernels--owner--toy"
CPU, CUDA = "torch-cpu", "torch-cuda"
KILLS = int(os.environ.get("KERNFORGE_TEST_KILLS", "8"))


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(http, "_WAITS_S", (0.0, 0.0, 0.0))


@pytest.fixture
def place(bucket_place):
    return bucket_place


def at_write_of(ending, action):
    """A hook that acts once, at the first write of such an object."""
    todo = [action]

    def hook(_number, request):
        if request.startswith("PUT") and request.endswith(ending) and todo:
            return todo.pop()()
        return None

    return hook


# -- several publishers ----------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["theirs", "ours"])
def test_one_of_two_publishers_of_a_version_wins(place, build, buckets, text):
    theirs, ours = build(text), build("ours")
    won = []

    def meanwhile():
        won.append(publish(theirs, place.open(), REPO, "1.0.0"))

    buckets.before = at_write_of("refs/v1.0.0", meanwhile)
    if text == "ours":
        assert publish(ours, place.open(), REPO, "1.0.0").commit == won[0].commit
    else:
        with pytest.raises(RegistryError, match=r"1\.0\.0 is published, and these variants differ"):
            publish(ours, place.open(), REPO, "1.0.0")
    assert won[0].status == "uploaded"
    assert place.texts() == {CPU: text}
    assert place.refs() == ("main", "v1", "v1.0.0")


@pytest.mark.parametrize("moment", ["refs/v1.0.1", "refs.json"])
def test_both_of_two_publishers_are_in_the_references(place, build, buckets, moment):
    first, mine, other = build("first"), build("mine"), build("other")
    publish(first, place.open(), REPO)

    def meanwhile():
        publish(other, place.open(), REPO)

    buckets.before = at_write_of(moment, meanwhile)
    result = publish(mine, place.open(), REPO)
    assert place.refs() == ("main", "v1", "v1.0.0", "v1.0.1", "v1.0.2")
    assert place.texts(f"v{result.version}") == {CPU: "mine"}
    assert place.texts("v1.0.1")[CPU] != place.texts("v1.0.2")[CPU]
    assert place.texts() == place.texts("v1.0.2")


def test_versions_published_at_once_are_all_there(place, build):
    builds = [build(text) for text in "abcd"]
    registries = [place.open() for _ in builds]
    with ThreadPoolExecutor(len(builds)) as pool:
        made = list(pool.map(lambda b, r: publish(b, r, REPO), builds, registries))
    assert {result.version for result in made} == {"1.0.0", "1.0.1", "1.0.2", "1.0.3"}
    for result, text in zip(made, "abcd", strict=True):
        assert place.texts(f"v{result.version}") == {CPU: text}


# -- interruptions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["new", "newer"])
def test_the_next_publication_finishes_a_claimed_version(place, build, buckets, text):
    old, new, following = build("old"), build("new"), build(text)
    publish(old, place.open(), REPO)
    buckets.before = lambda _n, request: 403 if request == f"PUT /{path}/refs.json" else None
    path = f"{place.location.removeprefix('s3://')}/{ROOT}"
    with pytest.raises(RegistryError, match="HTTP 403"):
        publish(new, place.open(), REPO)
    assert (place.refs(), place.texts()) == (("main", "v1", "v1.0.0"), {CPU: "old"})
    buckets.before = lambda _n, _request: None
    result = publish(following, place.open(), REPO)
    assert (result.version, result.status) == ("1.0.1" if text == "new" else "1.0.2", "uploaded")
    assert place.texts("v1.0.1") == {CPU: "new"}
    assert place.texts() == {CPU: text}


CHILD = """
import pathlib, sys
from kernforge.publish.api import publish
from kernforge.registry.api import open_registry

publish(pathlib.Path(sys.argv[1]), open_registry(sys.argv[2]), "owner/toy")
"""


class Killed:
    """A publication in a process of its own, which the server kills at one of its requests."""

    def __init__(self, build, place, buckets, deadly, *, answered):
        self._started, self._deadly = threading.Event(), deadly
        hook = "after" if answered else "before"
        setattr(buckets, hook, self._count)
        buckets.requests.clear()
        argv = [sys.executable, "-c", CHILD, str(build), place.location]
        self._process = subprocess.Popen(argv)
        self._started.set()
        self.status = self._process.wait(300)
        setattr(buckets, hook, lambda _number, _request: None)
        self.requests = len(buckets.requests)

    def _count(self, number, _request):
        self._started.wait()
        if self._deadly and number >= self._deadly:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(300)
            return 503
        return None


def test_a_kill_at_any_request_leaves_a_whole_version(bucket_places, buckets, build):
    old, new = build("old", (CPU, CUDA)), build("new", (CPU, CUDA))

    def killed(deadly, *, answered=False):
        place = bucket_places()
        publish(old, place.open(), REPO)
        child = Killed(new, place, buckets, deadly, answered=answered)
        assert child.status == (-signal.SIGKILL if deadly else 0)
        (text,) = set(place.texts().values())
        assert set(place.texts("v1.0.0").values()) == {"old"}
        assert place.refs() == ("main", "v1", "v1.0.0", *(["v1.0.1"] if text == "new" else []))
        assert publish(new, place.open(), REPO).version == "1.0.1"
        assert place.refs() == ("main", "v1", "v1.0.0", "v1.0.1")
        assert place.texts() == {CPU: "new", CUDA: "new"}
        return text, child.requests

    _, requests = killed(0)
    assert requests > 15
    draw = random.Random(KILLS)
    moments = [1, requests, *draw.choices(range(2, requests), k=KILLS - 2)]
    left = {killed(moment, answered=draw.random() < 0.5)[0] for moment in moments}
    assert "old" in left
    assert killed(requests, answered=True)[0] == "new"


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1_000, 12_000_000])
def test_a_file_that_changes_meanwhile_is_not_published(place, build, buckets, size):
    directory = build("a" * (size // 99))
    file = directory / CPU / "sub/data.so"

    def change(number, _request):  # the hashes are known before the first request
        if number == 1:
            file.write_text("b" * file.stat().st_size)

    buckets.requests.clear()
    buckets.before = change
    with pytest.raises(RegistryError, match=r"data\.so changed while it was published"):
        publish(directory, place.open(), REPO)
    buckets.before = lambda _number, _request: None
    with pytest.raises(KernforgeError):
        place.refs()


def test_a_large_file_is_uploaded_in_parts(place, build, buckets):
    publish(build("x" * 200_000), place.open(), REPO)
    writes = [request for request in buckets.requests if request.startswith("PUT")]
    assert len(writes) > len(set(writes)) == 8
    assert place.texts() == {CPU: "x" * 200_000}
    buckets.requests.clear()
    publish(build("x" * 200_000), place.open(), REPO, branch="dev")
    again = [r.rpartition("/")[2] for r in buckets.requests if r.startswith("PUT")]
    assert [name[-5:] for name in again] == [".json", ".json"]


def test_a_copied_directory_is_a_registry_in_a_bucket(place, build, buckets, tmp_path):
    registry = DirectoryRegistry(tmp_path / "registry")
    publish(build("a"), registry, REPO)
    shutil.copytree(registry.root, tmp_path / "copy")  # it follows links
    for file in (tmp_path / "copy").rglob("*"):
        if file.is_file():
            name = file.relative_to(tmp_path / "copy").as_posix()
            buckets.write(f"{place.location.removeprefix('s3://')}/{name}", file.read_bytes())
    assert place.texts() == {CPU: "a"}
    assert publish(build("b"), place.open(), REPO).version == "1.0.1"
    assert place.texts() == {CPU: "b"}
    assert place.texts("v1.0.0") == {CPU: "a"}


def test_branches_and_privacy_are_as_in_a_directory(place, build):
    with pytest.raises(UsageError, match="'main' cannot be a branch without versions"):
        publish(build("a"), place.open(), REPO, branch="main")
    with pytest.raises(UsageError, match="no private kernels"):
        publish(build("a"), place.open(), REPO, private=True)
