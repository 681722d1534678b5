# SPDX-License-Identifier: Apache-2.0
"""What tests that load kernels share."""

import json

from kernforge.artifact.variant import Backend
from kernforge.artifact.version import Version2
from kernforge.loader.host import Host

CPU_HOST = Host(
    cpu="x86_64",
    os="linux",
    backend=Backend("cpu"),
    torch=Version2(2, 13),
    cxx11=True,
    python=Version2(3, 12),
)
CUDA_HOST = Host(
    cpu="x86_64",
    os="linux",
    backend=Backend("cuda", Version2(13, 0)),
    torch=Version2(2, 13),
    cxx11=True,
)


def lock(path, *kernels):
    """Write a ``kernels.lock`` of the hub's client; kernels are (repo id, version, commit)."""
    entries = [
        {"dependency": {"repo-id": repo_id, "version": version}, "lock": {"commit": commit}}
        for repo_id, version, commit in kernels
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(entries))
    return path
