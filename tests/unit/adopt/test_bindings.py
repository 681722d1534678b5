# SPDX-License-Identifier: Apache-2.0
"""Bindings become registrations: schemas, conversions, and what is left is said with its line."""

import re

import pytest

from kernforge.adopt.bindings import Source, with_c_linkage


def translated(text):
    source = Source(path="op.cpp", text=text, texts=[text], keys=("CUDA",), prefix="", remarks=[])
    source.translate()
    return source


def bound(declaration, binding):
    opened = "PYBIND11_MODULE(x, m, py::mod_gil_not_used()) {"
    return translated(f"#include <torch/extension.h>\n{declaration}\n{opened}\n{binding}\n}}\n")


@pytest.mark.parametrize(
    ("declaration", "binding", "schema"),
    [
        ("torch::Tensor f(torch::Tensor x) {}", '"f", &f', "f(Tensor x) -> Tensor"),
        (
            "at::Tensor f(const at::Tensor& x, float s);",
            '"f", &f',
            "f(Tensor x, float s) -> Tensor",
        ),
        ("int f(int n, bool b = true);", '"f", f', "f(int n, bool b) -> int"),
        (
            "at::Tensor f(at::Tensor x, std::string how);",
            '"f", &f, "", py::arg("x"), py::arg("how") = ""',
            'f(Tensor x, str how="") -> Tensor',
        ),
        (
            (
                "std::vector<torch::Tensor> "
                "f(std::vector<at::Tensor> xs, c10::optional<at::Tensor> w);"
            ),
            '"f", &f',
            "f(Tensor[] xs, Tensor? w) -> Tensor[]",
        ),
        (
            "std::tuple<at::Tensor, at::Tensor> f(at::Tensor x, std::string how);",
            '"f", &f, "doc", py::arg("x"), py::arg("how") = "sum"',
            'f(Tensor x, str how="sum") -> (Tensor, Tensor)',
        ),
        (
            "at::Tensor f(at::Tensor x, double s, c10::optional<int64_t> n);",
            '"f", &f, py::arg("y"), py::arg("scale") = 2, "n"_a = py::none()',
            "f(Tensor y, float scale=2., int? n=None) -> Tensor",
        ),
        (
            "void f(const at::Tensor& x, at::Tensor& y);",
            '"f", &f',
            "f(Tensor x, Tensor(a!) y) -> ()",
        ),
        (
            "at::Tensor f(at::Tensor x) { x.mul_(2); return x; }",
            '"f", &f',
            "f(Tensor(a!) x) -> Tensor(a!)",
        ),
        ("namespace a { at::Tensor f(at::Tensor x); }", '"f", &a::f', "f(Tensor x) -> Tensor"),
        (
            "at::Tensor f(at::Tensor x, int n = 1'000, int m = 2'000);",
            '"f", &f',
            "f(Tensor x, int n, int m) -> Tensor",
        ),
        (
            "int f(at::Tensor x, at::Tensor y) { run(x.data_ptr<const float>(), y.data_ptr()); }",
            '"f", &f',
            "f(Tensor x, Tensor(a!) y) -> int",
        ),
        (
            "bool f(const at::Tensor& x, std::vector<at::Tensor> ys);",
            '"f", &f',
            "f(Tensor x, Tensor(a!)[] ys) -> bool",
        ),
        (
            "double f(at::Tensor x) { return x.sum().item<double>(); }",
            '"f", f',
            "f(Tensor x) -> float",
        ),
        (
            "struct A : B<int> { T f(int n); }; T A::f(int n) { } at::Tensor f(at::Tensor x);",
            '"f", &f',
            "f(Tensor x) -> Tensor",
        ),
        (
            "class A final { static at::Tensor f(int n); };\nat::Tensor f(at::Tensor x);",
            '"f", &A::f',
            "f(int n) -> Tensor",
        ),
        (
            "std::tuple<int, torch::Tensor, float> f(at::Tensor x);",
            '"f", &f',
            "f(Tensor x) -> (int, Tensor, float)",
        ),
        ("std::pair<at::Tensor, bool> f();", '"f", &f', "f() -> (Tensor, bool)"),
        ("std::optional<size_t> f();", '"f", &f', "f() -> int?"),
        (
            "namespace a { at::Tensor f(at::Tensor x); }",
            '"f", torch::wrap_pybind_function(&a::f), "doc"',
            "f(Tensor x) -> Tensor",
        ),
        (
            "at::Tensor f(at::Tensor x);",
            '"f", torch::wrap_pybind_function_no_gil(f)',
            "f(Tensor x) -> Tensor",
        ),
        (
            "#define A(x) B(x); \\\n  C(x)\n#define D(x) E(x); F(x)\n\nat::Tensor f(at::Tensor x);",
            '"f", &f',
            "f(Tensor x) -> Tensor",
        ),
    ],
)
def test_schemas(declaration, binding, schema):
    result = bound(declaration, f"m.def({binding});")
    assert [operator.schema for operator in result.operators] == [schema]
    assert not [r for r in result.remarks if r.kind == "left"]
    escaped = schema.replace('"', '\\"')
    assert f'ops.def("{escaped}"' in result.text
    assert "PYBIND11" not in result.text


def test_narrow_number_types_are_converted():
    result = bound("at::Tensor f(at::Tensor x, float s, int n);", 'm.def("f", &f);')
    assert (
        'ops.impl("f", torch::kCUDA, [](at::Tensor x, double s, int64_t n) '
        "{ return f(x, static_cast<float>(s), static_cast<int>(n)); });" in result.text
    )
    result = bound("std::tuple<int, at::Tensor> f();", 'm.def("f", &f);')
    assert "{ return static_cast<std::tuple<int64_t, at::Tensor>>(f()); });" in result.text
    result = bound("int f(float s);", 'm.def("f", &f);')
    assert (
        'ops.def("f(float s) -> int", [](double s) '
        "{ return static_cast<int64_t>(f(static_cast<float>(s))); });" in result.text
    )


@pytest.mark.parametrize(
    ("declaration", "binding", "message"),
    [
        ("", 'm.def("f", &f);', "no declaration of f in"),
        ("at::Tensor f(py::object o);", 'm.def("f", &f);', "cannot take `py::object o`"),
        ("std::map<int, int> f();", 'm.def("f", &f);', "cannot return `std::map<int, int>`"),
        ("at::Tensor f(float* p);", 'm.def("f", &f);', r"cannot take `float\* p`"),
        ("int f(std::vector<float> v);", 'm.def("f", &f);', "cannot take `std::vector<float> v`"),
        ("int f(c10::optional<float> v);", 'm.def("f", &f);', "cannot take `c10::optional<float>"),
        ("int f(const char* c);", 'm.def("f", &f);', r"cannot take `const char\* c`"),
        ("template <class T> T f(T x);", 'm.def("f", &f);', "no declaration of f in"),
        ("int f(int a); int f(double a);", 'm.def("f", &f);', "f is overloaded"),
        ("int g();", 'm.def("f", [] { return g(); });', "is not the name of a function"),
        ("void bind(py::module& m);", "bind(m);", "cannot become an operator"),
        ("int f(int a);", 'm.def("f", py::overload_cast<int>(&f));', "is not the name"),
        ("int f();", 'm.def("lambda", &f);', "lambda: not a name of a Python function"),
        ("struct S {};", 'py::class_<S>(m, "S").def(py::init<>());', "cannot become an operator"),
        ("int f();", 'm.attr("x") = 1;', "cannot become an operator"),
        ("int g();", 'm.attr("x").def("g", &g);', "cannot become an operator"),
        ("int f(int n);", 'm.def("f", &f, py::arg("n") = kDefault);', "is not a literal"),
    ],
)
def test_untranslated_binding_is_a_remark_with_its_line(declaration, binding, message):
    result = bound(declaration, f"\n\n{binding}")
    (remark,) = [r for r in result.remarks if r.kind == "left"][:1]
    assert re.search(message, remark.text), remark
    assert (remark.path, remark.line) == ("op.cpp", 6)


def test_preprocessor_conditions_are_preserved():
    result = bound(
        "int64_t f(); int64_t g();",
        '// m.def("old", &old);\n#ifdef WITH_G\nm.def("g", &g);  // m.def(\n#endif\n'
        'm.def("f", &f);',
    )
    assert [operator.name for operator in result.operators] == ["g", "f"]
    lines = [line.strip() for line in result.text.splitlines()]
    assert lines.index("#ifdef WITH_G") < lines.index('ops.def("g() -> int", &g);')
    assert lines.index('ops.def("g() -> int", &g);') < lines.index("#endif")


def test_named_op_namespace_is_replaced():
    text = """
TORCH_LIBRARY(own, ops) { ops.def("f(Tensor x, Tensor! out) -> ()"); }
TORCH_LIBRARY_IMPL(own, CUDA, ops) { ops.impl("f", &f); }
"""
    result = translated(text)
    assert "TORCH_LIBRARY_FRAGMENT(TORCH_EXTENSION_NAME, ops) {" in result.text
    assert "TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CUDA, ops) {" in result.text
    assert [operator.name for operator in result.operators] == ["f"]
    # The same function is bound for Python, too.
    result = bound(text, 'm.def("f", &f);')
    assert [operator.name for operator in result.operators] == ["f"]
    assert not [r for r in result.remarks if r.kind == "left"]
    assert result.text.count('"f') == 2


def test_schema_of_a_declared_operator_is_read():
    declared = r'ops.def("own::f.out(Tensor x, str by=\",\", int[2] k=[1, 2]) -> ()");'
    text = f"TORCH_LIBRARY(own, ops) {{ {declared} }}"
    (operator,) = translated(text).operators
    assert operator.schema == 'f.out(Tensor x, str by=",", int[2] k=[1, 2]) -> ()'


def test_declaration_gets_c_linkage_of_its_definition():
    defined = ['extern "C" void run(float* x, int n) {}\nvoid other(int n) {}\n']
    text = "\nvoid run(float* x, int n);\nvoid other(int n);\nint f() { run(0, 1); }\n"
    result, lines = with_c_linkage(text, defined)
    assert lines == {"run": 2}
    assert '\nextern "C" void run(float* x, int n);\nvoid other' in result
    assert with_c_linkage(result, defined) == (result, {})


def test_handwritten_pyinit_is_a_remark():
    text = "#include <Python.h>\nPyObject* PyInit__C(void) { return PyModule_Create(&made); }\n"
    result = translated(text)
    assert "PyInit__C" in result.text
    (remark,) = [r for r in result.remarks if r.kind == "left"]
    assert (remark.line, "remove it" in remark.text) == (2, True)
