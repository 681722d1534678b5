# SPDX-License-Identifier: Apache-2.0
"""Publication to an OCI registry: tokens, races, kills."""

import random
import signal
import subprocess
import sys

from kernforge.artifact.metadata import SIGNATURE
from kernforge.publish.api import publish
from kernforge.publish.mirror import mirror
from kernforge.publish.oci import _Upload
from kernforge.registry.directory import DirectoryRegistry

REPO = "owner/toy"
CPU, CUDA = "torch-cpu", "torch-cuda"


def test_mirror_keeps_bytes_and_signatures(oci_place, registry, tmp_path, build):
    directory = build("a", (CPU, CUDA))
    (directory / CPU / SIGNATURE).write_bytes(b'{"a": "bundle"}')
    publish(directory, registry, REPO, card="# toy")
    back = DirectoryRegistry(tmp_path / "back")
    for source, target in ((registry, oci_place.open()), (oci_place.open(), back)):
        assert [each.reference for each in mirror(source, target, REPO)] == ["v1.0.0"]
    tree = registry.tree(REPO, registry.ref(REPO, "v1"))
    assert len(tree) == 10
    assert back.tree(REPO, back.ref(REPO, "v1")) == tree
    assert back.ref(REPO, "main") == oci_place.open().ref(REPO, "main")


def test_overwritten_version_is_published_again(oci_place, build, monkeypatch):
    """Another publisher looked for the tag before it was there, and writes it afterwards."""
    other = publish(build("b"), oci_place.open(), REPO, branch="other").commit
    publish(build("a"), oci_place.open(), REPO)
    put, late = _Upload.put, iter(["v1.0.1"])

    def overwritten(self, reference, data, kind, **options):
        answer = put(self, reference, data, kind, **options)
        if reference == "v1.0.1":
            for tag in late:
                put(self, tag, self._oci.manifest(REPO, other), kind)
        return answer

    monkeypatch.setattr(_Upload, "put", overwritten)
    assert publish(build("c"), oci_place.open(), REPO).version == "1.0.2"
    texts = [oci_place.texts(f"v1.0.{patch}")[CPU] for patch in range(3)]
    assert (texts, oci_place.texts("main")) == (["a", "b", "c"], {CPU: "c"})


CHILD = """
import os, pathlib, signal, sys

seen = 0


def count(event, args):
    global seen
    if event == "http.client.send":
        seen += 1
        if seen == int(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGKILL)


sys.addaudithook(count)

from kernforge.publish.api import publish
from kernforge.registry import open_registry

publish(pathlib.Path(sys.argv[2]), open_registry(sys.argv[3]), "owner/toy", card="# toy")
print(seen)
"""


def child(build, place, deadly=0):
    """Publish in a process that is killed when it sends for the nth time."""
    argv = [sys.executable, "-c", CHILD, *map(str, (deadly, build, place.location))]
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False, timeout=300)


def test_a_kill_leaves_a_whole_version(oci_place, build):
    old, new = build("old", (CPU, CUDA)), build("new", (CPU, CUDA))
    whole = type(oci_place)(f"{oci_place.location}/whole")
    publish(old, whole.open(), REPO)
    steps = int(child(new, whole).stdout)
    assert steps > 40
    left = set()
    for moment in {*random.Random(5).sample(range(1, steps), 5), steps}:
        place = type(oci_place)(f"{oci_place.location}/killed{moment}")
        publish(old, place.open(), REPO)
        assert child(new, place, moment).returncode == -signal.SIGKILL
        for tag in place.refs():
            (text,) = set(place.texts(tag).values())
            left.add(text)
        assert publish(new, place.open(), REPO, card="# toy").version == "1.0.1"
        assert place.texts() == place.texts("main") == {CPU: "new", CUDA: "new"}
        assert place.texts("v1.0.0") == {CPU: "old", CUDA: "old"}
    assert left == {"old", "new"}
