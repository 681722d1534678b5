# SPDX-License-Identifier: Apache-2.0

import subprocess
import sys

import pytest


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
