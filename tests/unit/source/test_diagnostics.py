# SPDX-License-Identifier: Apache-2.0
"""Complaints as the compilers write them; the texts are theirs (g++ 12, nvcc 13.0, clang 22)."""

import pytest

from kernforge.source import diagnostics
from kernforge.source.diagnostics import Diagnostic

GCC = """In file included from a.cpp:1:
b.h: In function 'int f()':
b.h:4:10: error: 'z' was not declared in this scope; did you mean 'y'?
    4 |   return z;
      |          ^
      |          y
b.h:3:7: note: 'y' declared here
a.cpp:9:3: warning: unused variable 'q' [-Wunused-variable]
a.cpp:7: note: this is the location
a.cpp:1:10: fatal error: nothing.h: No such file or directory
compilation terminated.
"""
NVCC = """bad.cu(13): error: no instance of function template "k" matches the argument list
            argument types are: (float *, int)
    k<double><<<1, 1>>>(x, 3);
    ^
bad.cu(4): note #3322-D: number of parameters of function template "k" does not match the call
  __attribute__((global)) void k(T* x) {
                               ^

bad.cu(5): warning #177-D: variable "unused" was declared but never referenced
   int unused;
       ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

bad.cu(16): error: expected a ";"
  }
  ^
          detected during instantiation of "void k(T *) [with T=float]" at line 12

2 errors detected in the compilation of "bad.cu".
"""
PTXAS = """\
ptxas error   : Entry function '_Z1kPf' uses too much shared data (0x40000 bytes, 0xc000 max)
ptxas /there/x.ptx, line 31; error   : Unknown symbol 'y'
ptxas fatal   : Ptx assembly aborted due to errors
"""
LINKER = """/usr/bin/ld: out.o: in function `go()':
a.cpp:(.text+0x5): undefined reference to `missing()'
collect2: error: ld returned 1 exit status
"""


def shown(text):
    return [(d.file, d.line, d.column, d.severity, d.message) for d in diagnostics.parse(text)]


def test_gcc_and_clang():
    assert shown(GCC) == [
        ("b.h", 4, 10, "error", "'z' was not declared in this scope; did you mean 'y'?"),
        ("b.h", 3, 7, "note", "'y' declared here"),
        ("a.cpp", 9, 3, "warning", "unused variable 'q' [-Wunused-variable]"),
        ("a.cpp", 7, 0, "note", "this is the location"),
        ("a.cpp", 1, 10, "error", "nothing.h: No such file or directory"),
    ]


def test_nvcc_with_columns_from_its_carets():
    first, note, warning, last = shown(NVCC)
    assert first[:4] == ("bad.cu", 13, 3, "error")
    assert first[4].endswith("\nargument types are: (float *, int)")
    # Its line has ``__global__`` expanded.
    assert note[:4] == ("bad.cu", 4, 17, "note")
    assert warning[:4] == ("bad.cu", 5, 6, "warning")
    assert last[:4] == ("bad.cu", 16, 1, "error")
    assert "at line 12" in last[4]


def test_ptxas_and_the_linker():
    assert [row[:4] for row in shown(PTXAS)] == [
        ("", 0, 0, "error"),
        ("/there/x.ptx", 31, 0, "error"),
        ("", 0, 0, "error"),
    ]
    assert shown(LINKER) == [("", 0, 0, "error", "undefined reference to `missing()'")]


def test_a_line_that_comes_twice_is_printed_once():
    assert len(diagnostics.parse(PTXAS + PTXAS)) == 3


def test_errors_keep_their_notes_and_no_others():
    kept = diagnostics.errors(diagnostics.parse(GCC))
    assert [d.severity for d in kept] == ["error", "note", "error"]


TEXT = "one\n\ttwo(x, y);\nthree\nfour\nfive\n"


@pytest.mark.parametrize(
    ("line", "column", "wanted"),
    [
        (2, 6, ["  1 | one", "> 2 | \ttwo(x, y);", "    | \t    ^", "  3 | three", "  4 | four"]),
        (5, 0, ["  3 | three", "  4 | four", "> 5 | five"]),
        (1, 1, ["> 1 | one", "    | ^", "  2 | \ttwo(x, y);", "  3 | three"]),
        (6, 1, []),
        (0, 0, []),
    ],
)
def test_the_line_that_is_meant(line, column, wanted):
    one = Diagnostic(file="a", line=line, column=column, severity="error", message="no")
    assert list(diagnostics.excerpt(one, {"a": TEXT}.get)) == wanted


def test_a_file_that_cannot_be_shown_is_named_all_the_same():
    one = Diagnostic(file="gone.h", line=3, column=1, severity="error", message="no")
    assert diagnostics.excerpt(one, {}.get) == ()
    assert diagnostics.title(one) == "gone.h:3:1: error: no"
    assert diagnostics.title(
        Diagnostic(file="", line=0, column=0, severity="error", message="x")
    ) == ("error: x")
