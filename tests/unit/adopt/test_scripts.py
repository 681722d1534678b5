# SPDX-License-Identifier: Apache-2.0
"""A script is run with mocks of torch, in the sandbox; its calls of load are recorded."""

import pytest

from kernforge.adopt import program

HEAD = """
import os.path as osp
from pathlib import Path
import triton_that_is_not_here
import torch, torch.nn.functional as F
from torch import nn
from torch.utils import cpp_extension
from torch.utils.cpp_extension import load as compile_now, load_inline
import kernforge
HERE = Path(__file__).resolve().parent
NAME = f"my_{osp.basename(HERE)}"
class Net(nn.Module):
    pass
"""
CALLS = {
    "compile_now(NAME, ['k.cu'])": ("my_old", ["k.cu"]),
    "kernforge.load(name='b', sources=[HERE / 'k.cu', 'none.cu'])": ("b", ["k.cu"]),
    "load_inline('c', 'int f();', open('k.cu').read(), functions='f')": ("c", ["c.cpp", "c.cu"]),
    "x = torch.zeros(2)\ncpp_extension.load_inline('d', ['int g();'])": ("d", ["d.cpp"]),
    "def first_use():\n    return compile_now('e', 'k.cu')": ("e", ["k.cu"]),
    "if __name__ == '__main__':\n    Net(compile_now('f', 'k.cu').f)": ("f", ["k.cu"]),
}


@pytest.fixture
def old(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "place").mkdir()
    (tmp_path / "old/k.cu").write_text("source")
    (tmp_path / "secret").write_text("x")
    return tmp_path / "old"


@pytest.mark.parametrize(("call", "module"), CALLS.items())
def test_a_call_of_the_jit_is_a_module(old, call, module):
    (old / "script.py").write_text(HEAD + call)
    found = program.read(old / "script.py", old.parent / "place")
    assert [(each.name, [*each.sources]) for each in found.modules] == [module]
    if module[0] == "c":
        assert "source" in found.get("c.cu")


def test_a_link_out_of_the_project_is_not_read(old):
    (old / "a.h").symlink_to("../secret")
    assert program.text_in(old, "a.h") is None
    assert program.text_in(old, "../secret") is None
