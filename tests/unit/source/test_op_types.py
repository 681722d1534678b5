# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.source import op_types


def disagreements(schema, function, how="TORCH_BOX(&run)", before=""):
    text = f"""{before}
STABLE_TORCH_LIBRARY(a, m) {{ m.def("f{schema}"); }}
{function} {{ return g(run(x)); }}
STABLE_TORCH_LIBRARY_IMPL(a, CPU, m) {{ m.impl("f", {how}); }}
"""
    return [problem for _, _, problem in op_types.disagreements({"b.cpp": text})]


@pytest.mark.parametrize(
    ("schema", "function", "says"),
    [
        (
            "(Tensor x, int s) -> Tensor",
            "Tensor run(Tensor x, double s)",
            "int s, C++ takes double s",
        ),
        ("(float s=1.0) -> ()", "void run(int64_t s)", "float s=1.0, C++ takes int64_t s"),
        ("(float s) -> ()", "void run(float)", "float s, C++ takes float"),
        ("(int n) -> ()", "static void run(int n)", "int n, C++ takes int n"),
        ("(bool b, *, int n) -> ()", "void run(bool b, bool n)", "int n, C++ takes bool n"),
        ("(Tensor? x) -> ()", "void run(Tensor x)", "Tensor? x, C++ takes Tensor x"),
        ("(int[] n) -> ()", "void run(std::vector<double> n)", "int[] n"),
        ("(SymInt n) -> ()", "void run(std::string n)", "SymInt n"),
        ("(Device d) -> ()", "void run(ScalarType d)", "Device d"),
        ("(ScalarType? t) -> ()", "void run(std::optional<double> t)", "ScalarType? t"),
        ("(Tensor(a!) x, int n) -> ()", "void run(Tensor& x)", "2 arguments, C++ takes 1 in run"),
        ("() -> ()", "void run(Tensor x)", "0 arguments, C++ takes 1"),
        ("() -> Tensor", "void run(void)", "-> Tensor, C++ returns void from run"),
        ("() -> (Tensor, int)", "auto run() -> std::tuple<Tensor, Tensor>", "-> (Tensor, int)"),
        ("() -> (Tensor, Tensor y)", "std::tuple<Tensor, Tensor, Tensor> run()", "-> (Tensor, "),
        ("(int n) -> ()", "using T = double;\nvoid run(T n)", "int n, C++ takes double n"),
    ],
)
def test_a_function_that_differs_from_its_schema_is_named(schema, function, says):
    (problem,) = disagreements(schema, function)
    assert problem.startswith("the schema of f (b.cpp:2) says ")
    assert says in problem


@pytest.mark.parametrize(
    ("schema", "function"),
    [
        ("(Tensor x, Tensor(a!)? y) -> Tensor(a!)", "Tensor& n::run(Tensor, optional<Tensor>& y)"),
        ("(int a, SymInt b, int c, int d) -> int", "long run(long a, SymInt b, size_t c, int64_t)"),
        ("(int[2] a, int[]? b) -> ()", "void run(at::IntArrayRef a, at::OptionalIntArrayRef b)"),
        ("(Tensor?[] c) -> ()", "void run(const c10::List<std::optional<at::Tensor>>& c)"),
        ("(float[] a, str s) -> ()", "void run(HeaderOnlyArrayRef<double> a, std::string_view s)"),
        ("(ScalarType t, Layout l, MemoryFormat m) -> ()", "void run(ScalarType, int32_t l, int)"),
        ("() -> (Tensor y, int n)", "inline std::tuple<Tensor, int64_t> run()"),
        ("(int n) -> Tensor", "template <class T> T run(T n)"),
        ("(int n, Scalar s, Dict(str, Tensor) d) -> ()", "void run(Number n, double s, long d=3)"),
        ("(Tensor x) -> ()", "void run(c10::DispatchKeySet keys, const Tensor& x)"),
        ("(float x) -> ()", "void run(long n) {}\nvoid run(double x)"),
        ("(float x) -> ()", "struct S { void run(long n) {} };\nMAKE(run)"),
        ("(float x, ...) -> ()", "void run(long n)"),
        ("(float x) -> ()", "MAKE(run, long)"),
        ("(float x) -> ()", "void run(StableIValue* stack, uint64_t n, uint64_t m)"),
    ],
)
def test_what_may_be_right_is_accepted(schema, function):
    assert disagreements(schema, function) == []


def test_types_are_read_through_each_form_of_a_binding():
    wrong = "void run(double n)"
    for how in ("&run", "run", "TORCH_FN(run)", "TORCH_BOX(&ns::run)", "torch::kCUDA, &run<T>"):
        assert disagreements("(int n) -> ()", wrong, how), how
