# SPDX-License-Identifier: Apache-2.0
"""A compiler that an attacker wraps changes what it was given (B7).

What it was given is what the statement says that it was given: the input that a wrapped compiler
reads a second time, or hands to a program that it starts, is still that one.
"""

import dataclasses

import pytest
from support import graphs

from kernforge.builder import action as execute_action
from kernforge.builder import sandbox
from kernforge.builder.graph import Input

TEXT = "what was reviewed\n"
CHANGES = {
    "write": "echo evil > csrc/a.cpp",
    "append": "echo evil >> csrc/a.cpp",
    "mode": "chmod 666 csrc/a.cpp; echo evil > csrc/a.cpp",
    "replace": "echo evil > x; mv -f x csrc/a.cpp",
    "remove": "rm -f csrc/a.cpp; echo evil > csrc/a.cpp",
    "beside an output": "echo evil > made/b.cpp",
    "replace beside an output": "echo evil > x; mv -f x made/b.cpp",
    "a header that comes first": "echo evil > csrc/first.h",
    "another file for a source": "ln -sf /dev/null csrc/a.cpp",
}
PATHS = ("csrc/a.cpp", "made/b.cpp")


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_input_stays_what_it_was(context, request, change):
    if not context.sandbox.isolates:
        pytest.skip("without a sandbox an action can change whatever its user can")
    read = "cat csrc/a.cpp made/b.cpp > made/out; ls csrc >> made/out"
    action = graphs.action("evil", f"({change}) 2> /dev/null; {read}", outputs=("made/out",))
    inputs = tuple(Input(path=p, digest="t") for p in PATHS)
    action = dataclasses.replace(action, inputs=inputs)
    plan = dataclasses.replace(graphs.plan(action), texts={"t": TEXT})
    done = execute_action.run_action(action, plan, context)
    assert not done.failure, done.failure
    made = context.store.path(execute_action.STORE_KIND, action.key) / "made/out"
    assert made.read_text() == f"{TEXT}{TEXT}a.cpp\n"


def test_directories_without_outputs_are_fixed_as_a_whole():
    inputs = ["csrc/a.cpp", "csrc/deep/b.h", "top.cpp", "both/in.h", "both/only/c.h", "x/y/z"]
    found = sandbox.fixed_inputs(inputs, ["out.o", "both/out.o", "x/y/z"])
    assert found == ("both/in.h", "both/only/c.h", "csrc", "top.cpp")
