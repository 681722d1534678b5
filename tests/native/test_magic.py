# SPDX-License-Identifier: Apache-2.0
"""``%%kernforge`` in a real IPython shell and in a real notebook."""

import pytest
from native.test_jit import PLAIN
from native.test_jit_reports import SLIM
from support import jit_homes

from kernforge.extension import notebook

pytest.importorskip("torch")
interactiveshell = pytest.importorskip("IPython.core.interactiveshell")

pytestmark = [pytest.mark.native, pytest.mark.torch, pytest.mark.usefixtures("home")]
home = jit_homes.home


@pytest.fixture
def shell():
    shell = interactiveshell.InteractiveShell.instance()
    shell.run_cell("%load_ext kernforge").raise_error()
    yield shell
    interactiveshell.InteractiveShell.clear_instance()


def run(shell, cell):
    return shell.run_cell(cell, silent=False)


def test_a_cell_is_a_module_and_an_edited_one_a_new_module(shell):
    run(shell, "%%kernforge toy --no-headers\n" + PLAIN % 1).raise_error()
    first = shell.user_ns["toy"]
    run(shell, "%%kernforge toy --no-headers\n" + PLAIN % 2).raise_error()
    assert (first.value(), shell.user_ns["toy"].value()) == (1, 2)
    run(shell, "%%kernforge toy --no-headers\n" + PLAIN % 1).raise_error()
    assert shell.user_ns["toy"] is first


def test_an_error_has_the_cells_line_and_no_traceback(shell, capsys):
    cell = "%%kernforge wrong --no-headers\n\nint good;\nint wrong = nonsense + 1;\n" + PLAIN % 1
    failed = run(shell, cell)
    assert isinstance(failed.error_in_exec, notebook.CellError)
    shown = capsys.readouterr()
    text = shown.out + shown.err
    assert "cell:4:13: error: " in text
    assert "nonsense" in text
    assert "int wrong = nonsense + 1;" in text
    assert "Traceback" not in text
    assert "cpp_sources" not in text
    assert "wrong" not in shell.user_ns


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%%kernforge bare --no-headers\nint x;\n", "no source defines the module bare"),
        ("%%kernforge my-toy --no-headers\n" + PLAIN % 1, "call it 'my_toy'"),
        ("%%kernforge toy --no-headers --cflags=-DX=\\'\n" + PLAIN % 1, "cannot be read"),
    ],
)
def test_an_invalid_cell_is_reported_without_a_traceback(shell, capsys, cell, message):
    assert isinstance(run(shell, cell).error_in_exec, notebook.CellError)
    shown = capsys.readouterr()
    assert message in shown.out + shown.err
    assert "Traceback" not in shown.out + shown.err


CUDA = """// %% cuda
__global__ void fill(float* x) { x[threadIdx.x] = VALUE; }
int launch(float* x) { fill<<<1, 32>>>(x); return cudaGetLastError(); }
"""


def test_a_cell_of_two_languages_compiles_and_each_has_its_lines(shell, capsys, monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    cell = "%%kernforge both --cuda-cflags=-DVALUE=1\n" + PLAIN % 3 + CUDA
    run(shell, cell.replace("both", "both --no-headers")).raise_error()
    assert shell.user_ns["both"].value() == 3
    capsys.readouterr()
    lines = cell.replace("both", "both --no-headers").replace("-DVALUE=1", "-O3")
    failed = run(shell, lines)
    assert isinstance(failed.error_in_exec, notebook.CellError)
    number = 1 + [line.startswith("__global__") for line in lines.splitlines()].index(True)
    assert f'cell({number}): error: identifier "VALUE" is undefined' in capsys.readouterr().out


def test_functions_are_variables(shell, home, kept_home):
    jit_homes.lend_results(home, kept_home)
    cell = "%%kernforge bound --functions twice\nint64_t twice(int64_t x) { return 2 * x; }\n"
    run(shell, cell).raise_error()
    assert shell.user_ns["twice"](21) == 42
    assert shell.user_ns["bound"].twice(1) == 2
    jit_homes.keep_results(home, kept_home)


def test_a_cell_on_the_stable_abi_gives_its_operators(shell):
    text = (SLIM % "number").replace("jit_mistake", "cell_twice")
    run(shell, f"%%kernforge cell_twice --functions twice{text}").raise_error()
    assert shell.user_ns["cell_twice"].twice(21) == 42
    assert shell.user_ns["twice"](1) == 2


def test_flags_reach_the_compiler(shell):
    cell = "%%kernforge flagged --no-headers --cflags '-DFACTOR=21 -DNUMBER=2*FACTOR'\n"
    run(shell, cell + PLAIN % "NUMBER").raise_error()
    assert shell.user_ns["flagged"].value() == 42
