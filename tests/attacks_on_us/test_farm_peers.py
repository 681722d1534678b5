# SPDX-License-Identifier: Apache-2.0
"""A farm is sent code: plain connections beyond this machine are refused, TLS is used."""

import json

import pytest
from support import projects
from support.clusters import Cluster

from kernforge.builder import farm
from kernforge.errors import UsageError

pytest.importorskip("distributed")
CPU = "torch-stable-abi210-cpu-x86_64-linux"
FARM = (
    "tls://farm:8786",
    "tls://10.0.0.5:8786",
    "tcp://127.0.0.1:1",
    "tcp://[::1]:1",
    "inproc://x",
)
STRANGE = ("tcp://farm:8786", "tcp://10.0.0.5:8786", "ws://farm:80", "tcp://0.0.0.0:1", "ucx://a:1")


def test_only_tls_leaves_the_machine():
    farm.refuse_plain(FARM)
    for address in STRANGE:
        with pytest.raises(UsageError, match="is not encrypted"):
            farm.refuse_plain([*FARM, address])


def test_a_build_names_no_plain_scheduler(kernforge_cli, tmp_path):
    root = projects.write(tmp_path / "project")
    done = kernforge_cli("build", root, "--scheduler", "tcp://10.0.0.5:8786", expect=2)
    assert "is not encrypted" in done.stderr


def test_a_worker_refuses_a_plain_farm():
    class Peer:
        address = "tcp://10.0.0.5:8786"

    worker = Peer()
    worker.scheduler = Peer()
    with pytest.raises(UsageError, match="is not encrypted"):
        farm.dask_setup(worker)


def tls(directory):
    """Variables by which Dask speaks TLS, with certificates of a new farm."""
    from distributed import Security  # noqa: PLC0415

    security = Security.temporary()
    directory.mkdir()
    comm, found = "DASK_DISTRIBUTED__COMM__", {}
    for name, text in {
        "CA_FILE": security.tls_ca_file,
        **{
            f"{role}__{part.upper()}": getattr(security, f"tls_{role.lower()}_{part}")
            for role in ("SCHEDULER", "WORKER", "CLIENT")
            for part in ("cert", "key")
        },
    }.items():
        path = directory / f"{name}.pem"
        path.write_text(text)
        found[f"{comm}TLS__{name}"] = str(path)
    return found


@pytest.mark.native
def test_a_build_over_tls_takes_certificates_of_the_farm_alone(kernforge_cli, kept_home, tmp_path):
    ours, theirs = tls(tmp_path / "ours"), tls(tmp_path / "theirs")
    toolchains = kept_home / "store" / "toolchains"
    cluster = Cluster(tmp_path / "cluster", toolchains, protocol="tls", env=ours)
    root = projects.write(tmp_path / "project")
    away = ("--scheduler", cluster.address, "--variant", CPU, "--no-check", "--json")
    try:
        assert cluster.address.startswith("tls://")
        cluster.add("one")
        done = kernforge_cli("build", root, *away, env=ours, home=tmp_path / "home")
        assert {one["where"] for one in json.loads(done.stdout)["actions"]["spent"]} == {"one"}
        for env in (theirs, {}):
            kernforge_cli("build", root, *away, env=env, home=tmp_path / "other", expect=10)
    finally:
        cluster.close()
