# SPDX-License-Identifier: Apache-2.0
"""A build on real worker processes: the same bytes, and no harm when one of them dies."""

import contextlib
import hashlib
import json
import os
import signal
import sys
import threading
import time

import pytest
from support import processes, projects
from support.clusters import Cluster, wait_for

from kernforge.build.cluster import client
from kernforge.build.cluster.network import FarmAccess

pytestmark = pytest.mark.native
CPU = "torch-stable-abi210-cpu-x86_64-linux"
# Some seconds of compiling, so that a worker can be killed in the midst of it.
SLOW = projects.CPP + "#include <regex>\ntemplate <int N> struct S { std::regex r; S<N - 1> s; };\n"
SLOW += "template <> struct S<0> {};\nvoid* slow() { return new S<40>(); }\n"


@pytest.fixture
def project(kernforge_cli, tmp_path):
    """A project whose sources were never compiled before, locked, with the toolchain at hand."""
    root = projects.write(tmp_path / "project", cpp=f"{SLOW}// {time.time_ns()}\n")
    kernforge_cli("lock-toolchain", root)
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


def results(home):
    return {path.parent.name for path in (home / "store" / "actions").glob("??/*/*.o")}


@pytest.mark.road
@pytest.mark.parametrize("shared", [False, True], ids=["results come back", "shared store"])
def test_a_cluster_gives_the_bytes_of_a_local_build(
    kernforge_cli, cluster, project, tmp_path, shared
):
    for name in ("one", "two"):
        cluster.add(name, MEMORY=4 * 10**9)
    cluster.wait_for_workers()
    options = ["--shared-store", f"file://{tmp_path}/far"] if shared else []
    options += ["--no-check", "--variant", CPU, "--json"]
    away = ["--scheduler", cluster.address, "--build-dir", tmp_path / "away"]
    env = {"KERNFORGE_STORE_TRUST": "all-writers"}
    done = kernforge_cli("build", project, *away, *options, home=tmp_path / "home", env=env)
    document = json.loads(done.stdout)
    assert {one["where"] for one in document["actions"]["spent"]} == {"one", "two"}
    assert not (tmp_path / "home" / "store" / "toolchains").exists()  # no compiler was needed here
    kernforge_cli(
        "build", project, "--build-dir", tmp_path / "here", "--no-check", "--variant", CPU
    )
    assert digests(tmp_path / "away" / CPU) == digests(tmp_path / "here" / CPU)
    if shared:  # and what is in the shared store needs neither cluster nor compiler
        again = kernforge_cli("build", project, *options, home=tmp_path / "third", env=env)
        assert json.loads(again.stdout)["actions"]["ran"] == 0


def test_a_worker_that_dies_in_mid_build_is_replaced(kernforge_cli, cluster, project, tmp_path):
    for name in ("one", "two", "three"):
        cluster.add(name)
    cluster.wait_for_workers()
    ended = []
    away = ["--scheduler", cluster.address, "--build-dir", tmp_path / "away", "--variant", CPU]

    def build():
        ended.append(kernforge_cli("build", project, *away, "--json", home=tmp_path / "home"))

    thread = threading.Thread(target=build)
    thread.start()
    busy = []

    def compiling():
        found = cluster.root.glob("*/store/work/*/work/times_two.cpp")
        busy[:] = [p.relative_to(cluster.root).parts[0] for p in found if "tmp-" not in str(p)]
        return busy

    wait_for(compiling, "a worker to compile")
    time.sleep(0.3)
    cluster.kill(busy[0])
    thread.join(300)
    (done,) = ended
    (slow,) = [
        one
        for one in json.loads(done.stdout)["actions"]["spent"]
        if one["title"] == "times_two.cpp"
    ]
    assert slow["where"] != busy[0]
    kernforge_cli("build", project, "--build-dir", tmp_path / "here", "--variant", CPU)
    assert digests(tmp_path / "away" / CPU) == digests(tmp_path / "here" / CPU)


class Build:
    """A build on a cluster as a process, whose notes are read while it runs."""

    def __init__(self, cluster, project, place):
        self.cluster, self.log = cluster, place / "log.txt"
        argv = [sys.executable, "-m", "kernforge", "build", project, "--variant", CPU]
        argv += ["--scheduler", cluster.address, "--no-check"]
        env = {**os.environ, "KERNFORGE_HOME": str(place / "home")}
        with self.log.open("wb") as log:
            self.process = processes.start(argv, env=env, stdout=log, stderr=log)

    def wait_for_note(self, text):
        def said():
            found = text in self.log.read_text()
            assert found or self.process.poll() is None, self.log.read_text()
            return found

        wait_for(said, f"the build to say {text!r}")

    def wait_for_compiler(self, worker):
        def compiling():
            assert self.process.poll() is None, self.log.read_text()
            return any(self.cluster.home(worker).glob("store/work/*/work/times_two.cpp"))

        wait_for(compiling, f"{worker} to compile")

    def end(self):
        """The exit code, and all that was said."""
        return self.process.wait(300), self.log.read_text()


def test_a_farm_that_loses_its_last_worker_is_waited_for(cluster, project, tmp_path):
    cluster.add("one", MEMORY=4 * 10**9)
    build = Build(cluster, project, tmp_path)
    build.wait_for_compiler("one")
    cluster.kill("one")
    build.wait_for_note("has no worker left, and")
    assert f"kernforge farm worker --scheduler {cluster.address}" in build.log.read_text()
    cluster.add("plain")  # cannot know whether its memory is enough
    build.wait_for_note("has no worker that offers MEMORY=")
    cluster.add("two", MEMORY=4 * 10**9)
    build.wait_for_note("has a worker again: the build goes on")
    code, said = build.end()
    assert code == 0, said
    assert "times_two.cpp  on two" in said
    assert (project / "build" / CPU / "metadata.json").is_file()


def test_an_interrupt_ends_the_wait_for_a_worker(cluster, project, tmp_path):
    cluster.add("one")
    build = Build(cluster, project, tmp_path)
    build.wait_for_compiler("one")
    cluster.kill("one")
    build.wait_for_note("has no worker left, and")
    build.process.send_signal(signal.SIGINT)
    code, said = build.end()
    assert code == 130, said
    assert "finish the actions" not in said  # there is no worker
    assert "interrupted: " in said
    assert "Traceback" not in said


def test_workers_finish_what_an_interrupted_build_began(kernforge_cli, cluster, project, tmp_path):
    for number in range(20):  # more than the one thread of the worker does meanwhile
        (project / f"more{number}.cpp").write_text(f"{SLOW}// {number} {time.time_ns()}\n")
    manifest = project / "build.toml"
    names = ", ".join(f'"{path.name}"' for path in project.glob("*.cpp"))
    manifest.write_text(manifest.read_text().replace('"times_two.cpp"', names))
    options = ("--variant", CPU, "--dry-run", "--json")
    graph = json.loads(kernforge_cli("build", project, *options).stdout)
    keys = {one["title"]: one["key"] for one in graph["actions"] if one["title"].endswith(".cpp")}
    cluster.add("one")
    build = Build(cluster, project, tmp_path)
    store = cluster.home("one") / "store"

    def compiled():
        return {t for t, key in keys.items() if (store / "actions" / key[:2] / key).is_dir()}

    begun = set()

    def begins():
        begun.update(path.name for path in store.glob("work/*/work/*.cpp"))
        return begun & keys.keys()

    wait_for(begins, "the worker to compile")
    build.process.send_signal(signal.SIGINT)
    code, said = build.end()
    assert code == 130, said
    assert f"the workers of {cluster.address} finish the actions that they have begun" in said
    assert "interrupted: the programs that it had started on this machine were stopped" in said
    with contextlib.closing(client.connect(cluster.address, FarmAccess())) as connected:
        wait_for(lambda: not any(connected.processing().values()), "the scheduler to forget")
    wait_for(lambda: compiled() >= begun & keys.keys(), "the worker to finish")
    assert len(compiled()) < len(keys)


def test_an_error_on_a_worker_is_shown_as_the_compiler_wrote_it(kernforge_cli, cluster, tmp_path):
    cluster.add("one")
    root = projects.write(tmp_path / "project", cpp="int broken( {\n")
    away = ["--scheduler", cluster.address, "--variant", CPU]
    done = kernforge_cli("build", root, *away, expect=5, home=tmp_path / "home")
    assert "times_two.cpp:1:" in done.stderr
    assert "exit status 1 on one" in done.stderr


# A scheduler may be late, so the command waits ten seconds for one. Here none comes.
HASTY = "from kernforge.build.cluster import client; from kernforge.cli import main; client._CONNECT_S = 1; main.main()"


def test_without_a_scheduler_the_error_says_how_to_start_one(kernforge_cli, project):
    options = ("--scheduler", "tcp://127.0.0.1:9")
    done = kernforge_cli("build", project, *options, expect=10, program=("-c", HASTY))
    assert "kernforge farm scheduler" in done.stderr
