# SPDX-License-Identifier: Apache-2.0
"""Findings for a small variant after each way to break it."""

import platform
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support import abi_stubs
from support.programs import output

from kernforge.artifact import integrity
from kernforge.artifact.metadata import Metadata
from kernforge.artifact.variant import Variant
from kernforge.binary import abi_floor
from kernforge.builder.layout import ops_module
from kernforge.check import api as check
from kernforge.system import process

pytestmark = pytest.mark.native

TESTS = Path(__file__).parents[1]
INCLUDE = TESTS.parent / "src" / "kernforge" / "include" / "torch-ext"
CPU = platform.machine()
NAME = f"torch-stable-abi210-cpu-{CPU}-linux"
ID = "_small_cpu_abc1234"
MODULE = '#include "registration.h"\nREGISTER_EXTENSION(TORCH_EXTENSION_NAME)\n'
INIT = "from . import _ops\n"


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """A directory with stubs/."""
    path = tmp_path_factory.mktemp("check")
    abi_stubs.make(path / "stubs", CPU)
    return path


def compiled(workshop: Path, source: str, flags=("-fno-gnu-unique",), link=()) -> Path:
    """An extension module of this source, linked against the stubs."""
    (workshop / "a.cpp").write_text(source)
    defines = (f"-DTORCH_EXTENSION_NAME={ID}", f"-I{INCLUDE}")
    output(("g++", "-std=c++17", "-fPIC", *defines, *flags, "-c", "a.cpp", "-o", "a.o"), workshop)
    args = (*abi_floor.link_args(stub_dir="stubs", backend="cpu"), *link)
    output(("g++", "-shared", "-o", "a.so", "a.o", *args), workshop)
    return workshop / "a.so"


def write_metadata(path: Path, **changes) -> None:
    """Metadata of the variant as it lies there, digest included."""
    known = Metadata(name="small", id=ID, version=1, license="MIT", backend="cpu")
    known = replace(known, digest=integrity.digest_tree(path), **changes)
    (path / "metadata.json").write_bytes(known.to_json())


@pytest.fixture(scope="module")
def good(workshop):
    path = workshop / "good" / NAME
    path.mkdir(parents=True)
    (path / "__init__.py").write_text(INIT)
    (path / "_ops.py").write_text(
        ops_module(ID, Variant.parse("torch-stable-abi210-cpu-x86_64-linux"))
    )
    shutil.copy(compiled(workshop, MODULE), path / f"{ID}.abi3.so")
    write_metadata(path)
    return path


@pytest.fixture
def variant(good, tmp_path):
    """A copy to break."""
    return shutil.copytree(good, tmp_path / "build" / NAME)


def found(path: Path, *, python: str | None = None) -> dict[str, str]:
    """Message and severity of each finding by rule; without the note on the missing import."""
    findings = check.check_variant(path, run=process.run, python=python)
    shown = [f for f in findings if python or f.rule != "import"]
    return {f.rule: f"{f.severity} {f.where}: {f.message}" for f in shown}


def with_extension(path: Path, module: Path) -> Path:
    shutil.copy(module, path / f"{ID}.abi3.so")
    write_metadata(path)
    return path


@pytest.mark.torch
def test_a_good_variant_has_no_finding(good):
    assert found(good, python=sys.executable) == {}
    assert not list(good.rglob("__pycache__"))


def test_links_to_a_registrys_blobs_are_allowed(variant, tmp_path):
    repo = tmp_path / "kernels--me--small"
    inside = repo / "snapshots" / "0123abc" / "build" / NAME
    shutil.copytree(variant, inside)
    (repo / "blobs").mkdir()
    (inside / "_ops.py").rename(repo / "blobs" / "0123")
    (inside / "_ops.py").symlink_to("../../../../blobs/0123")
    assert found(inside) == {}


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (lambda p: (p / "_ops.py").write_text("changed = 1\n"), "_ops.py is changed"),
        (lambda p: (p / "extra.json").write_text("{}"), "extra.json is extra"),
        (lambda p: (p / f"{ID}.abi3.so").unlink(), f"{ID}.abi3.so is missing"),
    ],
)
def test_deviations_from_the_digest_are_named(variant, change, state):
    change(variant)
    assert state in found(variant)["digest"]


def test_metadata_without_digest_is_a_warning(variant):
    write_metadata(variant)
    known = Metadata.from_json((variant / "metadata.json").read_bytes())
    (variant / "metadata.json").write_bytes(replace(known, digest=None).to_json())
    assert found(variant)["digest"].startswith("warning")


@pytest.mark.parametrize("text", [None, "{", "{}"])
def test_unreadable_metadata_ends_the_check(variant, text):
    (variant / "metadata.json").unlink()
    if text is not None:
        (variant / "metadata.json").write_text(text)
    assert list(found(variant)) == ["layout"]


def test_an_invalid_variant_name_is_found(variant):
    assert "not a variant name" in found(variant.rename(variant.with_name("mine")))["layout"]


def test_a_link_above_the_floor_is_found(variant, workshop):
    source = "#include <pthread.h>\n" + MODULE
    source += 'extern "C" int go(pthread_t* t) { return pthread_create(t, 0, 0, 0); }'
    (workshop / "b.cpp").write_text(source)
    flags = ("-fPIC", f"-DTORCH_EXTENSION_NAME={ID}", f"-I{INCLUDE}")
    output(("g++", "-shared", *flags, "b.cpp", "-o", "b.so"), workshop)
    message = found(with_extension(variant, workshop / "b.so"))["manylinux"]
    assert "GLIBC_2.34: pthread_create" in message


LIMITED = """extern "C" void* PyUnicode_AsUTF8AndSize(void*, void*);
extern "C" void* _PyDict_NewPresized(long);
void* a() { return PyUnicode_AsUTF8AndSize(_PyDict_NewPresized(1), nullptr); }"""


@pytest.mark.parametrize(
    ("source", "options", "rule", "words"),
    [
        (
            LIMITED,
            {},
            "python-abi",
            ["error", "_PyDict_NewPresized (never)", "PyUnicode_AsUTF8AndSize (Python 3.10)"],
        ),
        (
            "namespace c10 { void warn(); } void a() { c10::warn(); }",
            {},
            "torch-stable-abi",
            ["error", "_ZN3c104warnEv"],
        ),
        ("", {"link": ("-Wl,-rpath,/opt/cuda",)}, "dependencies", ["error", "/opt/cuda"]),
        (
            "inline int& a() { static int x; return x; } int* b() { return &a(); }",
            {"flags": ("-fgnu-unique",)},
            "unique",
            ["warning"],
        ),
        ('extern "C" void absent(); void a() { absent(); }', {}, "unresolved", ["error", "absent"]),
    ],
)
def test_a_librarys_fault_is_found(variant, workshop, *, source, options, rule, words):
    path = with_extension(variant, compiled(workshop, MODULE + source, **options))
    findings = found(path)
    assert [*findings] == [rule]
    assert all(word in findings[rule] for word in words)


def test_a_library_that_python_cannot_import_is_found(variant, workshop):
    findings = found(with_extension(variant, compiled(workshop, "int a;")))
    assert f"it does not define PyInit_{ID}" in findings["module"]


def test_unlisted_device_code_is_found(variant, workshop):
    shutil.copy(variant / f"{ID}.abi3.so", workshop / "fat.so")
    section = TESTS / "data" / "elf" / "nvcc.fatbin"
    output(("objcopy", f"--add-section=.nv_fatbin={section}", "fat.so"), workshop)
    message = found(with_extension(variant, workshop / "fat.so"))["archs"]
    assert "machine code for 7.5, 9.0, 9.0a, 10.0f, 12.1 is not listed" in message


def test_an_invalid_library_is_found(variant):
    (variant / f"{ID}.abi3.so").write_bytes(b"\x7fELF nonsense")
    write_metadata(variant)
    assert "not a readable ELF file" in found(variant)["abi"]


def test_another_cpus_library_is_found(variant):
    other = variant.with_name(NAME.replace(CPU, "aarch64" if CPU == "x86_64" else "x86_64"))
    assert f"compiled for {CPU}" in found(variant.rename(other))["machine"]


@pytest.mark.torch
@pytest.mark.parametrize("text", ["import no_such_module\n", "raise SystemExit(7)\n"])
def test_a_failing_import_is_found(variant, text):
    (variant / "__init__.py").write_text(text)
    write_metadata(variant)
    assert found(variant, python=sys.executable)["import"].startswith("error")


@pytest.mark.torch
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("impl('double'", "impl('duoble'", f"{ID}::duoble, and no such operator is defined"),
        (f"{ID!r}, 'DEF'", "'another', 'DEF'", f"torch.ops.{ID}, and none is registered there"),
    ],
)
def test_an_undefined_operator_is_found(variant, old, new, words):
    # In Python, because a library of the test would be compiled for each case.
    text = (
        "import torch\n"
        f"library = torch.library.Library({ID!r}, 'DEF')\n"
        "library.define('double(Tensor x) -> Tensor')\n"
        "library.impl('double', lambda x: x + x, 'CPU')\n"
        f"ops = torch.ops.{ID}\n"
    )
    (variant / "_ops.py").write_text(text)
    use = "from ._ops import ops\n\n\ndef double(x):\n    return ops.double(x)\n"
    (variant / "__init__.py").write_text(use)
    write_metadata(variant)
    assert "undefined-op" not in found(variant, python=sys.executable)
    (variant / "_ops.py").write_text(text.replace(old, new))
    write_metadata(variant)
    assert words in found(variant, python=sys.executable)["undefined-op"]


@pytest.mark.parametrize(
    ("name", "python", "reason"),
    [
        (NAME, None, "no Python runs it"),
        (NAME, "/nowhere/python", "no interpreter"),
        (NAME.replace("abi210", "abi2099"), sys.executable, "does not fit the variant"),
    ],
)
def test_an_impossible_import_is_skipped(variant, name, python, reason):
    path = variant.rename(variant.with_name(name))
    findings = check.check_variant(path, run=process.run, python=python)
    (finding,) = (f for f in findings if f.rule == "import")
    assert finding.severity == "skipped"
    assert reason in finding.message
    assert ("2099" not in name) or finding.hint.startswith("pip install 'torch>=2.99'")
