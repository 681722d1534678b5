# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.source.includes import closure

SOURCES = {
    "main.cu": '#include "a.h"\n#  include <vector>\n// #include "never.h"\n',
    "a.h": '#pragma once\n#include "sub/b.h"\n#include <shared.h>\n',
    "sub/b.h": '#include "../c.h"\n#include "d.h"\n',
    "sub/d.h": "",
    "c.h": '#include "a.h"\n',
    "inc/shared.h": "#include <ATen/ATen.h>\n",
    "other.h": "",
    "macro.cu": "#define X <a.h>\n#include X\n",
    "escape.cu": '#include "../outside.h"\n',
    "cond.cu": '#if 0\n#include "c.h"\n#endif\n',
}


def test_includes_are_followed_from_where_they_stand():
    found = closure("main.cu", SOURCES, ("inc",))
    assert found.files == ("a.h", "c.h", "inc/shared.h", "main.cu", "sub/b.h", "sub/d.h")
    assert found.foreign == ("ATen/ATen.h", "vector")
    assert found.reaches_torch
    assert not found.opaque


def test_without_the_include_directory_a_header_is_foreign():
    found = closure("main.cu", SOURCES, ())
    assert "shared.h" in found.foreign
    assert not found.reaches_torch


def test_a_condition_does_not_hide_an_include():
    assert "c.h" in closure("cond.cu", SOURCES, ()).files


def test_an_include_of_a_macro_may_reach_everything():
    found = closure("macro.cu", SOURCES, ())
    assert found.opaque
    assert found.reaches_torch
    assert set(found.files) == set(SOURCES)


def test_a_header_that_a_macro_stands_for_is_reached():
    sources = {
        "a.cu": '#include "config.h"\n#include ZLIB\n',
        "config.h": '#define ZLIB <zlib.h>\n#  define OTHER "/opt/x.h"\n#define LINE 3\n',
        "other.h": "#include <png.h>\n",
    }
    assert {"zlib.h", "/opt/x.h", "png.h"} <= set(closure("a.cu", sources, ()).foreign)
    sources["a.cu"] = '#include "config.h"\n'
    assert closure("a.cu", sources, ()).foreign == ()


def test_nothing_outside_the_project_is_reached():
    assert closure("escape.cu", SOURCES, ()).foreign == ("../outside.h",)


@pytest.mark.parametrize(
    ("name", "torch", "aten_cuda", "python"),
    [
        ("torch/csrc/stable/tensor.h", True, False, False),
        ("ATen/cuda/CUDAContext.h", True, True, False),
        ("torch/extension.h", True, True, True),
        ("Python.h", False, False, True),
        ("cuda_runtime.h", False, False, False),
        ("torchvision.h", False, False, False),
    ],
)
def test_a_header_reaches_torch_cuda_and_python(name, torch, aten_cuda, python):
    found = closure("x.cpp", {"x.cpp": f"#include <{name}>\n"}, ())
    assert (found.reaches_torch, found.reaches_aten_cuda, found.reaches_python) == (
        torch,
        aten_cuda,
        python,
    )


def test_an_include_behind_has_include_is_optional():
    sources = {"x.cpp": '#include "r.h"\n', "r.h": "#include <Python.h>\n"}
    assert closure("x.cpp", sources, ()).reaches_python
    found = closure("x.cpp", sources, (), content=["r.h"])
    assert (found.files, found.foreign) == (("r.h", "x.cpp"), ())
