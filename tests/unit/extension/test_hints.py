# SPDX-License-Identifier: Apache-2.0
"""What is said of slow modules, of a second attempt, and of functions that are undefined."""

import pytest

from kernforge.extension import make, plan
from kernforge.source.includes import closure

SLOW = "#include <torch/extension.h>\nvoid f();\n"
STABLE = "#include <torch/csrc/stable/library.h>\nSTABLE_TORCH_LIBRARY(a, m) {}\n"


def unit(text, path="home/me/main.cpp"):
    found = closure(path, {path: text}, ())
    return plan.ExtensionUnit(path=path, texts={path: text}, closure=found)


def test_the_slow_hint_names_file_header_and_seconds():
    said = make.slow_hint([unit(STABLE), unit(SLOW)], 41.3)
    assert said.startswith("main.cpp includes <torch/extension.h>, and compiling took 41 s.")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "seconds"), [(SLOW, 1.0), (STABLE, 60.0), ("#include <vector>\n", 60.0)]
)
def test_the_slow_hint_needs_a_slow_header(text, seconds):
    assert make.slow_hint([unit(text)], seconds) == ""


# -- twice ------------------------------

TYPO = "a.cpp:3:5: error: 'scael' was not declared in this scope; did you mean 'scale'?\n"


def test_the_retry_notice_has_the_first_error():
    said = make.retry_notice("a.cpp cannot be compiled\n" + TYPO)
    assert said.startswith("a.cpp:3:5: error: 'scael' was not declared in this scope")
    assert said.endswith("; compiling again with all of torch's headers, which takes longer")
