# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.jit import advice, plan
from kernforge.source.includes import closure
from kernforge.system.console import Report

SLOW = "#include <torch/extension.h>\nvoid f();\n"
STABLE = "#include <torch/csrc/stable/library.h>\nSTABLE_TORCH_LIBRARY(a, m) {}\n"


def unit(text, path="home/me/main.cpp"):
    found = closure(path, {path: text}, ())
    return plan.Unit(path=path, texts={path: text}, closure=found)


@pytest.fixture(autouse=True)
def silent(monkeypatch):
    monkeypatch.setattr(advice, "_said", set())


def test_it_names_file_header_and_what_was_measured():
    said = advice.hint([unit(STABLE), unit(SLOW)], 41.3)
    assert said.startswith("main.cpp includes <torch/extension.h>, and compiling took 41 s.")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "seconds"), [(SLOW, 1.0), (STABLE, 60.0), ("#include <vector>\n", 60.0)]
)
def test_it_says_nothing_where_there_is_nothing_to_gain(text, seconds):
    assert advice.hint([unit(text)], seconds) == ""


def test_it_is_said_once_and_can_be_switched_off(monkeypatch, capsys):
    monkeypatch.setenv("KERNFORGE_JIT_HINT", "0")
    advice.tell([unit(SLOW)], 9, Report())
    assert capsys.readouterr().err == ""
    monkeypatch.delenv("KERNFORGE_JIT_HINT")
    for _ in range(2):
        advice.tell([unit(SLOW)], 9, Report())
    assert capsys.readouterr().err.count("torch/extension.h") == 1
