# SPDX-License-Identifier: Apache-2.0

import subprocess
import sys

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
