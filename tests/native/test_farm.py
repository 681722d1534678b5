# SPDX-License-Identifier: Apache-2.0
"""The store under real builds: keys that travel, kills at any point, a size that is kept."""

import json
import os
import sys

import pytest
from support import projects, trees
from support.programs import run

from kernforge.builder import workspace
from kernforge.store.local import Store
from kernforge.toolchain import provision
from kernforge.toolchain.provision import STORE_KIND

pytestmark = pytest.mark.native


@pytest.fixture
def warm_home(kernforge_cli, kept_home, tmp_path):
    """A home of this test's own, with the toolchain at hand."""
    other = projects.write(tmp_path / "other")
    kernforge_cli("build", other)
    kept, own = Store(kept_home / "store"), Store(tmp_path / "home" / "store")
    for tree in workspace.read_lock(other).trees.values():
        key = provision.key(tree)
        # No symbolic link: what is evicted here must stay there.
        trees.link_tree(kept.path(STORE_KIND, key), own.path(STORE_KIND, key))
    return tmp_path / "home"


def test_keys_do_not_depend_on_place_user_or_time(kernforge_cli, tmp_path):
    first = projects.write(tmp_path / "one", backends=("cpu", "cuda"))
    second = projects.write(tmp_path / "some where" / "else", backends=("cpu", "cuda"))
    kernforge_cli("lock", first)
    (second / "kernforge.lock").write_bytes((first / "kernforge.lock").read_bytes())
    for path in second.rglob("*"):
        os.utime(path, (0, 0))
    graphs = []
    for root, name in ((first, "anna"), (second, "bert")):
        env = {
            "HOME": str(tmp_path / name),
            "USER": name,
            "LOGNAME": name,
            "LANG": "C" if name == "anna" else "de_DE.UTF-8",
            "TZ": "UTC" if name == "anna" else "Asia/Tokyo",
            "TMPDIR": str(tmp_path),
            "HOSTNAME": name,
        }
        options = ("--dry-run", "--json", "--jobs", 1 if name == "anna" else 7)
        done = kernforge_cli("build", root, *options, home=tmp_path / name, env=env, cwd=tmp_path)
        graphs.append([a["key"] for a in json.loads(done.stdout)["actions"]])
    assert graphs[0] == graphs[1]
    assert len(graphs[0]) > 10


def test_cache_shows_and_trims(kernforge_cli, warm_home, tmp_path):
    root = projects.write(tmp_path / "project")
    kernforge_cli("build", root, home=warm_home)
    shown = json.loads(kernforge_cli("cache", "--json", home=warm_home).stdout)
    assert shown["location"] == str(warm_home / "store")
    assert shown["shelves"]["actions"]["entries"] > 5
    assert shown["shelves"]["measured"]["entries"] > 5
    text = kernforge_cli("cache", "--trim", "0B", home=warm_home).stdout
    assert "removed" in text
    after = json.loads(kernforge_cli("cache", "--json", home=warm_home).stdout)
    assert after["shelves"]["actions"]["entries"] == 0


def test_a_build_keeps_the_store_within_its_size(kernforge_cli, warm_home, tmp_path):
    old = warm_home / "store" / "actions" / "ab" / ("ab" + "0" * 62)
    old.mkdir(parents=True)
    (old / "content").write_bytes(b"x" * 3_000_000)
    used = warm_home / "store" / "used" / f"actions-{old.name}"
    used.parent.mkdir(exist_ok=True)
    used.touch()
    os.utime(used, (0, 0))
    root = projects.write(tmp_path / "project")
    kernforge_cli("build", root, home=warm_home, env={"KERNFORGE_STORE_SIZE": "1MB"})
    assert not old.exists()
    assert kernforge_cli("build", root, home=warm_home).stdout.count("0 actions ran") == 1


def test_an_unchanged_build_starts_no_check(kernforge_cli, warm_home, tmp_path):
    root = projects.write(tmp_path / "project")
    kernforge_cli("build", root, home=warm_home)
    first = json.loads(kernforge_cli("build", root, "--json", home=warm_home).stdout)
    # The compiler is asked who it is, git where it is; nothing imports torch or runs abi3audit.
    code = (
        "import sys, kernforge.system.process as run\nfrom kernforge.cli import main\n"
        "real = run.subprocess.Popen\n"
        "def popen(argv, **rest):\n"
        "    print('started', *argv[:3], file=sys.stderr)\n"
        "    return real(argv, **rest)\n"
        "run.subprocess.Popen = popen\n"
        f"main.main(['build', {str(root)!r}, '--json'])\n"
    )
    done = run((sys.executable, "-c", code), KERNFORGE_HOME=warm_home)
    started = {
        tuple(line.split()[1:3]) for line in done.stderr.splitlines() if line.startswith("started")
    }
    # A Python without site packages is the sandbox's own probe.
    asked = {program for program, option in started if option != "-I"}
    assert asked <= {"g++", "/bin/sh", "git"}
    assert json.loads(done.stdout)["findings"] == first["findings"]
