# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.artifact.variant import Variant
from kernforge.artifact.version import Version2
from kernforge.binary.elf import Elf, Symbol
from kernforge.binary.fatbin import Architectures
from kernforge.check import abi_rules

STABLE = Variant.parse("torch-stable-abi210-cpu-x86_64-linux")


def library(*undefined: Symbol, needed=(), rpath=(), exported=(), machine="x86_64") -> Elf:
    return Elf(
        machine=machine,
        soname="",
        needed=tuple(needed),
        rpath=tuple(rpath),
        undefined=undefined,
        exported=tuple(exported),
    )


def test_a_symbol_above_the_floor_is_named_with_its_version():
    found = library(
        Symbol(name="malloc", version="GLIBC_2.2.5"),
        Symbol(name="pthread_create", version="GLIBC_2.34"),
    )
    allowed = {"GLIBC": {"2.2.5", "2.28"}}
    (finding,) = abi_rules.manylinux(
        found, satisfied="manylinux_2_34_x86_64", allowed=allowed, where="a.so"
    )
    assert "GLIBC_2.34: pthread_create" in finding.message
    assert "malloc" not in finding.message
    assert not list(abi_rules.manylinux(found, satisfied="", allowed=allowed, where="a.so"))


def test_a_symbol_that_nobody_defines_is_found():
    (finding,) = abi_rules.unresolved(library(Symbol(name="close_range")), where="a.so")
    assert "close_range" in finding.message
    assert not list(abi_rules.unresolved(library(Symbol(name="PyModule_Create2")), where="a.so"))


@pytest.mark.parametrize(
    ("backend", "needed", "refused"),
    [
        ("cpu", ["libc10.so", "libtorch_cpu.so", "libtorch.so", "libstdc++.so.6"], 0),
        ("cpu", ["libm.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2", "libgcc_s.so.1"], 0),
        ("cpu", ["ld-linux-aarch64.so.1"], 0),
        ("cuda", ["libc10_cuda.so", "libtorch_cuda.so"], 0),
        ("cpu", ["libc10_cuda.so"], 1),
        ("cuda", ["libcudart.so.13"], 1),
        ("cuda", ["libcuda.so.1", "libcublas.so.13"], 2),
        ("cpu", ["libgomp.so.1", "libpython3.11.so.1.0", "libtorch_python.so"], 3),
    ],
)
def test_only_the_systems_and_torchs_libraries_may_be_needed(backend, needed, refused):
    found = list(abi_rules.dependencies(library(needed=needed), backend=backend, where="a.so"))
    assert len(found) == refused


@pytest.mark.parametrize(
    ("symbol", "own"),
    [
        (Symbol(name="_ZN4mine6launchEPKvi"), True),
        (Symbol(name="_Z6launchPKvi"), True),
        (Symbol(name="_ZN4mine1fEN2at6TensorE"), True),
        (Symbol(name="_ZN4mine6launchEPKvi", weak=True), False),
        (Symbol(name="_ZdlPvm", version="CXXABI_1.3.9"), False),
        (Symbol(name="_ZN5torch10headeronly4HalfC1Ef"), False),
        (Symbol(name="_ZN2at5emptyEv"), False),  # another rule's
        (Symbol(name="aoti_torch_get_dim"), False),
    ],
)
def test_a_launcher_that_no_source_defines_is_found_where_torch_has_c_names_alone(symbol, own):
    found = list(abi_rules.unresolved(library(symbol), where="a.so", stable=True))
    assert [finding.rule for finding in found] == ["unresolved"] * own
    assert not list(abi_rules.unresolved(library(symbol), where="a.so"))


def test_a_dependency_on_the_runtime_says_how_to_fix_it():
    needs = library(needed=["libcudart.so.13"])
    (found,) = abi_rules.dependencies(needs, backend="cuda", where="a.so")
    assert "-cudart=static" in found.hint


def test_a_search_path_is_found():
    (found,) = abi_rules.dependencies(library(rpath=["/opt"]), backend="cpu", where="a.so")
    assert "/opt" in found.message


def test_another_cpu_is_found():
    assert not list(abi_rules.machine(library(), STABLE, where="a.so"))
    (found,) = abi_rules.machine(library(machine="aarch64"), STABLE, where="a.so")
    assert "compiled for aarch64" in found.message


@pytest.mark.parametrize(
    "name",
    [
        "aoti_torch_get_dim",
        "torch_call_dispatcher",  # 2.10
        "_ZN5torch6stable6detail3fooEv",
        "_ZN5torch10headeronly4HalfC1Ef",
        "_ZNSt7__cxx1112basic_stringIcE6appendEPKc",
        "_ZN4mine1fEN2at6TensorE",
    ],
)
def test_the_stable_abi_passes(name):
    assert not list(
        abi_rules.torch_stable_abi([Symbol(name=name)], target=Version2(2, 10), where="a")
    )


@pytest.mark.parametrize(
    "name",
    [
        "_ZN3c104impl8GPUTrace13gpuTraceStateE",
        "_ZNK2at6Tensor3sumEv",
        "_ZN5torch7LibraryD1Ev",
        "_ZTIN3c105ErrorE",
        "_ZN6caffe28TypeMeta5emptyEv",
    ],
)
def test_torchs_cpp_abi_is_found(name):
    symbols = [Symbol(name=name, weak=True)]
    (found,) = abi_rules.torch_stable_abi(symbols, target=Version2(2, 10), where="a.so")
    assert name in found.message


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("torch_call_dispatcher", Version2(2, 10)),
        ("torch_from_blob", Version2(2, 11)),
        ("aoti_torch_dtype_float8_e8m0fnu", Version2(2, 12)),
        ("torch_stream_native_handle", Version2(2, 13)),
    ],
)
def test_a_function_newer_than_the_target_is_found(name, version):
    older = (version[0], version[1] - 1)
    symbols = [Symbol(name=name)]
    assert not list(abi_rules.torch_stable_abi(symbols, target=version, where="a.so"))
    (found,) = abi_rules.torch_stable_abi(symbols, target=older, where="a.so")
    assert f"{name} ({version[0]}.{version[1]})" in found.message
    assert f'stable-abi = "{version[0]}.{version[1]}"' in found.hint


@pytest.mark.parametrize(
    ("cubins", "ptx", "archs", "backend", "message"),
    [
        ((), (), None, "cpu", ""),
        (("9.0", "10.0f"), (), ("10.0f", "9.0"), "cuda", ""),
        (("8.0", "9.0"), ("9.0",), ("8.0", "9.0+PTX"), "cuda", ""),
        (("8.0", "9.0"), (), ("8.0",), "cuda", "machine code for 9.0 is not listed"),
        (("8.0",), (), ("8.0", "9.0a"), "cuda", "machine code for 9.0a is missing"),
        (("9.0",), (), ("9.0a",), "cuda", "9.0 is not listed; machine code for 9.0a is missing"),
        (("9.0",), (), ("9.0+PTX",), "cuda", "PTX for 9.0 is missing"),
        (("9.0",), ("9.0",), ("9.0",), "cuda", "PTX for 9.0 is not listed"),
        (("9.0",), (), None, "cpu", "9.0 is not listed"),
        ((), (), ("gfx942",), "rocm", ""),
    ],
)
def test_device_code_and_metadata_must_agree(cubins, ptx, archs, backend, message):
    code = Architectures(cubins=cubins, ptx=ptx)
    found = list(abi_rules.fat_binary(code, archs, backend=backend, where="a.so"))
    assert [message in finding.message for finding in found] == [True] * bool(message)


def test_process_wide_symbols_are_a_warning():
    exported = [Symbol(name="_ZZ1fvE1x", unique=True), Symbol(name="PyInit_a")]
    (found,) = abi_rules.unique_symbols(library(exported=exported), where="a.so")
    assert (found.severity, "_ZZ1fvE1x" in found.message) == ("warning", True)
