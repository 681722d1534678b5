# SPDX-License-Identifier: Apache-2.0
"""An op namespace is one build's in a process, whichever threads plan it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernforge.errors import BuildError
from kernforge.extension.device.units import ExtensionUnit
from kernforge.extension.plan import Extension
from kernforge.extension.session import JitSession
from kernforge.source.includes import closure
from kernforge.system.environment import Environment


@pytest.fixture
def session():
    return JitSession(environment=Environment({}))


def extension(name, source='TORCH_LIBRARY(ops, m) { m.def("f() -> ()"); }\n'):
    path = f"home/me/{name}.cpp"
    unit = ExtensionUnit(path=path, texts={path: source}, closure=closure(path, {path: source}, ()))
    return Extension(name=name, units=(unit,))


def test_threads_that_write_one_op_namespace_get_two(session):
    both = threading.Barrier(2, timeout=60)

    def plan(name):
        with session.namespaces_of(extension(name), "0123456789") as names:
            both.wait()
        return names["ops"]

    with ThreadPoolExecutor(2) as threads:
        names = {*threads.map(plan, "ab")}
    assert "ops" in names
    assert len(names) == 2
    assert session.namespaces == names


def test_an_op_namespace_is_free_again_when_its_module_fails(session):
    with (
        pytest.raises(BuildError),
        session.namespaces_of(extension("a"), "0123456789") as names,
    ):
        raise BuildError("no")
    assert names == {"ops": "ops"}
    assert session.namespaces == set()
