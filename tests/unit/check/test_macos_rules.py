# SPDX-License-Identifier: Apache-2.0
"""Variants for macOS, with libraries of real wheels."""

import sys

import pytest
from support import macho as libraries

from kernforge.check import api as check
from kernforge.system.process import run

CPU = "torch29-cpu-aarch64-darwin"


@pytest.fixture
def findings(tmp_path, write_variant):
    """What is found in a variant with this library, and these further files: messages by rules."""

    def start(data, variant=CPU, **files):
        backend = variant.split("-")[-3]
        directory = tmp_path / "build" / variant
        directory.mkdir(parents=True)
        (directory / f"_toy_{backend}_aaaaaaa.abi3.so").write_bytes(data)
        for path, text in files.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_text(text)
        write_variant(tmp_path / "build", variant=variant, backend=backend)
        found = check.check_variant(directory, run=run, python=sys.executable)
        return {f.rule: f"{f.severity}: {f.message}" for f in found if f.rule != "import"}

    return start


@pytest.mark.parametrize("variant", [CPU, "torch29-metal-aarch64-darwin"])
def test_a_library_of_the_limited_api_is_good(findings, variant):
    assert findings(libraries.read("psutil.abi3.so"), variant) == {}


def test_the_import_is_left_to_a_mac(tmp_path, write_variant):

    (tmp_path / CPU).mkdir()
    library = tmp_path / CPU / "_toy_cpu_aaaaaaa.abi3.so"
    library.write_bytes(libraries.read("psutil.abi3.so"))
    directory = write_variant(tmp_path, variant=CPU)
    (finding,) = check.check_variant(directory, run=run, python=sys.executable)
    assert (finding.rule, finding.severity) == ("import", "skipped")
    assert "it is for darwin" in finding.message


def test_pythons_own_api_is_found(findings):
    found = findings(libraries.read("markupsafe.so"))
    assert found.keys() == {"python-abi"}
    assert "PyUnicode_New (never)" in found["python-abi"]


@pytest.mark.parametrize(
    ("change", "rule", "said"),
    [
        (lambda d: libraries.needing(d, 26), "macos", "error: it needs macOS 26.0"),
        (lambda d: libraries.needing(d, 15, 1), "macos", "error: it needs macOS 15.1"),
        (
            lambda d: libraries.without(d, libraries.BUILD_VERSION),
            "macos",
            "error: it does not say which macOS",
        ),
        (
            lambda d: libraries.without(d, libraries.CODE_SIGNATURE),
            "signature",
            "error: it has no code signature",
        ),
        (lambda d: d.replace(b"/usr/lib/libSystem", b"/opt/lib/libSystem"), "dependencies", "/opt"),
        (lambda d: d.replace(b"_PyErr_Clear\0", b"_pyErr_clear\0"), "unresolved", "pyErr_clear"),
        (lambda d: d[:12] + b"\2" + d[13:], "machine", "neither a bundle nor a dynamic library"),
        (lambda d: d[:5000], "abi", "error: the file is not a readable Mach-O file"),
        (lambda d: b"\x7fELF" + d[4:], "abi", "error: the file is not a readable Mach-O file"),
    ],
)
def test_each_rule_finds_what_breaks(findings, change, rule, said):
    found = findings(change(libraries.read("psutil.abi3.so")))
    assert said in found[rule]


def test_fifteen_is_not_too_new(findings):
    assert findings(libraries.needing(libraries.read("psutil.abi3.so"), 15)) == {}


def test_code_for_another_cpu_is_found(findings):
    found = findings(libraries.read("psutil.abi3.so"), "torch29-cpu-x86_64-darwin")
    assert "compiled for aarch64, the variant is for x86_64" in found["machine"]


def test_torchs_stable_abi_is_that_of_the_name(findings):
    found = findings(
        libraries.read("libtorchaudio.abi3.so"), "torch-stable-abi29-metal-aarch64-darwin"
    )
    assert found.keys() == {"dependencies", "torch-stable-abi"}
    assert "torch_call_dispatcher (2.10)" in found["torch-stable-abi"]


def test_a_library_inside_of_the_variant_is_no_foreign_one(findings):
    data = libraries.read("libtorchaudio.abi3.so")
    data = data.replace(b"@loader_path/../.dylibs/", b"@loader_path/b/../inner/")
    stable = "torch-stable-abi210-metal-aarch64-darwin"
    found = findings(data, stable, **{"inner/libc++.1.0.dylib": "not looked at"})
    assert found["dependencies"].startswith("warning: it has a library search path: /Users/")
    assert found["abi"].startswith("error"), "the one inside is checked too"


def test_a_windows_variant_is_still_skipped(findings):
    found = findings(b"MZ", "torch29-cpu-x86_64-windows")
    assert found["abi"].startswith("skipped: a library for windows")
