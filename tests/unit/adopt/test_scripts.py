# SPDX-License-Identifier: Apache-2.0
"""A script is run with mocks of torch, in the sandbox; its calls of load are recorded."""

import pytest

from kernforge.adopt import program
from kernforge.adopt.api import adopt

HEAD = """
import os.path as osp
from pathlib import Path
import triton_that_is_not_here
import torch, torch.nn.functional as F
from torch import nn
from torch.utils import cpp_extension
from torch.utils.cpp_extension import load as compile_now
import kernforge
HERE = Path(__file__).resolve().parent
class Net(nn.Module):
    pass
"""
CALLS = """
compile_now(f"my_{osp.basename(HERE)}", ["k.cu"])
kernforge.load(name="b", sources=[HERE / "k.cu", "none.cu"])
x = torch.zeros(2)
cpp_extension.load_inline("c", ["int64_t g();"], ("__global__ void k() {}",))
if __name__ == "__main__":
    compile_now("d", "k.cu").f(x)
    compile_now("e", "k.cu")
secrets = [path for path in ("../secret", "/etc/passwd") if Path(path).exists()]
compile_now("f", "k.cu", secrets)
"""
INLINE = """
def first_use():
    cpp = "void run(); int64_t go(int64_t n) { run(); return n; }"
    return cpp_extension.load_inline("my-mod", cpp, open("k.cu").read(), functions={"go": "Runs."})
"""


@pytest.fixture
def old(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "place").mkdir()
    (tmp_path / "old/k.cu").write_text("void run() {}\n")
    (tmp_path / "secret").write_text("x")
    return tmp_path / "old"


def test_each_jit_call_of_a_script_is_a_module(old, tmp_path):
    (old / "script.py").write_text(HEAD + CALLS)
    found = program.read(old / "script.py", tmp_path / "place")
    sources = {each.name: [*each.sources] for each in found.modules}
    assert sources == {
        "my_old": ["k.cu"],
        "b": ["k.cu"],
        "c": ["c.cpp", "c.cu"],
        "d": ["k.cu"],
        "e": ["k.cu"],
        "f": ["k.cu"],
    }
    assert not any(each.cxx_flags for each in found.modules)  # the sandbox hides other files
    assert [str(each) for each in found.remarks if each.line] == [
        "script.py:15: source none.cu is not in the project"
    ]


def test_load_inline_in_an_uncalled_function(old, tmp_path):
    (old / "script.py").write_text(HEAD + INLINE)
    adopted = adopt(old / "script.py", dest=tmp_path / "new")
    assert adopted.operators == {"go": "go(int n) -> int"}
    assert "void run() {}" in (tmp_path / "new/my_mod.cu").read_text()
    module = (tmp_path / "new/torch-ext/my_mod/__init__.py").read_text()
    assert "def go(n):" in module
    assert '"""Runs."""' in module
