# SPDX-License-Identifier: Apache-2.0
"""The scheduler of a farm dies in mid-build, or stops to answer and keeps its connections (A9).

The build ends with an error of its kind, and what was finished is in the store. A worker that dies is
another matter: ``tests/native/test_cluster.py``.
"""

import json
import signal
import threading
import time

import pytest
from support import projects
from support.clusters import Cluster, wait_for

from kernforge.build.cluster import client, network
from kernforge.build.cluster.network import FarmAccess
from kernforge.errors import NetworkError

pytest.importorskip("distributed")
CPU = "torch-stable-abi210-cpu-x86_64-linux"
# Some minutes of compiling, so that the scheduler dies in the midst of it.
SLOW = projects.CPP + "#include <regex>\ntemplate <int N> struct S { std::regex r; S<N - 1> s; };\n"
SLOW += "template <> struct S<0> {};\nvoid* slow() { return new S<400>(); }\n"
# A stopped one is given up after a while of silence, which is what takes long.
DEATHS = (
    pytest.param(signal.SIGKILL, id="killed"),
    pytest.param(signal.SIGSTOP, id="stopped"),
)


@pytest.fixture
def cluster(tmp_path, kept_home):
    found = Cluster(tmp_path / "cluster", kept_home / "store" / "toolchains")
    yield found
    found.close()


@pytest.fixture(params=DEATHS)
def death(request):
    return request.param


def test_the_limits_leave_an_end_within_half_a_minute():
    longest = client._GONE_S + client._LOOK_S + client._ANSWER_S
    assert longest + client._ANSWER_S < 30  # and to leave
    assert client._GONE_S > 3 * client._ANSWER_S  # one late answer is no death


@pytest.mark.native
def test_a_build_ends(kernforge_cli, cluster, tmp_path, death):
    root = projects.write(tmp_path / "project", cpp=f"{SLOW}// {time.time_ns()}\n")
    kernforge_cli("lock-toolchain", root)
    cluster.add("one")
    cluster.add("two")
    ended = []
    away = ("--scheduler", cluster.address, "--variant", CPU, "--json")

    def build():
        ended.append(kernforge_cli("build", root, *away, expect=10, home=tmp_path / "home"))
        ended.append(time.monotonic())

    thread = threading.Thread(target=build)
    thread.start()
    wait_for(
        lambda: list(cluster.root.glob("*/store/work/*/work/times_two.cpp")), "a worker to compile"
    )
    cluster.scheduler.send_signal(death)
    died = time.monotonic()
    thread.join(300)
    done, at = ended
    print(f"the build ended {at - died:.1f} s after the scheduler")  # noqa: T201
    document = json.loads(done.stdout)
    assert document["error"] == "NetworkError"
    assert "does not answer any more" in document["message"]
    assert "without --scheduler" in document["hint"]
    assert "Traceback" not in done.stderr, done.stderr[:600]


def test_tests_that_run_on_a_worker_end(cluster, death, tmp_path):
    cluster.add("one")
    cluster.wait_for_workers()
    workers = client.Workers(cluster.address, {}, FarmAccess())
    errors = []
    begun = tmp_path / "begun"
    begin = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(600)"

    def call():
        try:
            workers.call(exec, begin)
        except NetworkError as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    wait_for(begun.exists, "the worker to begin")
    cluster.scheduler.send_signal(death)
    thread.join(300)
    (error,) = errors
    assert "does not answer any more" in error.message
    workers.close()


def test_a_scheduler_that_is_stopped_before_it_says_anything(cluster):
    cluster.scheduler.send_signal(signal.SIGSTOP)
    with pytest.raises(NetworkError, match="no Dask scheduler answers"):
        client.connect(cluster.address, FarmAccess())


def test_a_busy_scheduler_is_not_dead(cluster):
    """It answers nothing for ten seconds, which is late and no more."""
    cluster.add("one")
    connected = client.connect(cluster.address, network.FarmAccess())
    dead = threading.Event()
    watch = client.SchedulerWatch(connected, dead.set)
    cluster.scheduler.send_signal(signal.SIGSTOP)
    assert not dead.wait(10)
    cluster.scheduler.send_signal(signal.SIGCONT)
    assert not dead.wait(client._GONE_S)
    watch.stop()
    connected.close()
