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


@pytest.mark.parametrize("headers", [False, True], ids=["without Python.h", "with Python.h"])
def test_the_macros_make_an_importable_module(tmp_path, headers):
    compiler, place = shutil.which("c++"), Path(sysconfig.get_path("include"))
    if compiler is None or (headers and not (place / "Python.h").is_file()):
        pytest.skip("no C++ compiler, or no headers of Python here")
    (tmp_path / "module.cpp").write_text(SOURCE)
    argv = [compiler, "-std=c++17", "-O2", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}"]
    argv += ["-DMODULE_NAME=_registered", *([f"-isystem{place}"] if headers else [])]
    argv += ["-shared", "module.cpp", "-o", "_registered.abi3.so"]
    subprocess.run(argv, cwd=tmp_path, check=True)
    code = "import _registered; assert _registered.__name__ == '_registered', _registered"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
