# SPDX-License-Identifier: Apache-2.0

import subprocess
import sys
import types

import pytest

from kernforge.errors import UsageError
from kernforge.testing import checks


def test_a_missing_operator_is_named():
    build = types.SimpleNamespace(relu=abs, ops=types.SimpleNamespace(gelu=sum), _own=1)
    assert checks._attribute(build, "ops.gelu") is sum
    with pytest.raises(UsageError, match=r"has no 'rleu'") as caught:
        checks._attribute(build, "rleu")
    assert caught.value.hint == "it has ops, relu"


COLLECTED = """
from kernforge.testing import op_tests

TestAbs = op_tests(op=abs, reference=abs, inputs=lambda draw, shape: (draw(shape),), devices="cpu")
TestDerived = op_tests(
    op=abs, reference=abs, inputs=lambda draw, shape: (draw(shape),), backward=True
)
"""


def test_undeclared_checks_are_not_collected(tmp_path):
    (tmp_path / "test_it.py").write_text(COLLECTED)

    def collected(*words):
        argv = [sys.executable, "-m", "pytest", "-p", "kernforge.testing.plugin", "--collect-only"]
        done = subprocess.run(
            [*argv, "-q", *words], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout

    names = collected()
    for name in ("gradients", "compiled_gradients"):
        assert f"TestAbs::test_{name}" not in names
        assert f"TestDerived::test_{name}" in names
    assert "test_second_gradients" not in names
    assert "test_more_than_2_to_the_31" not in names
    assert "test_sanitizer" not in names
    assert "TestAbs::test_cuda_graph" not in names
    names = collected("--sanitizer=memcheck", "-k", "sanitizer")
    assert "TestDerived::test_sanitizer" in names
    assert "TestAbs" not in names
