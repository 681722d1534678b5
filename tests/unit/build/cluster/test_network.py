# SPDX-License-Identifier: Apache-2.0
"""Which addresses of a scheduler are none, and how that is said."""

import pytest
from support import projects

from kernforge.build.cluster import network
from kernforge.build.cluster.network import FarmAccess
from kernforge.errors import UsageError


@pytest.mark.parametrize(
    ("given", "mistake"),
    [
        ("", "it is empty"),
        (" ", "it is empty"),
        ("tls://farm:8786 ", "it has a space"),
        ("tls://my farm:8786", "it has a space"),
        ("farm", "it has no port"),
        ("tls://farm", "it has no port"),
        ("tls://farm:", "it has no port"),
        ("http://farm:8786", "its protocol is 'http', and not one of tls"),
        ("TLS://farm:8786", "its protocol is 'TLS'"),
        ("://farm:8786", "its protocol is ''"),
        ("tls:/farm:8786", "it has more than"),
        ("tls://farm:port", "its port is no number"),
        ("tls://farm:0", "its port is no number"),
        ("tls://farm:87860", "its port is no number"),
        ("tls://fe80::1:8786", "its port is no number"),
        ("tls://[fe80::1:8786", "its port is no number"),
        ("tls://:8786", "it has no host"),
        (":8786", "it has no host"),
        ("tls://farm:8786/", "it has more than"),
        ("tls://farm:8786?x", "it has more than"),
        ("tls://me@farm:8786", "it has more than"),
        ("tls://a,b:8786", "it has more than"),
    ],
)
def test_what_is_no_address_of_a_scheduler(given, mistake):
    with pytest.raises(UsageError, match="no address of a Dask scheduler") as raised:
        network.scheduler_address(given)
    assert raised.value.message.startswith(repr(given))
    assert f": {mistake}" in raised.value.message
    assert "tls://farm:8786" in raised.value.hint


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("tls://farm:8786", "tls://farm:8786"),
        ("farm:8786", "tls://farm:8786"),
        ("tcp://127.0.0.1:1", "tcp://127.0.0.1:1"),
        ("tls://[::1]:65535", "tls://[::1]:65535"),
        ("wss://farm.example:443", "wss://farm.example:443"),
    ],
)
def test_what_is_one(given, address):
    assert network.scheduler_address(given) == address


# The first is no name at all; the second is one that no resolver may ever know (RFC 6761).
@pytest.mark.parametrize("host", ["farm..example", "farm.invalid"])
def test_a_name_that_leads_nowhere(host):
    pytest.importorskip("distributed")
    with pytest.raises(UsageError, match=f"the name '{host}' of a Dask scheduler"):
        network.require_name(f"tls://{host}:8786")


def test_an_address_that_needs_no_resolver():
    pytest.importorskip("distributed")
    for host in ("127.0.0.1", "[::1]", "localhost"):
        network.require_name(f"tcp://{host}:8786")


@pytest.mark.parametrize("given", ["", "tls://farm", "my farm:8786"])
@pytest.mark.parametrize("command", ["build", "test"])
def test_a_command_refuses_it_before_it_does_anything(kernforge_cli, tmp_path, command, given):
    root = projects.write(tmp_path / "project")
    done = kernforge_cli(command, root, "--scheduler", given, expect=2, home=tmp_path / "home")
    assert f"error: {given!r} is no address of a Dask scheduler" in done.stderr
    assert not (root / "kernforge.lock").exists()


def test_a_command_refuses_a_name_that_leads_nowhere(kernforge_cli, tmp_path):
    pytest.importorskip("distributed")
    root = projects.write(tmp_path / "project")
    options = ("--trusted-network", "--scheduler", "tcp://farm..example:8786")
    done = kernforge_cli("test", root, *options, expect=2, home=tmp_path / "home")
    assert "error: the name 'farm..example' of a Dask scheduler cannot be resolved" in done.stderr


def test_a_worker_refuses_it():
    with pytest.raises(UsageError, match="it is empty"):
        network.worker_command(FarmAccess(), "", more=())
