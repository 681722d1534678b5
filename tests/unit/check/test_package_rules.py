# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.artifact.metadata import Metadata
from kernforge.artifact.variant import Variant
from kernforge.check import package_rules

CPU = "torch-stable-abi210-cpu-x86_64-linux"
CUDA = "torch213-cxx11-cu130-x86_64-linux"


def metadata(backend: str = "cpu") -> Metadata:
    return Metadata(name="my-op", id="_my_op_x", version=1, license="MIT", backend=backend)


def layout(variant: str, backend: str, *files: str) -> list[str]:
    found = package_rules.layout(Variant.parse(variant), metadata(backend), files, where=variant)
    return [finding.message for finding in found]


PACKAGE = ("__init__.py", "_ops.py", "metadata.json")


@pytest.mark.parametrize(
    ("variant", "backend", "files"),
    [
        (CPU, "cpu", (*PACKAGE, "_my_op_x.abi3.so", "layers/__init__.py", "tuned.json")),
        (CUDA, "cuda", (*PACKAGE, "_my_op_x.abi3.so")),
        ("tvm-ffi01-cpu-x86_64-linux", "cpu", (*PACKAGE, "_my_op_x.so")),
        ("torch-cuda", "cuda", PACKAGE),
        ("torch-npu", "cann", PACKAGE),
        ("torch-universal", "cuda", PACKAGE),
    ],
)
def test_a_good_layout_has_no_finding(variant, backend, files):
    assert layout(variant, backend, *files) == []


@pytest.mark.parametrize(
    ("variant", "backend", "files", "message"),
    [
        (CPU, "cpu", ("_ops.py", "_my_op_x.abi3.so"), "__init__.py is missing"),
        (CPU, "cpu", ("__init__.py", "_my_op_x.abi3.so"), "_ops.py is missing"),
        ("torch-cpu", "cpu", (*PACKAGE, "my_op/__init__.py"), "a my_op inside"),
        ("torch-cpu", "cpu", (*PACKAGE, "__pycache__/a.cpython-311.pyc"), "1 bytecode file"),
        (CPU, "cuda", (*PACKAGE, "_my_op_x.abi3.so"), "build for cpu, its metadata says cuda"),
        (CPU, "cpu", PACKAGE, "extension modules none"),
        (CPU, "cpu", (*PACKAGE, "_other.abi3.so"), "needs _my_op_x.abi3.so"),
        ("torch-cpu", "cpu", (*PACKAGE, "_my_op_x.abi3.so"), "needs none"),
    ],
)
def test_each_fault_of_a_layout_is_found(variant, backend, files, message):
    (found,) = layout(variant, backend, *files)
    assert message in found


GOOD = [
    '@torch.library.custom_op(add_op_namespace_prefix("f"), mutates_args=())\ndef f(): ...',
    '@register_fake(_ops.add_op_namespace_prefix("f"))\ndef f(): ...',
    "@functools.wraps(g)\ndef f(): ...",
    "@custom_op\ndef f(): ...",
    "@torch.library.custom_op()\ndef f(): ...",
]
BAD = [
    '@torch.library.custom_op("mine::f", mutates_args=())\ndef f(): ...',
    "@triton_op(NAME)\ndef f(): ...",
    '@other\n@register_kernel("mine::f", "cpu")\nasync def f(): ...',
    '@torch.library.register_fake("mine::" + add_op_namespace_prefix("f"))\nclass f: ...',
    '@torch.library.register_vmap(prefixed("f"))\ndef f(): ...',
    '@torch.library.register_torch_dispatch("f", T)\ndef f(): ...',
]


@pytest.mark.parametrize("source", GOOD)
def test_registrations_in_the_namespace_pass(source):
    assert not list(package_rules.registrations({"a.py": source}, where="k"))


@pytest.mark.parametrize("source", BAD)
def test_registrations_outside_it_are_found(source):
    (found,) = package_rules.registrations({"a.py": f"import torch\n{source}"}, where="k")
    assert "without add_op_namespace_prefix" in found.message
    assert found.where.startswith("k/a.py:")


def test_what_is_not_python_is_found():
    (found,) = package_rules.registrations({"a.py": "def f(:"}, where="k")
    assert found.message.startswith("it is not Python")
