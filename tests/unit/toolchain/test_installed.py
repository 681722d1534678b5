# SPDX-License-Identifier: Apache-2.0
"""The torch that is installed here, read without importing it."""

import sys

import pytest

from kernforge.artifact.version import Version2
from kernforge.toolchain.installed import torch_here


@pytest.mark.parametrize(
    ("text", "cuda"),
    [("cuda: Optional[str] = None\n", None), ("cuda: Optional[str] = '12.6'\n", Version2(12, 6))],
)
def test_a_build_for_cuda_is_distinguished_from_one_without(tmp_path, monkeypatch, text, cuda):
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "version.py").write_text(f"__version__ = '2.12.1+x'\ndebug = False\n{text}")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    found = torch_here()
    assert (found.version, found.cuda) == (Version2(2, 12), cuda)
    (package / "version.py").unlink()
    assert torch_here() is None
