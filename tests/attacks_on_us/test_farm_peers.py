# SPDX-License-Identifier: Apache-2.0
"""Whoever reaches the farm's network connects to it, or poses as a part of it (A5).

A task is code: a peer that is let in runs programs on every machine. Real schedulers, workers and
builds; a peer without a certificate, with one of another authority, or without encryption is refused,
and a plain connection beyond this machine is not made.
"""

import contextlib
import datetime as dt
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import time

import psutil
import pytest
from support import processes, projects
from support.clusters import SRC, Cluster, free_port, wait_for

from kernforge.build.cluster import certificates, client, network
from kernforge.build.cluster.network import FarmAccess
from kernforge.errors import NetworkError, UsageError
from kernforge.system.environment import Environment

pytest.importorskip("distributed")
CPU = "torch-stable-abi210-cpu-x86_64-linux"
BEYOND = "192.0.2.7"  # an address for documentation, which no machine has


def environment(where, **more):
    return Environment({"KERNFORGE_FARM": str(where), **more})


def access(where, role="client"):
    return network.access(environment(where), role)


@pytest.fixture(scope="module")
def farms(tmp_path_factory):
    """Certificates of two farms."""
    place = tmp_path_factory.mktemp("certificates")
    for name in ("ours", "theirs"):
        certificates.init(place / name, days=30)
    return place / "ours", place / "theirs"


@pytest.fixture(scope="module")
def cluster(farms, tmp_path_factory, kept_home):
    """A scheduler and a worker that listen on every address of this machine."""
    place = tmp_path_factory.mktemp("farm") / "cluster"
    found = Cluster(place, kept_home / "store" / "toolchains", farm=farms[0])
    found.add("one")
    found.wait_for_workers()
    yield found
    found.close()


def start(*arguments, farm=None, **env):
    """Run ``kernforge farm``; to its end, with its exit code and what it wrote."""
    variables = {**os.environ, "PYTHONPATH": str(SRC), "KERNFORGE_FARM": str(farm), **env}
    argv = [sys.executable, "-m", "kernforge", "farm", *map(str, arguments)]
    return subprocess.run(
        argv, env=variables, capture_output=True, text=True, timeout=300, check=False
    )


# -- who is let in ---------------------------------------------------------------------------------


def test_a_farm_speaks_tls_without_being_asked(cluster, farms):
    assert cluster.address.startswith("tls://")
    ours = client.connect(cluster.address, access(farms[0]))
    (worker,) = client.offers(ours)
    assert worker.startswith("tls://")
    assert ours.submit(os.getpid).result(timeout=120) == cluster.workers["one"].pid
    ours.close()


def test_an_address_without_a_protocol_means_tls(cluster, farms):
    ours = client.connect(cluster.address.removeprefix("tls://"), access(farms[0]))
    ours.close()


def test_a_client_without_a_certificate_is_refused(cluster, tmp_path):
    with pytest.raises(UsageError, match="needs a certificate") as raised:
        client.connect(cluster.address, access(tmp_path / "nothing"))
    assert "kernforge farm init" in raised.value.hint


ATTACK = """
import asyncio, sys
from distributed import Client
from distributed.security import Security
seconds, address, ca, cert, key = int(sys.argv[1]), *sys.argv[2:]
names = {"tls_ca_file": ca, "tls_client_cert": cert, "tls_client_key": key}
security = Security(require_encryption=False, **{k: v for k, v in names.items() if v})
client = Client(address, timeout=seconds, security=security)
print("RAN AS", client.submit(__import__("os").getpid).result(timeout=seconds))
"""


def attack(address, *files, seconds=5):
    """A program of Dask alone, without kernforge: does a task of it run on the farm?"""
    argv = [sys.executable, "-c", ATTACK, str(seconds), address]
    argv += (*map(str, files), "", "", "")[:3]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    return "RAN AS" in done.stdout


def test_no_peer_but_ours_runs_a_task(cluster, farms):
    ours, theirs = farms

    def pair(where, role):
        return where / "ca.pem", where / f"{role}.pem", where / f"{role}.key"

    # The attack itself works.
    assert attack(cluster.address, *pair(ours, "client"), seconds=60)
    assert not attack(cluster.address, *pair(theirs, "client"))
    # A certificate of another authority that says it knows ours.
    assert not attack(cluster.address, ours / "ca.pem", *pair(theirs, "worker")[1:])
    assert not attack(cluster.address.replace("tls://", "tcp://"))
    with contextlib.closing(client.connect(cluster.address, access(ours))) as connected:
        worker = next(iter(client.offers(connected)))
    assert not attack(worker, *pair(theirs, "client"))


def test_a_scheduler_of_another_farm_gets_no_task(cluster, farms):
    with pytest.raises(NetworkError, match="no Dask scheduler answers") as raised:
        client.connect(cluster.address, access(farms[1]))
    assert "farm init" in raised.value.hint


def test_a_client_cannot_pose_as_a_scheduler(farms, tmp_path):
    """Its certificate is for clients: who stole it cannot collect the tasks of others."""
    evil = tmp_path / "evil"
    shutil.copytree(farms[0], evil)
    for end in ("pem", "key"):
        shutil.copy(evil / f"client.{end}", evil / f"scheduler.{end}")
    false = Cluster(tmp_path / "cluster", tmp_path, farm=evil)
    try:
        with pytest.raises(NetworkError):
            client.connect(false.address, access(farms[0]))
    finally:
        false.close()


def test_a_worker_of_another_farm_does_not_join(cluster, farms):
    argv, added = network.worker_command(
        access(farms[1], "worker"), cluster.address, more=("--death-timeout", "5", "--no-nanny")
    )
    with processes.start(
        argv, env={**os.environ, **added}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as worker:
        assert worker.wait(300) != 0
    ours = client.connect(cluster.address, access(farms[0]))
    assert len(client.offers(ours)) == 1
    ours.close()


def test_a_worker_of_ours_refuses_a_plain_scheduler(farms, tmp_path):
    """Also where Dask itself would connect: encryption is required in its process."""
    plain = Cluster(tmp_path / "cluster", tmp_path)
    argv, added = network.worker_command(
        access(farms[0], "worker"), "tls://127.0.0.1:1", more=("--death-timeout", "5", "--no-nanny")
    )
    argv = [plain.address if word == "tls://127.0.0.1:1" else word for word in argv]
    try:
        done = subprocess.run(
            argv,
            env={**os.environ, **added},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert "encryption required" in done.stderr
    finally:
        plain.close()


# -- what a farm shows -----------------------------------------------------------------------------


PAGES = ("/status", "/info/main/workers.html", "/json/identity.json", "/metrics", "/statics/")


def http_status(port, path):
    """What a browser gets."""
    with socket.create_connection(("127.0.0.1", port), 30) as peer:
        peer.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        return int(peer.recv(1 << 16).split(None, 2)[1])


def listens_at(root, port):
    """The addresses at which a process, or one that it started, listens at a port."""
    family = (psutil.Process(root), *psutil.Process(root).children(recursive=True))
    found = [each for process in family for each in process.net_connections("tcp")]
    return {e.laddr.ip for e in found if e.status == psutil.CONN_LISTEN and e.laddr.port == port}


def test_nobody_reads_of_a_farm_in_a_browser(cluster, farms):
    """Dask's pages of calls, logs and tasks ask for no certificate, without a dashboard too."""
    with contextlib.closing(client.connect(cluster.address, access(farms[0]))) as ours:
        info = ours.scheduler_info(n_workers=-1)
    (worker,) = info["workers"].values()
    for process, services in (
        (cluster.scheduler, info["services"]),
        (cluster.workers["one"], worker["services"]),
    ):
        port = services["dashboard"]
        assert listens_at(process.pid, port) == {"127.0.0.1"}
        assert http_status(port, "/health") == 200
        assert {page: http_status(port, page) for page in PAGES} == dict.fromkeys(PAGES, 404)


def test_a_dashboard_that_is_asked_for_is_dasks_own(farms):
    more = ("--dashboard-address", "127.0.0.1:8787")
    ours = access(farms[0], "scheduler")
    argv, added = network.scheduler_command(ours, host="", port=1, more=more)
    assert argv[-2:] == more
    assert "--no-dashboard" not in argv
    assert not any("ROUTES" in name for name in added)


# -- plain connections -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "private"),
    [
        ("tcp://127.0.0.1:8786", True),
        ("tcp://127.9.9.9:1", True),
        ("tcp://localhost:8786", True),
        ("tcp://[::1]:8786", True),
        ("tcp://[::ffff:127.0.0.1]:8786", True),
        ("tls://farm:8786", True),
        ("farm:8786", True),
        ("tcp://farm:8786", False),
        ("tcp://10.0.0.1:8786", False),
        ("tcp://0.0.0.0:8786", False),
        ("tcp://[::]:8786", False),
        ("tcp://[::ffff:10.0.0.1]:8786", False),
        ("tcp://localhost.evil.example:8786", False),
        ("tcp://127.0.0.1.evil.example:8786", False),
        ("tcp://localhost@10.0.0.1:8786", False),
        ("ws://10.0.0.1:8786", False),
        ("ucx://10.0.0.1:8786", False),
        ("TCP://10.0.0.1:8786", False),
        ("tcp://", False),
    ],
)
def test_what_leaves_this_machine_unencrypted(address, private):
    assert network.is_private(address) == private


@pytest.mark.parametrize("command", ["build", "test"])
def test_a_client_refuses_a_plain_scheduler_elsewhere(kernforge_cli, tmp_path, command):
    root = projects.write(tmp_path / "project")
    done = kernforge_cli(command, root, "--scheduler", f"tcp://{BEYOND}:8786", expect=2)
    assert "is a plain connection" in done.stderr
    assert "--trusted-network" in done.stderr
    assert "farm init" in done.stderr


def test_a_scheduler_refuses_to_listen_elsewhere_without_tls(tmp_path):
    for host in ((), ("--host", "0.0.0.0"), ("--host", BEYOND)):  # noqa: S104 - that is the attack
        done = start("scheduler", *host, farm=tmp_path / "nothing")
        assert done.returncode == 2
        assert "is a plain connection" in done.stderr


def test_a_worker_refuses_a_plain_scheduler_elsewhere(tmp_path, farms):
    for farm in (tmp_path / "nothing", farms[0]):
        done = start("worker", "--scheduler", f"tcp://{BEYOND}:8786", farm=farm)
        assert done.returncode == 2
        assert "is a plain connection" in done.stderr


def address_of_this_machine():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no network")
        return probe.getsockname()[0]


@pytest.fixture
def open_scheduler(tmp_path):
    """A plain scheduler that listens everywhere, as `dask scheduler` does."""
    host = address_of_this_machine()
    if host.startswith("127."):
        pytest.skip("this machine has no network")
    port = free_port()
    argv = [sys.executable, "-m", "dask", "scheduler", "--port", str(port), "--no-dashboard"]
    with processes.start(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path
    ) as scheduler:

        def listens():
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_for(listens, "the scheduler")
        yield host, port
        scheduler.kill()


def test_a_tunnel_to_an_open_farm_is_refused(open_scheduler, tmp_path):
    """The address is of this machine, and the scheduler behind it talks to its workers in plain."""
    host, port = open_scheduler
    nobody = access(tmp_path)
    for address in (f"tcp://127.0.0.1:{port}", f"tcp://{host}:{port}"):
        with pytest.raises(UsageError, match="is a plain connection"):
            client.connect(address, nobody)
        trusting = client.connect(address, FarmAccess(trusted=True))  # said so
        trusting.close()


def test_an_open_worker_refuses_tasks(open_scheduler, tmp_path):
    """Somebody started it with `dask worker` on an open network: it does no work of kernforge."""
    host, port = open_scheduler
    address = f"tcp://{host}:{port}"

    def refusal():  # sent by value, as it is defined here
        from kernforge.build.cluster import network  # noqa: PLC0415 - on the worker
        from kernforge.errors import UsageError  # noqa: PLC0415
        from kernforge.system.environment import Environment  # noqa: PLC0415

        try:
            network.require_private_worker(Environment.read())
        except UsageError as error:
            return error.message
        return ""

    def result(**trust):
        env = {**os.environ, "PYTHONPATH": str(SRC), **trust}
        argv = [sys.executable, "-m", "dask", "worker", address, "--no-nanny", "--no-dashboard"]
        with processes.start(
            argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path
        ) as worker:
            trusting = client.connect(address, FarmAccess(trusted=True))
            try:
                trusting.wait_for_workers(1, timeout=300)
                return trusting.submit(refusal).result(timeout=120)
            finally:
                trusting.close()
                worker.kill()

    assert "is a plain connection" in result()
    assert result(KERNFORGE_FARM_TRUST="network") == ""


def test_the_variable_has_one_value(tmp_path):
    with pytest.raises(UsageError, match="KERNFORGE_FARM_TRUST is 'yes'"):
        network.access(environment(tmp_path, KERNFORGE_FARM_TRUST="yes"), "client")
    assert network.access(environment(tmp_path, KERNFORGE_FARM_TRUST="network"), "client").trusted


# -- the certificates ------------------------------------------------------------------------------


def test_init_makes_files_that_only_their_owner_reads(tmp_path):
    where = tmp_path / "farm"
    done = start("init", "--dir", where, "--json")
    document = json.loads(done.stdout)
    assert {p.name for p in where.iterdir()} == {
        f"{name}.{end}" for name in ("ca", *certificates.ROLES) for end in ("pem", "key")
    }
    assert {stat.S_IMODE(p.stat().st_mode) for p in where.iterdir()} == {0o600}
    assert stat.S_IMODE(where.stat().st_mode) == 0o700
    left = dt.date.fromisoformat(document["expires"]) - dt.date.today()  # noqa: DTZ011
    assert 363 <= left.days <= 366
    assert document["copy"]["worker"] == ["ca.pem", "worker.pem", "worker.key"]
    assert start("init", "--dir", where).returncode == 2
    before = (where / "client.pem").read_bytes()
    assert start("init", "--dir", where, "--renew").returncode == 0
    assert (where / "client.pem").read_bytes() != before


def test_an_expired_certificate_is_named(tmp_path):
    where = tmp_path / "farm"
    certificates.init(where, days=1)
    real = certificates._now
    try:
        certificates._now = lambda: real() - dt.timedelta(days=9)
        certificates.renew(where, days=7)
    finally:
        certificates._now = real
    with pytest.raises(UsageError, match=r"client.pem expired on") as raised:
        access(where)
    assert "--renew" in raised.value.hint
    certificates.renew(where, days=7)
    assert access(where).pair


def test_a_missing_or_damaged_file_is_named(tmp_path):
    where = tmp_path / "farm"
    certificates.init(where, days=1)
    (where / "worker.pem").write_text("rubbish")
    with pytest.raises(UsageError, match=r"worker.pem is not a certificate"):
        access(where, "worker")
    (where / "client.key").unlink()
    with pytest.raises(UsageError, match=r"client.key is missing"):
        access(where)
    (where / "ca.key").unlink()
    with pytest.raises(UsageError, match=r"ca.key is missing: only who has it"):
        certificates.renew(where, days=1)


def test_renewed_certificates_work_beside_old_ones(cluster, farms, tmp_path):
    """One machine after the other: both are of one authority."""
    renewed = tmp_path / "renewed"
    shutil.copytree(farms[0], renewed)
    certificates.renew(renewed, days=5)
    ours = client.connect(cluster.address, access(renewed))
    ours.close()


# -- a build ---------------------------------------------------------------------------------------


@pytest.mark.native
def test_a_build_over_tls(kernforge_cli, cluster, farms, tmp_path):
    root = projects.write(tmp_path / "project", cpp=f"{projects.CPP}// {time.time_ns()}\n")
    away = ("--scheduler", cluster.address, "--variant", CPU, "--no-check", "--json")
    env = {"KERNFORGE_FARM": str(farms[0])}
    done = kernforge_cli("build", root, *away, home=tmp_path / "home", env=env)
    document = json.loads(done.stdout)
    assert {one["where"] for one in document["actions"]["spent"]} == {"one"}
    nobody = {"KERNFORGE_FARM": str(tmp_path / "nothing")}
    done = kernforge_cli("build", root, *away, home=tmp_path / "home", env=nobody, expect=2)
    assert "needs a certificate" in done.stderr
    other = {"KERNFORGE_FARM": str(farms[1])}
    done = kernforge_cli("build", root, *away, home=tmp_path / "home", env=other, expect=10)
    assert "no Dask scheduler answers" in done.stderr
