# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from kernforge.builder import sandbox
from kernforge.builder.sandbox import ActionDirectory
from kernforge.errors import ToolchainError
from kernforge.system import files, process
from kernforge.system.process import Completed

PLACE = "/var/tmp/kernforge-test"  # noqa: S108 - the name inside


def refuse(command):
    return Completed(returncode=126, stdout="", stderr="sandbox: unshare: not permitted\n")


def test_a_missing_sandbox_is_refused_with_the_reason():
    with pytest.raises(ToolchainError, match="sandbox: unshare: not permitted"):
        sandbox.probe("required", "/usr/bin/g++", refuse)
    found = sandbox.probe("auto", "/usr/bin/g++", refuse)
    assert not found.isolates
    assert "not permitted" in found.reason
    assert sandbox.probe("off", "/usr/bin/g++", refuse) == sandbox.OFF


@pytest.fixture(scope="module")
def kind():
    """The sandbox of this machine."""
    try:
        return sandbox.probe("required", "/usr/bin/env", process.run)
    except ToolchainError as error:
        pytest.skip(error.message)


@pytest.fixture
def directory(tmp_path):
    for name in ("work", "tmp", "roots/tree"):
        (tmp_path / "directory" / name).mkdir(parents=True)
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "file").write_text("of the toolchain\n")
    return ActionDirectory(
        path=tmp_path / "directory", inside=PLACE, trees={"tree": str(tree), "sh": "/bin/sh"}
    )


class TestInside:
    def inside(self, kind, directory, script):
        return process.run(sandbox.command(kind, directory, ("/bin/sh", "-c", script)))

    def test_it_sees_its_directory_and_toolchain(self, kind, directory):
        done = self.inside(kind, directory, "pwd; cat ../roots/tree/file; echo made > out; echo $$")
        assert done.stdout == f"{PLACE}/work\nof the toolchain\n2\n", done.stderr
        assert (directory.work / "out").read_text() == "made\n"

    @pytest.mark.parametrize(
        "script",
        [
            "echo x > ../roots/tree/file",
            "echo x > /usr/x",
            "echo x > /x",
            "cat /etc/passwd",
            "ls /home /root /proc/1",
            f"{sys.executable} -V" if not sys.executable.startswith("/usr") else "false",
        ],
    )
    def test_it_sees_and_writes_nothing_else(self, kind, directory, script):
        assert self.inside(kind, directory, script).returncode != 0

    def test_it_has_no_network(self, kind, directory):
        listing = self.inside(kind, directory, "ls /sys/class/net; cat /proc/net/dev")
        assert listing.returncode != 0
        if shutil.which("python3", path="/usr/bin"):
            connect = "import socket; socket.create_connection(('127.0.0.1', 9), 1)"
            done = self.inside(kind, directory, f'/usr/bin/python3 -c "{connect}"')
            assert "unreachable" in done.stderr or "refused" in done.stderr

    def test_its_environment_is_fixed(self, kind, directory, monkeypatch):
        monkeypatch.setenv("LEAK", "1")
        done = self.inside(kind, directory, "export -p")
        names = {line.split()[1].partition("=")[0] for line in done.stdout.splitlines()}
        assert names - {"PWD", "OLDPWD"} == set(sandbox.environment(PLACE, {}))

    def test_status_and_signals_come_through(self, kind, directory):
        assert self.inside(kind, directory, "exit 3").returncode == 3
        assert self.inside(kind, directory, "kill -9 $$").returncode == -9

    def test_the_script_repeats_the_action(self, kind, directory, tmp_path):
        command = sandbox.command(kind, directory, ("/bin/sh", "-c", 'echo "$TMPDIR"; exit 5'))
        (tmp_path / "again.sh").write_text(sandbox.by_hand(command))
        done = subprocess.run(
            ["sh", tmp_path / "again.sh"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (5, f"{PLACE}/tmp\n")  # noqa: S108


def test_a_link_is_no_fixed_directory(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    for path in (tmp_path / "link", tmp_path / "missing" / "place"):
        with files.claimed(path) as ours:
            assert not ours


def test_only_directories_of_actions_are_swept(tmp_path):
    """Anybody may name a directory kernforge-x, as a KERNFORGE_HOME below /var/tmp."""
    old, young = (f"kernforge-{letter * sandbox.KEY_LENGTH}" for letter in "ab")
    for name in ("kernforge-home", old, young):
        (tmp_path / name).mkdir()
    for name in ("kernforge-home", old):
        os.utime(tmp_path / name, (1000, 1000))
    files.sweep(tmp_path, sandbox.NAMES)
    assert {path.name for path in tmp_path.iterdir()} == {"kernforge-home", young}


def test_the_prefix_of_the_host_compiler_is_mounted(kind, directory, tmp_path):
    compiler, header = tmp_path / "opt" / "bin" / "g++", tmp_path / "opt" / "include" / "vector"
    for path in (compiler, header):
        path.parent.mkdir(parents=True)
        path.write_text("of the compiler\n")
    directory = replace(directory, trees={**directory.trees, "cxx": str(compiler)})
    assert directory.tree("cxx") == str(compiler)
    assert directory.tree("tree") == f"{PLACE}/roots/tree"
    done = process.run(sandbox.command(kind, directory, ("/bin/cat", str(header))))
    assert done.stdout == "of the compiler\n", done.stderr
