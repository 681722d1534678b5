# SPDX-License-Identifier: Apache-2.0
"""What a lock lacks of what a build needs, and what it keeps."""

import json

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


def test_a_lock_keeps_the_headers_of_python_and_gives_them_to_who_read_them():
    full = locked(TOOLKIT, PYTHON)
    assert lockfile.from_json(full.to_json()) == full
    assert full.part(["cxx", "python"]).trees == table(PYTHON)
    assert not full.part(["cxx"]).trees
    assert locked().merged(full).trees == full.merged(locked()).trees == full.trees


def wheel(file, record="1" * 64):
    return {"file": file, "sha256": "0" * 64, "record": record}


def test_a_lock_of_version_1_is_read():
    """As kernforge wrote them before all trees stood in one table."""
    compiler = {"identity": "g++ 12", "target": "x86_64-linux-gnu", "parts": {"as": "2"}}
    torch = {"release": "2.10.0", "wheel": wheel("torch")}
    toolkit = {"release": "13.0.2", "wheels": [wheel("nvcc", "")], "libraries": [wheel("cublas")]}
    text = json.dumps(
        {
            "lock-version": 1,
            "platform": "x86_64-linux",
            "compiler": compiler,
            "cuda": {"13.0": {**toolkit, "directory": ""}, "13.2": {"release": "13.2.0"}},
            "torch": {"2.10": torch},
            "headers": {
                "cutlass_3_6": {"release": "3.6.0", "wheel": wheel("cutlass"), "digest": ""},
                "torch-2.11": {"release": "2.11.0", "wheel": None, "digest": "3" * 64},
            },
            "python": {"release": "3.11.7", "headers": "a" * 64},
            "cross": {
                "aarch64": {
                    "compiler": compiler,
                    "torch": {"2.10": torch},
                    "runtime": {"13.0": wheel("cudart")},
                }
            },
        }
    )
    read = lockfile.from_json(text)
    assert read.compilers == {"cxx": COMPILER, "aarch64-cxx": COMPILER}
    assert {name: [w.file for w in each.wheels] for name, each in read.trees.items()} == {
        "cuda-13.0": ["nvcc"],
        "cuda-13.2": [],
        "cuda-libraries-13.0": ["cublas"],
        "torch-2.10": ["torch"],
        "cutlass_3_6": ["cutlass"],
        "torch-2.11": [],
        "python": [],
        "aarch64-torch-2.10": ["torch"],
        "aarch64-cudart-13.0": ["cudart"],
    }
    assert read.trees["python"] == PYTHON
    assert read.trees["torch-2.11"].digest == "3" * 64
    assert lockfile.from_json(read.to_json()) == read
