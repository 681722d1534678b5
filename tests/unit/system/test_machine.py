# SPDX-License-Identifier: Apache-2.0
"""How much memory and disk is left, as the kernel tells it, in every form of control groups."""

import subprocess
import sys

import pytest

from kernforge.system import machine

GB = 2**30


def tree(root, **texts):
    for path, text in texts.items():
        target = root / path.replace("__", "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(str(text))


def write_machine(tmp_path, groups, gb=64):
    tree(tmp_path / "proc", meminfo=f"MemTotal: 1 kB\nMemAvailable:   {gb * 2**20} kB\n")
    tree(tmp_path / "proc", self__cgroup=groups)


def left(tmp_path):
    return machine.available_memory(tmp_path / "proc", tmp_path / "cg") / GB


def test_without_control_groups_it_is_the_machine(tmp_path):
    write_machine(tmp_path, "")
    assert left(tmp_path) == 64


def test_where_proc_is_hidden_the_group_that_is_mounted_limits(tmp_path):
    assert left(tmp_path) > 0
    group = {"memory.max": GB, "memory.current": GB}
    tree(tmp_path / "cg", **group)
    assert left(tmp_path) == 0


@pytest.mark.parametrize("path", ["job", "job/step/task"])
def test_a_group_of_version_2_and_those_above_it_limit(tmp_path, path):
    write_machine(tmp_path, f"0::/{path}\n")
    stat = f"anon 1\ninactive_file {2 * GB}\n"
    group = {"memory.max": 8 * GB, "memory.current": 5 * GB, "memory.stat": stat}
    tree(tmp_path / "cg" / "job", **group)
    assert left(tmp_path) == 5


def test_a_group_without_limit_does_not_limit(tmp_path):
    write_machine(tmp_path, "0::/job\n")
    tree(tmp_path / "cg" / "job", **{"memory.max": "max\n", "memory.current": 5 * GB})
    assert left(tmp_path) == 64


@pytest.mark.parametrize("where", ["docker/1", "."], ids=["by path", "the mount is the group"])
def test_a_group_of_version_1_limits(tmp_path, where):
    write_machine(tmp_path, "4:cpu:/\n3:memory:/docker/1\n")
    group = {"memory.limit_in_bytes": 4 * GB, "memory.usage_in_bytes": GB}
    tree(tmp_path / "cg" / "memory" / where, **group)
    assert left(tmp_path) == 3


@pytest.mark.parametrize("text", ["", "10", "GB", "1 2", "-5GB", "5 parsecs", "1ib"])
def test_what_is_not_a_size_is_refused(text):
    with pytest.raises(ValueError, match=r"is not a size|has no unit"):
        machine.parse_size(text)


def test_a_full_disk_is_found_by_writing():
    script = (
        "mount -t tmpfs -o size=256k none /mnt && head -c 300000 /dev/zero > /mnt/x 2>/dev/null; "
        f"{sys.executable} -c 'from pathlib import Path; from kernforge.system import machine; "
        'print(machine.room(Path("/mnt/kernforge/store")))\''
    )
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this machine allows no mount namespace: {done.stderr.strip()}")
    assert done.stdout.strip() == "(0, 'No space left on device')"
