# SPDX-License-Identifier: Apache-2.0
import json
from dataclasses import replace

from support.locks import table, tree

from kernforge.artifact.metadata import GitState
from kernforge.audit import reproduce
from kernforge.builder import provenance
from kernforge.builder.provenance import Origin
from kernforge.builder.results import ActionRecord
from kernforge.toolchain import lockfile
from kernforge.toolchain.lockfile import Lock, LockedCompiler, LockedWheel

WHEEL = LockedWheel(file="torch-2.10.0-cp311-linux.whl", sha256="ab" * 32, record="cd" * 32)
COMPILER = LockedCompiler(identity="g++ 12", target="x86_64", parts={"as": "1", "ld.bfd": "2"})
LOCK = Lock(
    platform="x86_64-linux",
    compilers={"cxx": COMPILER},
    trees=table(
        *(tree("cuda", version, WHEEL) for version in ("13.0", "13.2")),
        *(tree("torch", version, WHEEL) for version in ("2.1", "2.10")),
    ),
)
GIT = GitState(commit="a" * 40, dirty=False)
ORIGIN = Origin(sources="5", version="1", url="https://x/y", git=GIT, folder="k/one")


def made(key="k", **changes):
    values = {"title": f"compile {key}", "key": key, "argv": ("%{cxx}", "-c"), "trees": ("cxx",)}
    values |= {"outputs": {"out.o": "00" * 32}, "isolated": True}
    return ActionRecord(**values | changes)


def test_the_first_differing_action_is_named():
    other = made("b", outputs={"out.o": "11" * 32})
    why = reproduce.first_difference((made("a"), made("b")), (made("a"), other))
    assert why == "'compile b' made a different out.o here"
    assert "has another plan" in reproduce.first_difference((made("a"),), ())


def test_a_statement_is_read_as_it_was_written():
    actions = (made("a", trees=("cxx", "torch-2.10")), made("b", outputs={"x.so": "22" * 32}))
    statement = replace(provenance.state("v", ORIGIN, LOCK, actions), subjects={"f": "AAAA"})
    assert provenance.read(provenance.write(statement)) == statement
    assert set(statement.lock.trees) == {"torch-2.10"}


def test_compilers_are_distinguished_by_their_parts():
    here = LockedCompiler(identity="g++ 12", target="x86_64", parts={"as": "1", "ld.bfd": "3"})
    assert COMPILER.difference(here) == "g++ 12: ld.bfd differ here"
    assert COMPILER.key != here.key
    older = LockedCompiler(identity="g++ 12", target="x86_64")
    assert older.difference(here) == ""
    assert "g++ 13" in COMPILER.difference(LockedCompiler(identity="g++ 13", target="x86_64"))


def test_a_lock_without_parts_is_still_read():
    document = json.loads(LOCK.to_json())
    del document["compilers"]["cxx"]["parts"]
    assert lockfile.from_json(json.dumps(document)).compilers["cxx"].parts == {}
