# SPDX-License-Identifier: Apache-2.0
"""A build on real worker processes: the same bytes, and no harm when one of them dies."""

import hashlib
import json
import threading
import time

import pytest
from support import projects
from support.clusters import Cluster, wait_for

pytest.importorskip("distributed")

pytestmark = pytest.mark.native
CPU = "torch-stable-abi210-cpu-x86_64-linux"
# Some seconds of compiling, so that a worker can be killed in the midst of it.
SLOW = projects.CPP + "#include <regex>\ntemplate <int N> struct S { std::regex r; S<N - 1> s; };\n"
SLOW += "template <> struct S<0> {};\nvoid* slow() { return new S<40>(); }\n"


@pytest.fixture
def project(kernforge_cli, tmp_path):
    """A project whose sources were never compiled before, locked, with the toolchain at hand."""
    root = projects.write(tmp_path / "project", cpp=f"{SLOW}// {time.time_ns()}\n")
    kernforge_cli("lock", root)
    kernforge_cli("build", projects.write(tmp_path / "other"))
    return root


@pytest.fixture
def cluster(tmp_path, kept_home):
    found = Cluster(tmp_path / "cluster", kept_home / "store" / "toolchains")
    yield found
    found.close()


def digests(variant):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(variant.rglob("*"))
        if path.is_file()
    }


@pytest.mark.road
@pytest.mark.parametrize("shared", [False, True], ids=["results come back", "shared store"])
def test_a_farm_gives_the_bytes_of_a_local_build(kernforge_cli, cluster, project, tmp_path, shared):
    cluster.add("one")
    options = ["--no-check", "--variant", CPU, "--json"]
    away = ["--scheduler", cluster.address, "--build-dir", tmp_path / "away"]
    env = {"KERNFORGE_STORE_TRUST": "all-writers"}
    env |= {"KERNFORGE_SHARED_STORE": f"file://{tmp_path}/far"} if shared else {}
    done = kernforge_cli("build", project, *away, *options, home=tmp_path / "home", env=env)
    document = json.loads(done.stdout)
    assert {one["where"] for one in document["actions"]["spent"]} == {"one"}
    assert not (tmp_path / "home" / "store" / "toolchains").exists()  # no compiler was needed here
    kernforge_cli(
        "build", project, "--build-dir", tmp_path / "here", "--no-check", "--variant", CPU
    )
    assert digests(tmp_path / "away" / CPU) == digests(tmp_path / "here" / CPU)
    if shared:  # and what is in the shared store needs neither farm nor compiler
        again = kernforge_cli("build", project, *options, home=tmp_path / "third", env=env)
        assert json.loads(again.stdout)["actions"]["ran"] == 0


def test_a_worker_that_dies_costs_a_retry(kernforge_cli, cluster, project, tmp_path):
    for name in ("one", "two"):
        cluster.add(name)
    ended = []
    away = ["--scheduler", cluster.address, "--variant", CPU, "--no-check", "--json"]

    def build():
        ended.append(kernforge_cli("build", project, *away, home=tmp_path / "home"))

    thread = threading.Thread(target=build)
    thread.start()
    busy = []

    def compiling():
        found = cluster.root.glob("*/store/work/*/work/times_two.cpp")
        busy[:] = [p.relative_to(cluster.root).parts[0] for p in found if "tmp-" not in str(p)]
        return busy

    wait_for(compiling, "a worker to compile")
    cluster.kill(busy[0])
    thread.join(300)
    (done,) = ended
    spent = {one["title"]: one["where"] for one in json.loads(done.stdout)["actions"]["spent"]}
    assert spent["times_two.cpp"] != busy[0]
    assert (project / "build" / CPU / "metadata.json").is_file()


def test_a_compiler_error_on_a_worker_is_shown(kernforge_cli, cluster, tmp_path):
    cluster.add("one")
    root = projects.write(tmp_path / "project", cpp="int broken( {\n")
    away = ["--scheduler", cluster.address, "--variant", CPU]
    done = kernforge_cli("build", root, *away, expect=5, home=tmp_path / "home")
    assert "times_two.cpp:1:" in done.stderr
    assert "exit status 1 on one" in done.stderr
