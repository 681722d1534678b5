# SPDX-License-Identifier: Apache-2.0

import subprocess
import sys

import pytest

from kernforge.system import disk


def test_a_full_disk_is_found_by_writing():
    script = (
        "mount -t tmpfs -o size=256k none /mnt && head -c 300000 /dev/zero > /mnt/x 2>/dev/null; "
        f"{sys.executable} -c 'from pathlib import Path; from kernforge.system import disk; "
        'print(disk.room(Path("/mnt/kernforge/store")))\''
    )
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this machine allows no mount namespace: {done.stderr.strip()}")
    assert done.stdout.strip() == "(0, 'No space left on device')"


def test_a_file_system_at_a_name_with_spaces_and_letters_of_any_kind_is_known(tmp_path):
    table = tmp_path / "mounts"
    table.write_text(
        "/dev/a / ext4 rw 0 0\nhost:/x /mnt/größe\\040zwei nfs4 rw 0 0\n", encoding="utf-8"
    )
    assert disk._mounted_type("/mnt/größe zwei/lock", table) == "nfs4"
    assert disk._mounted_type("/mnt/größe", table) == "ext4"
