# SPDX-License-Identifier: Apache-2.0
"""An op namespace is one build's in a process; native/test_jit_reports.py has the race."""

import pytest

from kernforge.errors import BuildError
from kernforge.extension import op_names
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


def test_an_op_namespace_is_free_again_when_its_module_fails(session):
    with (
        pytest.raises(BuildError),
        session.namespaces_of(extension("a"), "0123456789") as names,
    ):
        raise BuildError("no")
    assert names == {"ops": "ops"}
    assert session.namespaces == set()


def test_defined_namespaces_are_found_and_taken_from_the_link():
    text = (
        "TORCH_LIBRARY(mine, m) {}\nTORCH_LIBRARY_IMPL(mine, CPU, m) {}\n"
        "TORCH_LIBRARY_IMPL(aten, CPU, m) {}"
    )
    assert op_names.namespaces([text]) == {"mine"}
    changed = op_names.register(text, frozenset({"mine"}))
    assert changed.splitlines() == [
        "KERNFORGE_LIBRARY(kernforge_namespace_of_mine, m) {}",
        "KERNFORGE_LIBRARY_IMPL(kernforge_namespace_of_mine, CPU, m) {}",
        "TORCH_LIBRARY_IMPL(aten, CPU, m) {}",
    ]
    assert '= "mine_2"' in op_names.names_source({"mine": "mine_2"})


def test_module_names_are_read_from_the_sources():
    found = op_names.module_names(
        ["PYBIND11_MODULE(a, m) {}", "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)"]
    )
    assert found == {"a", "TORCH_EXTENSION_NAME"}
