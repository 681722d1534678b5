# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.publish.version import Level, Offer, compare, level_of
from kernforge.source.op_schema import read_operators
from kernforge.source.python_api import read_package

CPU = "torch-stable-abi210-cpu-x86_64-linux"
CUDA = "torch-stable-abi210-cu130-x86_64-linux"


def offer(name=CPU, source="", ops=(), archs=None, depends=()):
    return Offer(
        name=name,
        backend="cuda" if "-cu" in name else "cpu",
        archs=archs,
        api=read_package({"__init__.py": source}),
        ops=None if ops is None else read_operators(ops),
        python_depends=depends,
    )


def changes_between(old, new):
    return [(str(change.level), change.what) for change in compare(old, new)]


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("f(x)", "f(x)", []),
        ("f(x)", "f(x, y=1)", ["minor: parameter y is new"]),
        ("f(x)", "f(x, y)", ["major: parameter y is new and required"]),
        ("f(x, y=1)", "f(x)", ["major: parameter y is removed"]),
        ("f(x, y=1)", "f(x, y=2)", ["major: parameter y is 2 by default, was 1"]),
        ("f(x, y)", "f(x, y=1)", ["minor: parameter y is 1 by default, was required"]),
        ("f(x, y)", "f(x, *, y)", ["major: parameter y is given by name, was either way"]),
        ("f(x)", "f(x, /)", ["major: parameter x is given by position, was either way"]),
        ("f(x, *, y)", "f(x, y)", []),
        ("f(x, /)", "f()", ["major: parameter number 1 is removed"]),
        (
            "f(x, y)",
            "f(y, x)",
            ["major: parameter x is number 2, was 1", "major: parameter y is number 1, was 2"],
        ),
    ],
)
def test_an_incompatible_signature_is_a_major_change(old, new, changes):
    old, new = (offer(source=f"def {text}: ...\n") for text in (old, new))
    expected = [tuple(change.replace(": ", ": f: ", 1).split(": ", 1)) for change in changes]
    assert changes_between([old], [new]) == expected


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("def f(): ...", "def g(): ...", [("major", "f is removed"), ("minor", "g is new")]),
        ("f = 1", "def f(): ...", [("major", "f is a function, was a value")]),
        ("class A:\n  def f(self): ...", "", [("major", "A is removed")]),
        ("", "class A:\n  def f(self): ...", [("minor", "A is new")]),
        ("class A:\n  def f(self): ...", "class A: ...", [("major", "A.f is removed")]),
    ],
)
def test_new_and_removed_names_are_reported_once(old, new, changes):
    assert changes_between([offer(source=old)], [offer(source=new)]) == changes


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ("f(Tensor x) -> Tensor", "f(Tensor x) -> Tensor", None),
        ("f(Tensor x) -> Tensor", "f(Tensor x, int n=1) -> Tensor", "minor: parameter n is new"),
        ("f(Tensor x) -> ()", "f(Tensor? x) -> ()", "major: parameter x is Tensor?, was Tensor"),
        ("f(Tensor x) -> ()", "f(Tensor x) -> int", "major: it returns int, was ()"),
        ("f", "f(Tensor x) -> ()", None),
    ],
)
def test_schemas_are_compared_with_types(old, new, change):
    expected = (
        [] if change is None else [tuple(change.replace(": ", ": ops.f: ", 1).split(": ", 1))]
    )
    assert changes_between([offer(ops=[old])], [offer(ops=[new])]) == expected


def test_unrecorded_operators_are_not_compared():
    assert changes_between([offer(ops=None)], [offer(ops=["f() -> ()"])]) == []
    assert changes_between([offer(ops=["f() -> ()"])], [offer(ops=None)]) == []


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        (["8.0"], ["8.0", "9.0"], ""),
        (["8.0", "9.0"], ["8.0"], "9.0"),
        (["8.0"], ["8.6"], "8.0"),
        (["8.6"], ["8.0"], ""),
        (["9.0a"], ["9.0"], ""),
        (["9.0"], ["8.0+PTX"], ""),
        (["8.0+PTX"], ["8.0"], "9.0, 10.0, 10.1, 10.3, 10.7, 11.0, 12.0, 12.1"),
    ],
)
def test_device_code_is_compared_by_gpus(old, new, lost):
    expected = [("major", f"there is no device code for {lost} any more")] if lost else []
    assert (
        changes_between([offer(CUDA, archs=tuple(old))], [offer(CUDA, archs=tuple(new))])
        == expected
    )


@pytest.mark.parametrize(
    ("old", "new", "served"),
    [
        (CPU, "torch-stable-abi29-cpu-x86_64-linux", True),
        (CPU, "torch-stable-abi211-cpu-x86_64-linux", False),
        (CPU, "torch210-cxx11-cpu-x86_64-linux", False),
        ("torch212-cxx11-cpu-x86_64-linux", CPU, True),
        ("torch-stable-abi210-cu132-x86_64-linux", CUDA, True),
        (CUDA, "torch-stable-abi210-cu132-x86_64-linux", False),
        (CUDA, "torch-cuda", True),
        ("torch-cuda", CUDA, False),
        ("tvm-ffi01-cpu-x86_64-linux", "tvm-ffi02-cpu-x86_64-linux", False),
    ],
)
def test_every_machine_keeps_a_variant(old, new, served):
    removed = [] if served else [("major", f"the machines of {old} have no variant any more")]
    assert changes_between([offer(old)], [offer(new)]) == removed


def test_a_change_is_reported_once_with_its_variants():
    old = [offer(CPU, "def f(): ...\n"), offer(CUDA, "def f(): ...\n")]
    new = [offer(CPU), offer(CUDA, depends=("einops",))]
    found = compare(old, new)
    assert [(c.what, c.variants) for c in found] == [
        ("f is removed", (CPU, CUDA)),
        ("the Python package einops is needed", (CUDA,)),
    ]
    assert level_of(found) is Level.MAJOR
    assert level_of(found, major=0) is Level.MINOR
    assert level_of(()) is Level.PATCH
