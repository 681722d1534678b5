# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.source.message_names import MessageNames, Part

NAMES = MessageNames(
    files=("home/me/a.h",),
    parts={
        "main.cpp": (
            Part(label="cpp_sources", first=2, count=10),
            Part(label="functions", first=13, count=2),
        ),
        "cuda.cu": (Part(label="cuda_sources", first=4, count=90),),
    },
)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("main.cpp:3:5: error: expected ';'", "cpp_sources:2:5: error: expected ';'"),
        ("cuda.cu(12): error: identifier", "cuda_sources(9): error: identifier"),
        ("main.cpp:13:29: error: 'f' was not", "functions:1:29: error: 'f' was not"),
        ("In file included from main.cpp:1:", "In file included from generated:1:"),
        ("main.cpp: In function 'int f()':", "cpp_sources: In function 'int f()':"),
        ("home/me/a.h:3:1: error: no", "/home/me/a.h:3:1: error: no"),
        ("/other/main.cpp:3:1: error: no", "/other/main.cpp:3:1: error: no"),
        ("domain.cpp:3:1: error: no", "domain.cpp:3:1: error: no"),
    ],
)
def test_places_are_those_of_the_users_sources(written, shown):
    assert NAMES.restore(written) == shown


def test_the_margin_of_shown_lines_is_numbered_alike():
    written = """main.cpp:10:3: error: no
   10 |   x
      |   ^
home/me/a.h:10:3: note: there
   10 |   y
cuda.cu:10:3: note: and here
   10 |   z"""
    assert (
        NAMES.restore(written)
        == """cpp_sources:9:3: error: no
    9 |   x
      |   ^
/home/me/a.h:10:3: note: there
   10 |   y
cuda_sources:7:3: note: and here
    7 |   z"""
    )


def test_a_file_of_the_users_stays_as_it_is():
    names = MessageNames(files=("main.cpp",), parts={})
    assert names.restore("main.cpp:3:1: error: no") == "/main.cpp:3:1: error: no"
    assert (names.title("main.cpp"), NAMES.title("cuda.cu")) == ("main.cpp", "cuda_sources")
