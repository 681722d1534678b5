# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from support import graphs

from kernforge.builder import pool as cost
from kernforge.builder.pool import Estimate, Measures

MB = 10**6
NVCC = replace(
    graphs.action("a.cu", ""),
    kind="cuda",
    argv=("%{cuda-13.0}/bin/nvcc", "-c", "a.cu"),
    archs=("8.0", "8.6", "9.0", "10.0"),
    trees=("cuda-13.0", "cxx"),
)
ATEN = replace(NVCC, trees=("cuda-13.0", "torch-2.13"))
CPP = replace(NVCC, kind="c++", argv=("%{cxx}", "-c", "a.cpp"), trees=("cxx",))
LINK = replace(CPP, kind="link", argv=("%{cxx}", "-o", "x.so", "1.o"))


def test_guesses_are_in_order_of_weight():
    found = [cost.guess(a, jobs=4) for a in (LINK, CPP, NVCC, ATEN)]
    assert [e.memory for e in found] == sorted(e.memory for e in found)
    assert [e.seconds for e in found] == sorted(e.seconds for e in found)


def test_a_first_build_for_another_processor_is_guessed_as_one_for_this():
    cross = replace(ATEN, trees=("aarch64-torch-2.13", "cuda-13.0"))
    assert cost.guess(cross, jobs=4) == cost.guess(ATEN, jobs=4)


def test_more_architectures_at_once_need_more_memory():
    assert cost.guess(ATEN, jobs=1).memory < cost.guess(ATEN, jobs=8).memory
    assert cost.identity(ATEN, jobs=1) != cost.identity(ATEN, jobs=4)
    assert cost.identity(ATEN, jobs=4) == cost.identity(ATEN, jobs=8)


def test_an_edit_keeps_the_identity():
    first = replace(CPP, argv=(*CPP.argv, "-DTORCH_EXTENSION_NAME=_k_cpu_0123456789"), key="1")
    second = replace(CPP, argv=(*CPP.argv, "-DTORCH_EXTENSION_NAME=_k_cpu_abcdef6789"), key="2")
    assert cost.identity(first, jobs=1) == cost.identity(second, jobs=1)
    assert cost.identity(first, jobs=1) != cost.identity(CPP, jobs=1)


def test_a_peak_is_believed_at_once_and_forgotten_slowly():
    known = cost.learned(None, peak_bytes=100 * MB, wall_s=1)
    known = cost.learned(known, peak_bytes=1000 * MB, wall_s=3)
    assert known == Estimate(memory=1000 * MB, seconds=2)
    assert cost.learned(known, peak_bytes=10 * MB, wall_s=2).memory == 800 * MB


def test_measurements_outlive_the_process_and_damage(tmp_path):
    Measures(tmp_path, jobs=1).learn(CPP, peak_bytes=70 * MB, wall_s=8)
    assert Measures(tmp_path, jobs=1).expect(CPP) == Estimate(memory=70 * MB, seconds=8)
    (path,) = tmp_path.rglob("*.json")
    path.write_text("{")
    assert Measures(tmp_path, jobs=1).expect(CPP) == cost.guess(CPP, jobs=1)


def test_the_critical_path_is_the_longest_chain():
    a = graphs.action("a", "")
    b = graphs.action("b", "", needs=[a])
    c = graphs.action("c", "", needs=[a])
    d = graphs.action("d", "", needs=[b, c])
    names = {one.key: one.title for one in (a, b, c, d)}
    seconds = {a.key: 1.0, b.key: 10.0, c.key: 2.0, d.key: 5.0}
    expected = {key: Estimate(memory=1, seconds=each) for key, each in seconds.items()}
    found = cost.critical_paths((a, b, c, d), expected)
    assert {names[k]: v for k, v in found.items()} == {"a": 16, "b": 15, "c": 7, "d": 5}


@pytest.mark.parametrize("known", [None, Estimate(memory=5, seconds=5)])
def test_learning_never_gives_less_than_what_was_seen(known):
    assert cost.learned(known, peak_bytes=50 * MB, wall_s=1).memory == 50 * MB


def test_what_was_too_short_to_see_is_not_free():
    assert cost.learned(None, peak_bytes=0, wall_s=0.1).memory > 10 * MB
