# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.source import op_schema
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


READABLE = (
    "f(Dict(str, Tensor(a)) d, (int, Tensor) pair) -> Tensor",
    "f(Tensor x, Tensor! out) -> ()",
    "f(Tensor x) -> Tensor",
    "f() -> ()",
    "ns::f.out(Tensor(a!) x, Tensor?[] y, int[2] z, Dict(str, Tensor) d) -> (Tensor(a!) r, int)",
    "f(Tensor x, *, float e=1e-5, str s='a,b', int[] c=[1,2], Tensor? o=None) -> Tensor[]",
    "f(Tensor (a!) x, int [] y, ...) -> ...",
    "f(ScalarType a, Layout? b, MemoryFormat c, Device d, Generator? e, Scalar f, complex g) -> ()",
    "f(Stream a, Storage b, QScheme c, SymInt d, Any f, SymInt[] g) -> Scalar",
)
UNREADABLE = (
    "f(Tensor x) -> (",
    "f(Tensor x) ->",
    "f(Tensor x)",
    "f(Tensor x -> Tensor",
    "f(Tensor) -> Tensor",
    "f(Tensor x,) -> Tensor",
    "f(Tensor a b) -> Tensor",
    "f(Tensor x=) -> Tensor",
    "f(int64_t x) -> Tensor",
    "f(double x) -> Tensor",
    "f(Tensor x, flot a) -> Tensor",
    "f(Tensr[]? x) -> ()",
    "f(Tensor x) -> Tensro",
    "f(Tensor x) -> (Tensor, itn)",
    "f(Tensor x) -> void",
    "1f(Tensor x) -> Tensor",
)


@pytest.mark.parametrize("schema", [*READABLE, *UNREADABLE])
def test_a_schema_is_refused_exactly_where_torch_refuses_it(schema):
    assert bool(op_schema.mistake(schema)) is (schema in UNREADABLE)
    torch = pytest.importorskip("torch")
    try:
        torch._C.parse_schema(schema, allow_typevars=False)
    except RuntimeError:
        assert schema in UNREADABLE
    else:
        assert schema in READABLE


def test_a_class_that_the_module_registers_is_a_type():
    assert op_schema.mistake("f(__torch__.torch.classes.a.B x) -> ()") == ""
