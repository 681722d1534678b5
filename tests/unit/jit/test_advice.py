# SPDX-License-Identifier: Apache-2.0
"""What is said of slow modules, of a second attempt, and of functions that are undefined."""

import pytest

from kernforge.jit import advice, plan
from kernforge.jit.session import JitSession
from kernforge.source.includes import closure
from kernforge.source.message_names import MessageNames
from kernforge.system.environment import Environment

SLOW = "#include <torch/extension.h>\nvoid f();\n"
NAMES = MessageNames(parts={})
STABLE = "#include <torch/csrc/stable/library.h>\nSTABLE_TORCH_LIBRARY(a, m) {}\n"


def unit(text, path="home/me/main.cpp"):
    found = closure(path, {path: text}, ())
    return plan.ModuleUnit(path=path, texts={path: text}, closure=found)


def test_it_names_file_header_and_what_was_measured():
    said = advice.slow_hint([unit(STABLE), unit(SLOW)], 41.3, NAMES)
    assert said.startswith("main.cpp includes <torch/extension.h>, and compiling took 41 s.")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "seconds"), [(SLOW, 1.0), (STABLE, 60.0), ("#include <vector>\n", 60.0)]
)
def test_it_says_nothing_where_there_is_nothing_to_gain(text, seconds):
    assert advice.slow_hint([unit(text)], seconds, NAMES) == ""


def test_the_hint_is_shown_once_and_can_be_switched_off(capsys):
    advice.show_slow_hint(
        JitSession(environment=Environment({"KERNFORGE_JIT_HINT": "0"})), [unit(SLOW)], 9, NAMES
    )
    assert capsys.readouterr().err == ""
    session = JitSession(environment=Environment({}))
    for _ in range(2):
        advice.show_slow_hint(session, [unit(SLOW)], 9, NAMES)
    assert capsys.readouterr().err.count("torch/extension.h") == 1


# -- twice ------------------------------

TYPO = "a.cpp:3:5: error: 'scael' was not declared in this scope; did you mean 'scale'?\n"


def test_a_second_attempt_says_what_it_waits_for():
    said = advice.retry_notice("a.cpp cannot be compiled\n" + TYPO)
    assert said.startswith("a.cpp:3:5: error: 'scael' was not declared in this scope")
    assert said.endswith("; compiling again with all of torch's headers, which takes longer")


# -- undefined ------------------------------

TEXTS = {
    "relu.h": "void relu(const float* x);\n",
    "relu.cu": '#include "relu.h"\n__global__ void k() {}\n',
    "other.cu": "__global__ void other() {}\n",
    "torch-ext/binding.cpp": '#include "../relu.h"\nvoid f() { mine::relu(x); }\n',
}
KERNELS = ("relu.cu", "other.cu", "relu.h")
NAME = "mine::relu(float const*)"


@pytest.mark.parametrize(
    ("words", "symbol"),
    [
        ("/a/b.so: undefined symbol: _ZN4mine4reluEPKf", "_ZN4mine4reluEPKf"),
        ("/a/b.so: undefined symbol: relu", "relu"),
        ("libcudart.so.13: cannot open shared object file", ""),
    ],
)
def test_the_missing_symbol_is_read_from_the_loaders_words(words, symbol):
    assert advice.missing_symbol(words) == symbol


def test_it_is_reported_where_the_function_is_named_and_where_it_belongs():
    error = advice.undefined_error("relu", NAME, TEXTS, KERNELS)
    assert error.message == (
        f"relu cannot be imported: {NAME} is named in relu.h, torch-ext/binding.cpp, "
        "and no source defines it"
    )
    assert error.hint.startswith("define it in relu.cu (namespace and arguments")


def test_where_no_source_includes_the_header_any_may_define_it():
    texts = {**TEXTS, "relu.cu": ""}
    assert "define it in other.cu or relu.cu (" in (
        advice.undefined_error("relu", NAME, texts, KERNELS).hint
    )
    assert "define it in a source (" in advice.undefined_error("relu", NAME, texts, ()).hint


def test_a_function_that_the_project_does_not_name_is_not_its_own():
    assert advice.undefined_error("relu", "at::empty(long)", TEXTS, KERNELS) is None
