# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.source.op_schema import read_operators, schema_lines, schemas_in


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('ops.def("f(Tensor x) -> Tensor");', ["f(Tensor x) -> Tensor"]),
        ('m->def ( "f(Tensor x,"\n  // note\n  "  int n) -> ()" );', ["f(Tensor x, int n) -> ()"]),
        ('m.def(R"(f(Tensor x) -> Tensor)");', ["f(Tensor x) -> Tensor"]),
        ('m.def("f", &f, "what it does");', ["f"]),
        ('m.def("ns::f.out(Tensor x) -> ()", &f);', ["ns::f.out(Tensor x) -> ()"]),
        ('m.def(torch::schema("f(Tensor x) -> ()"), &f);', []),
        ('// ops.def("f(Tensor x) -> Tensor");', []),
        ('/* ops.def("f() -> ()"); */ log("ops.def(\\"g() -> ()\\")");', []),
        ('#define X\nm.def("a() -> ()");\n#else\nm.def("a() -> ()");', ["a() -> ()"]),
        ('m.impl("f", torch::kCUDA, &f); char c = \'"\'; m.def("g() -> ()");', ["g() -> ()"]),
        ("", []),
    ],
)
def test_schemas_are_found_where_sources_register_them(source, found):
    assert list(schemas_in(source)) == found


def test_a_schema_is_read_into_its_parts():
    schema = "f.out(Tensor x, int[2]? s=[1, 1], str t='a, b', *, Tensor(a!) out) -> (Tensor, int)"
    (entry,) = read_operators([schema]).values()
    assert [(p.type, p.name, p.default, p.passed) for p in entry.parameters] == [
        ("Tensor", "x", None, "either way"),
        ("int[2]?", "s", "[1, 1]", "either way"),
        ("str", "t", "'a, b'", "either way"),
        ("Tensor!", "out", None, "by name"),
    ]
    assert entry.returns == "(Tensor,int)"


def test_spellings_that_mean_the_same_are_the_same():
    one, other = (
        read_operators([s])
        for s in ("f(Tensor! o, Tensor x)->()", "ns::f(Tensor(b!)  o,Tensor x) -> ()")
    )
    assert one == other
    assert read_operators(["f(Tensor(a) x) -> Tensor(a)"]) != read_operators(
        ["f(Tensor x) -> Tensor"]
    )


def test_an_operator_whose_schema_torch_infers_has_a_name_alone():
    assert read_operators(["f"])["ops.f"].parameters is None


def test_registered_schemas_have_their_lines_right_or_wrong():
    source = """TORCH_LIBRARY(a, m) {
  m.def("f(Tensor x, flot a)"
        " -> Tensor");
  m.def("inferred", &f);
  m.def("g(");
}
#ifdef MORE
TORCH_LIBRARY_FRAGMENT(a, m) { m.def("h(flot a) -> Tensor"); }
#endif
"""
    assert schema_lines(source) == [(2, "f(Tensor x, flot a) -> Tensor"), (5, "g(")]
    assert not schema_lines('PYBIND11_MODULE(a, m) { m.def("f(x)", &f); }')
