# SPDX-License-Identifier: Apache-2.0
"""registration.h makes an importable module, with Python's headers and without them."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

INCLUDE = Path(__file__).parents[2] / "src" / "kernforge" / "include" / "torch-ext"
SOURCE = """
#include "registration.h"
static_assert(sizeof(STRINGIFY(MODULE_NAME)) == sizeof("_registered"), "the name is expanded");
int CONCAT(value_of, MODULE_NAME) = 0;
int* expanded = &value_of_registered;
REGISTER_EXTENSION(MODULE_NAME)
"""

pytestmark = pytest.mark.native


def _import(directory: Path, *flags: str, source: str = SOURCE, checks: str = "") -> bytes:
    """Compile, import in a fresh process, and give the object's bytes."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler here")
    (directory / "module.cpp").write_text(source)
    command = [compiler, "-std=c++17", "-O2", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    command += ["-DMODULE_NAME=_registered", f"-I{INCLUDE}", *flags]
    for step in (
        ["-c", "module.cpp", "-o", "m.o"],
        ["-shared", "m.o", "-o", "_registered.abi3.so"],
    ):
        subprocess.run([*command, *step], cwd=directory, check=True)
    code = "import _registered; assert _registered.__name__ == '_registered', _registered"
    subprocess.run([sys.executable, "-c", f"{code}; {checks}"], cwd=directory, check=True)
    return (directory / "m.o").read_bytes()


def test_a_module_without_python_headers(tmp_path):
    _import(tmp_path)


def test_python_headers_give_the_same_object(tmp_path):
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").is_file():
        pytest.skip("this Python has no headers")
    without, with_headers = tmp_path / "without", tmp_path / "with"
    without.mkdir()
    with_headers.mkdir()
    ours, theirs = _import(without), _import(with_headers, f"-isystem{headers}")
    # From 3.13 on, headers give the definition the count of an immortal object.
    if sys.version_info < (3, 13):
        assert ours == theirs
