# SPDX-License-Identifier: Apache-2.0
"""What a lock lacks of what a build needs, and what it keeps."""

import pytest
from support.locks import table, tree

from kernforge.toolchain import lockfile, resolver
from kernforge.toolchain.lockfile import Lock, LockedCompiler, LockedWheel, Tree

COMPILER = LockedCompiler(identity="g++ 12", target="x86_64-linux-gnu", parts={"as": "2"})
PYTHON = tree("python", release="3.11.7", digest="a" * 64)
TOOLKIT = tree("cuda", "13.0", LockedWheel(file="nvcc", sha256="0" * 64), release="13.0.2")
LIBRARIES = tree("cuda-libraries", "13.0", LockedWheel(file="cublas", sha256="0" * 64))


def locked(*trees):
    return Lock(platform="x86_64-linux", compilers={"cxx": COMPILER}, trees=table(*trees))


@pytest.mark.parametrize(
    ("has", "lacks"),
    [
        ((), {"cuda-13.0", "cuda-libraries-13.0", "python"}),
        ((TOOLKIT,), {"cuda-libraries-13.0", "python"}),
        ((TOOLKIT, LIBRARIES, PYTHON), set()),
    ],
)
def test_a_lock_is_completed(has, lacks):
    wanted = [Tree("cuda", "13.0"), Tree("cuda-libraries", "13.0"), Tree("python")]
    assert {each.name for each in resolver.lacking(wanted, locked(*has))} == lacks
    assert resolver.lacking(wanted, None) == set(wanted)


def test_a_lock_keeps_the_headers_of_python_and_gives_them_to_who_read_them():
    full = locked(TOOLKIT, PYTHON)
    assert lockfile.from_json(full.to_json()) == full
    assert full.part(["cxx", "python"]).trees == table(PYTHON)
    assert not full.part(["cxx"]).trees
    assert locked().merged(full).trees == full.merged(locked()).trees == full.trees
