# SPDX-License-Identifier: Apache-2.0
"""Several threads that compile and load at the same time, with a real compiler."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from native.test_jit import FACTOR, PLAIN, STABLE
from support import jit_homes, projects

import kernforge

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.native, pytest.mark.torch, pytest.mark.usefixtures("home")]
home = jit_homes.home


def at_once(*functions):
    """Call functions in threads that begin at the same time; their results in order."""
    start = threading.Barrier(len(functions))

    def call(function):
        start.wait()
        return function()

    with ThreadPoolExecutor(len(functions)) as threads:
        return list(threads.map(call, functions))


def test_two_names_that_register_one_op_namespace():
    """The second has an op namespace of its own, and both keep their operators."""
    binding = STABLE.replace("jit_times", "jit_threads")
    seen = []

    def load(name, factor):
        sources = [binding, FACTOR % factor]
        kernforge.load_inline(name, sources, is_python_module=False)
        seen.append(torch.ops.jit_threads.times.default.name())

    at_once(lambda: load("threads_one", 2), lambda: load("threads_two", 3))
    x = torch.ones(1)
    for name, factor in (("threads_one", 2), ("threads_two", 3), ("threads_one", 2)):
        load(name, factor)  # shows its own
        assert torch.ops.jit_threads.times(x).item() == factor
    assert len({*seen}) == 2


def test_one_name_with_two_texts():
    def load(value):
        return kernforge.load_inline("threads_edit", PLAIN % value, no_implicit_headers=True)

    values = (1, 2, 1, 2)
    modules = at_once(*(lambda v=value: load(v) for value in values))
    assert tuple(module.value() for module in modules) == values
    assert len({id(module) for module in modules}) == 2


def test_one_project_and_a_copy_of_it(tmp_path):
    cpp = f"{projects.CPP}// for threads of the JIT"
    roots = [
        projects.write(tmp_path / name / "times-two", backends=("cpu",), cpp=cpp)
        for name in ("first", "copy")
    ]
    loads = [lambda root=root: kernforge.load(root) for root in (*roots, *roots)]
    modules = at_once(*loads)
    assert len({id(module) for module in modules}) == 1
    x = torch.arange(3.0)
    assert modules[0].times_two(x).tolist() == [0.0, 2.0, 4.0]
