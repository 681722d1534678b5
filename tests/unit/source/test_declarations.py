# SPDX-License-Identifier: Apache-2.0
import functools
from collections import Counter

from kernforge.source.declarations import (
    Declared,
    declared,
    occurs,
    used_namespaces,
    without_files,
)

HEADERS = b"""#define CHECK(scale) do { scale
namespace at { inline namespace v1 {
class __attribute__((visibility("default"))) Tensor;
class Tensor : public Base { int scale(); };
inline Tensor relu(const Tensor& scale, Sizes s = {}, double alpha = 1) { int beta = 1; return {}; }
Tensor relu(Tensor);
inline Tensor Tensor::abs() const { return relu(*this); }
template <typename gamma, int delta = 3> struct Pair {};
enum class Kind { half, full = 2 };
using Half = int;
constexpr int block = 3;
}}
extern "C" { void launch(float* block); }
using namespace at::literals;
"""


def of(*names):
    return declared(HEADERS, names)


def test_what_is_declared_at_namespace_scope_is_found():
    space = ("at", "v1")
    assert of("Tensor") == Counter({Declared(space, "Tensor", "definition"): 1}) + Counter(
        {Declared(space, "Tensor", "name"): 1}
    )
    assert of("relu") == Counter({Declared(space, "relu", "function"): 2})
    assert of("Pair", "Half", "block") == Counter(
        [
            Declared(space, "Pair", "definition"),
            Declared(space, "Half", "name"),
            Declared(space, "block", "name"),
        ]
    )
    assert of("half") == Counter([Declared((*space, "Kind"), "half", "name")]) or of("half")
    assert of("launch") == Counter([Declared((), "launch", "function")])
    assert of("CHECK") == Counter([Declared((), "CHECK", "macro")])


def test_parameters_members_and_locals_are_not():
    assert not of("scale", "alpha", "beta", "gamma", "delta", "abs", "s")


def test_the_users_files_do_not_count():
    text = b"""# 1 "a.cpp"
int mine;
# 1 "/torch/a.h" 1
int theirs;
# 2 "a.cpp" 2
int mine_too;
"""
    left = without_files(text, lambda name: name == "a.cpp")
    assert left == b"int theirs;\n"


def test_namespaces_that_are_used_are_known():
    assert used_namespaces(HEADERS) == {"at", "literals"}


def test_a_name_occurs_as_a_whole_word_outside_of_some_files():
    text = (
        b'# 1 "a.cpp"\n# 1 "torch.h" 1\nint empty_like(int a);\n#define TWO 2\n'
        b'# 3 "a.cpp" 2\nint nubmer = empty_lik;\n'
    )
    found = functools.partial(occurs, text, is_excluded=lambda name: name == "a.cpp")
    assert found("empty_like")
    assert found("TWO")
    assert found("a")
    assert not found("empty_lik")
    assert not found("nubmer")
    assert not found("mpty_like")
    assert occurs(text, "nubmer", lambda _name: False)
    assert occurs(b"nubmer", "nubmer", lambda _name: True)
