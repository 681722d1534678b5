# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.artifact.metadata import Metadata
from kernforge.artifact.variant import Variant
from kernforge.binary.elf import Elf, Symbol
from kernforge.binary.fatbin import Architectures
from kernforge.check.abi_rules import Library, check_library

STABLE = "torch-stable-abi210-cpu-x86_64-linux"
FULL = "torch210-cxx11-cpu-x86_64-linux"


def findings(rule, *undefined, variant=STABLE, backend="cpu", archs=None, code=((), ()), **elf):
    """The findings of one rule for a library, messages with hints."""
    empty = {"machine": "x86_64", "soname": "", "needed": (), "rpath": (), "exported": ()}
    library = Library(
        elf=Elf(**{**empty, **elf}, undefined=undefined),
        code=Architectures(cubins=code[0], ptx=code[1]),
        variant=Variant.parse(variant),
        metadata=Metadata(
            name="a-b", id="_a_b", version=1, license="", backend=backend, archs=archs
        ),
    )
    every = check_library(library, where="a.so")
    return [f"{each.severity}: {each.message} {each.hint}" for each in every if each.rule == rule]


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
def test_an_undefined_launcher_is_found_with_the_stable_abi(symbol, own):
    assert len(findings("unresolved", symbol)) == own
    assert not findings("unresolved", symbol, variant=FULL)


@pytest.mark.parametrize(
    ("backend", "needed", "words"),
    [
        ("cpu", ["libc10.so", "libtorch_cpu.so", "libtorch.so", "libstdc++.so.6"], []),
        ("cpu", ["libm.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2", "libgcc_s.so.1"], []),
        ("cpu", ["ld-linux-aarch64.so.1"], []),
        ("cuda", ["libc10_cuda.so", "libtorch_cuda.so"], []),
        ("cpu", ["libc10_cuda.so"], ["libc10_cuda"]),
        ("cuda", ["libcudart.so.13"], ["-cudart=static"]),
        ("cuda", ["libcuda.so.1", "libcublas.so.13"], ["libcuda.so.1", "libcublas"]),
        (
            "cpu",
            ["libgomp.so.1", "libpython3.11.so.1.0", "libtorch_python.so"],
            ["libgomp", "libpython3.11", "libtorch_python"],
        ),
    ],
)
def test_only_libraries_of_the_system_and_torch_are_allowed(backend, needed, words):
    texts = findings("dependencies", backend=backend, needed=needed)
    assert [word in text for word, text in zip(words, texts, strict=True)] == [True] * len(words)


@pytest.mark.parametrize(
    ("name", "stable"),
    [
        ("aoti_torch_get_dim", True),
        ("torch_call_dispatcher", True),  # 2.10
        ("_ZN5torch6stable6detail3fooEv", True),
        ("_ZN5torch10headeronly4HalfC1Ef", True),
        ("_ZNSt7__cxx1112basic_stringIcE6appendEPKc", True),
        ("_ZN4mine1fEN2at6TensorE", True),
        ("_ZN3c104impl8GPUTrace13gpuTraceStateE", False),
        ("_ZNK2at6Tensor3sumEv", False),
        ("_ZN5torch7LibraryD1Ev", False),
        ("_ZTIN3c105ErrorE", False),
        ("_ZN6caffe28TypeMeta5emptyEv", False),
    ],
)
def test_only_torchs_stable_abi_is_allowed(name, stable):
    texts = findings("torch-stable-abi", Symbol(name=name, weak=True))
    assert [name in text for text in texts] == [True] * (not stable)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("torch_call_dispatcher", (2, 10)),
        ("torch_from_blob", (2, 11)),
        ("aoti_torch_dtype_float8_e8m0fnu", (2, 12)),
        ("torch_stream_native_handle", (2, 13)),
    ],
)
def test_a_function_newer_than_the_target_is_found(name, version):
    def texts(minor):
        variant = STABLE.replace("210", f"{version[0]}{minor}")
        return findings("torch-stable-abi", Symbol(name=name), variant=variant)

    assert not texts(version[1])
    (text,) = texts(version[1] - 1)
    assert f"{name} ({version[0]}.{version[1]})" in text
    assert f'stable-abi = "{version[0]}.{version[1]}"' in text


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
    texts = findings("archs", code=(cubins, ptx), archs=archs, backend=backend)
    assert [message in text for text in texts] == [True] * bool(message)
