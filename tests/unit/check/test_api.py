# SPDX-License-Identifier: Apache-2.0
import sys

import pytest
from support.variants import write_variant

from kernforge.check.api import check_variant
from kernforge.system.process import run


def test_a_cuda_variant_is_imported_where_a_gpu_is_visible(tmp_path):
    torch = pytest.importorskip("torch")
    files = {"__init__.py": "raise RuntimeError('broken')\n", "_ops.py": ""}
    path = write_variant(tmp_path, variant="torch-cuda", backend="cuda", files=files)
    (found,) = [
        f for f in check_variant(path, run=run, python=sys.executable) if f.rule == "import"
    ]
    if torch.cuda.is_available():
        assert found.severity == "error"
        assert "broken" in found.message
    else:
        assert found.severity == "skipped"
        assert "no NVIDIA GPU is visible" in found.message or "is for no CUDA" in found.message
