# SPDX-License-Identifier: Apache-2.0
import re

import pytest

from kernforge.binary import abi_floor
from kernforge.binary.elf import Symbol


def exported(stub: abi_floor.StubLibrary) -> dict[str, str]:
    """Version of each symbol by name, as the version script says."""
    found = {}
    for version, names in re.findall(r"(\S+) \{ global: (.*); \};", stub.texts[f"{stub.file}.map"]):
        found |= dict.fromkeys(names.split("; "), version)
    return found


def stubs(cpu: str) -> dict[str, abi_floor.StubLibrary]:
    return {stub.file: stub for stub in abi_floor.system_stubs(cpu)}


@pytest.mark.parametrize(
    ("cpu", "file", "symbol", "version"),
    [
        ("x86_64", "libc.so.6", "memcpy", "GLIBC_2.14"),
        ("x86_64", "libc.so.6", "fcntl64", "GLIBC_2.28"),
        ("x86_64", "libm.so.6", "exp", "GLIBC_2.2.5"),
        ("x86_64", "libpthread.so.0", "pthread_create", "GLIBC_2.2.5"),
        ("x86_64", "libdl.so.2", "dlopen", "GLIBC_2.2.5"),
        ("x86_64", "libmvec.so.1", "_ZGVdN4v_exp", "GLIBC_2.22"),
        ("x86_64", "ld-linux.so", "__tls_get_addr", "GLIBC_2.3"),
        ("x86_64", "libgcc_s.so.1", "_Unwind_Resume", "GCC_3.0"),
        ("x86_64", "libstdc++.so.6", "_ZSt4cout", "GLIBCXX_3.4"),
        ("aarch64", "libc.so.6", "memcpy", "GLIBC_2.17"),
        ("aarch64", "libpthread.so.0", "pthread_create", "GLIBC_2.17"),
        ("aarch64", "ld-linux.so", "__stack_chk_guard", "GLIBC_2.17"),
    ],
)
def test_a_symbol_lies_in_its_library_of_then_at_its_version_of_then(cpu, file, symbol, version):
    assert exported(stubs(cpu)[file])[symbol] == version


@pytest.mark.parametrize("cpu", abi_floor.CPUS)
def test_nothing_above_the_floor_is_exported(cpu):
    for stub in abi_floor.system_stubs(cpu):
        versions = set(exported(stub).values())
        assert all(abi_floor.within_floor(version) for version in versions), stub.soname


@pytest.mark.parametrize(
    ("version", "within"),
    [
        ("GLIBC_2.28", True),
        ("GLIBC_2.29", False),
        ("GLIBC_2.2.5", True),
        ("GLIBC_ABI_DT_RELR", False),
        ("GLIBCXX_3.4.24", True),
        ("GLIBCXX_3.4.25", False),
        ("CXXABI_1.3.11", True),
        ("CXXABI_1.3.13", False),
        ("CXXABI_FLOAT128", True),
        ("GCC_7.0.0", True),
        ("GCC_12.0.0", False),
        ("LIBFOO_1", False),
    ],
)
def test_the_floor_is_compared_by_numbers(version, within):
    assert abi_floor.within_floor(version) is within


@pytest.mark.parametrize(
    "symbol",
    [
        Symbol(name="malloc", version="GLIBC_2.2.5"),
        Symbol(name="PyModule_Create2"),
        Symbol(name="aoti_torch_get_dim"),
        Symbol(name="torch_call_dispatcher"),
        Symbol(name="cublasGemmEx"),
        Symbol(name="_ZN3c1019UndefinedTensorImpl10_singletonE"),
        Symbol(name="_ZNK2at6Tensor3addERKNS_6ScalarE"),
        Symbol(name="_ZN5torch7LibraryC1ENS0_4KindENSt7__cxx1112basic_stringIcEE"),
        Symbol(name="_ZNSt6vectorIN2at6TensorESaIS1_EED1Ev"),
        Symbol(name="Sleef_expf16_u10"),
        Symbol(name="_ITM_registerTMCloneTable", weak=True),
    ],
)
def test_what_torch_and_python_define_is_resolvable(symbol):
    assert abi_floor.unresolvable([symbol]) == ()


@pytest.mark.parametrize(
    "symbol",
    [
        Symbol(name="quick_new_libc_function"),
        Symbol(name="cudaMalloc"),
        Symbol(name="_ZNSt10filesystem6statusERKNS_7__cxx114pathE"),
        Symbol(name="_ZSt21ios_base_library_initv"),
        Symbol(name="_ZTISt13runtime_error"),
        Symbol(name="_ZTVN10__cxxabiv117__class_type_infoE"),
        Symbol(name="_ZNKSt9exception4whatEv"),
        Symbol(name="_Znwm"),
        Symbol(name="exp", version="GLIBC_2.29"),
    ],
)
def test_what_a_machine_at_the_floor_lacks_is_unresolvable(symbol):
    assert abi_floor.unresolvable([symbol]) == (symbol,)
