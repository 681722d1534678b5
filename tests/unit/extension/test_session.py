# SPDX-License-Identifier: Apache-2.0
"""An op namespace is one build's in a process, whichever threads plan it."""

import threading

import pytest

from kernforge.errors import BuildError
from kernforge.extension.device.units import ExtensionUnit
from kernforge.extension.plan import Extension
from kernforge.extension.session import JitSession
from kernforge.source.includes import closure
from kernforge.system.environment import Environment


def in_threads(*functions):
    """Call functions at the same time; their results, or errors, in order."""
    outcomes = [None] * len(functions)
    start = threading.Barrier(len(functions))

    def run(number):
        start.wait()
        try:
            outcomes[number] = functions[number]()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return outcomes


def extension(name, source='TORCH_LIBRARY(ops, m) { m.def("f() -> ()"); }\n'):
    path = f"home/me/{name}.cpp"
    unit = ExtensionUnit(path=path, texts={path: source}, closure=closure(path, {path: source}, ()))
    return Extension(name=name, units=(unit,))


def test_threads_that_write_one_op_namespace_get_two():
    session = JitSession(environment=Environment({}))
    both = threading.Barrier(2)

    def plan(name):
        with session.namespaces_of(extension(name), "0123456789") as names:
            both.wait()
        return names["ops"]

    names = in_threads(lambda: plan("a"), lambda: plan("b"))
    assert "ops" in names
    assert len({*names}) == 2
    assert session.namespaces == {*names}


def test_an_op_namespace_is_free_again_when_its_module_fails():
    session = JitSession(environment=Environment({}))
    with (
        pytest.raises(BuildError),
        session.namespaces_of(extension("a"), "0123456789") as names,
    ):
        raise BuildError("no")
    assert names == {"ops": "ops"}
    assert session.namespaces == set()
    with session.namespaces_of(extension("b"), "0123456789"):
        with session.namespaces_of(extension("c"), "0123456789") as other:
            assert other["ops"].startswith("ops_")
        session.release(other)
    assert session.namespaces == {"ops"}
