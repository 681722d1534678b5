# SPDX-License-Identifier: Apache-2.0
"""The command line of ``kernels`` with kernforge in its place."""

import argparse
import sys

import pytest
from support.client_programs import run

from kernforge.cli import client
from kernforge.cli.parser import read
from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (["verify-signature", "a/b", "1"], ["verify", "a/b", "--version", "1"]),
        (
            ["verify-signature", "--all-variants", "--filter-unsigned", "a/b", "2"],
            ["verify", "--variant", "*", "--allow-unsigned", "a/b", "--version", "2"],
        ),
        (
            ["verify-signature", "a/b", "1", "--registry", "c"],
            ["verify", "a/b", "--version", "1", "--registry", "c"],
        ),
        (["verify-signature"], ["verify"]),
        (["info", "a/b", "--json"], ["info", "a/b", "--json"]),
        (["variants", "a/b", "--version", "2"], ["info", "a/b", "--version", "2"]),
        (["variants", "a/b", "--all-versions", "--json"], ["info", "--versions", "a/b", "--json"]),
        ([], []),
    ],
)
def test_translated(theirs, ours):
    assert client.translated(theirs) == ours


@pytest.mark.parametrize(
    "line",
    [
        "download . --all-variants",
        "info a/b --revision v1 --json",
        "versions a/b",
        "variants a/b --only-compatible --revision v1 --json",
        "variants a/b --all-versions",
        "lock .",
        "verify-signature a/b 1 --all-variants --filter-unsigned --filter-no-digest",
    ],
)
def test_every_command_of_the_client_is_parsed(line):
    read(client.translated(line.split()), argparse.Namespace())


@pytest.mark.parametrize("line", ["versions acme/toy", "verify-signature acme/toy 1"])
def test_a_program_that_calls_the_clients_command_line(tmp_path, write_variant, line):
    write_variant(tmp_path / "build")
    registry = DirectoryRegistry(tmp_path / "registry")
    publish(tmp_path / "build", registry, "acme/toy")
    program = (
        f"import sys\nsys.argv = ['kernels', *{line.split()!r}]\n"
        "from kernforge.__main__ import main_as_client\nmain_as_client()\n"
    )
    variables = {"HOME": str(tmp_path), "KERNFORGE_REGISTRY": str(registry.root)}
    done = run(sys.executable, "-c", program, **variables)
    if line.startswith("versions"):
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("1.0.0 ")
    else:  # it is not signed
        assert done.returncode != 0
        assert "sign" in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
