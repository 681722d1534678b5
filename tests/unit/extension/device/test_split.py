# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.extension.device import split

SOURCE = """#include <cuda_runtime.h>
#define SIZE 4
namespace mine {
__constant__ float table[SIZE] = {1, 2, 3, 4};
struct Pair { int a; __host__ __device__ int sum() const { return a; } };
__device__ __forceinline__ float twice(float x) { return 2 * x; }
__host__ __device__ float both(float x) { return x; }
template <typename T, int N = SIZE>
__global__ void __launch_bounds__(256) kernel(T* x, long n) {
#pragma unroll
  for (int i = 0; i < N; ++i) x[i] = twice(x[i]);  // here
}
static int calls = 0;
void launch(float* x, long n);
}  // namespace mine
extern "C" {
void mine::launch(float* x, long n) { kernel<<<1, 256>>>(x, n); ++calls; }
}
"""


def host(text, **more):
    found = split.split(text, split.macros(text), **more)
    assert found is not None
    return found.host


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x[i] = twice(x[i])", "x[i] = 3 + twice(x[i]);\n  if (n) { x[0] = '}'; }"),
        ("return 2 * x", "return x + x"),
        ("#pragma unroll", "#pragma unroll 2"),
        ("// here", "/* there\n */"),
        ("static int", "\n\nstatic  /* a comment */ int"),
    ],
)
def test_the_hosts_part_stays_when_device_code_and_comments_change(before, after):
    assert before in SOURCE
    assert host(SOURCE) == host(SOURCE.replace(before, after))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<<<1, 256>>>", "<<<1, 128>>>"),
        ("T* x, long n) {", "T* x, int n) {"),
        ("SIZE 4", "SIZE 5"),
        ("{1, 2, 3, 4}", "{1, 2, 3, 5}"),
        ("{ return x; }", "{ return -x; }"),  # of a function that both have
        ("return a;", "return -a;"),
        ("(256)", "(128)"),
        ("twice(float x) {", "twice(float x) noexcept {"),
        ("calls = 0", "calls = 1"),
        ("#pragma unroll", "#define LEAKS 1"),
        ("// here", "\n#ifdef A\n#endif"),
    ],
)
def test_the_hosts_part_changes_with_all_that_the_host_may_see(before, after):
    assert before in SOURCE
    assert host(SOURCE) != host(SOURCE.replace(before, after))


KERNEL = "__global__ void k(int* x) {\n  x[0] = 1;\n}\n"


@pytest.mark.parametrize(
    "value",
    [
        "template <class W>\nconstexpr W kFar = sizeof(W) == 4 ? 16 : 40;\n",
        "struct A { static constexpr int kFar = sizeof(A) == 4 ? 16 : 40; };\n",
    ],
)
def test_a_value_may_have_two_cases(value):
    text = value + KERNEL
    assert host(text) == host(text.replace("x[0] = 1;", "x[0] = 2;"))
    assert host(text) != host(text.replace("16", "17"))


@pytest.mark.parametrize(
    "word", ["assert(n)", "use(__LINE__)", "f(std::source_location::current())"]
)
def test_where_line_numbers_count_a_moved_line_is_a_change(word):
    text = KERNEL + f"void h(int n) {{ {word}; }}\n"
    longer = text.replace("x[0] = 1;", "x[0] =\n    1;")
    assert host(text) != host(longer)
    assert host(text) == host(text.replace("x[0] = 1;", "x[0] = 2;"))
    assert host(KERNEL) == host(KERNEL.replace("x[0] = 1;", "x[0] =\n    1;"))
    assert host(KERNEL, exact=True) != host(
        KERNEL.replace("x[0] = 1;", "x[0] =\n    1;"), exact=True
    )


CLASS = """template <class T>
struct alignas(8) Op : Base<T> {
  using type = T;
  static constexpr int kInputs = 1;
  enum { kA, kB };
  int count = 0, more{3};
  unsigned low : 4;
  struct Inner { __device__ int nested() { return 11; } int left; } inner;
  __host__ __device__ explicit Op(int n) : count(n), more{n} { ++count; }
  virtual ~Op() = default;
 private:
  __device__ __forceinline__ T operator()(const T (&given)[1]) const {
    return given[0] + 12;  // here
  }
  __device__ __half narrow(float v) noexcept { return __float2half_rn(v + 13); }
  template <class U> __device__ U as() const { return U(14); }
  __device__ bool operator==(const Op& other) const { return other.count == 15; }
  __device__ operator int() const { return 16; }
  __host__ __device__ int both() const { return 17; }
  int hosts() { return 18; }
  __device__ constexpr int value() const { return 19; }
  __device__ auto deduced() const { return 20; }
  friend __device__ int of(Op) { return 21; }
  __device__ MACRO int unknown() { return 22; }
  __device__ int asked(T t) requires requires(T u) { u + 23; } { return 24; }
  __device__ int conditional() {
#if SOMETHING
    return 25;
#endif
  }
  __device__ explicit Op(float n) : more{26} { count = 27; }
};
__global__ void kernel(Op<int> op, int* x) { x[0] = op.both(); }
int launch(int* x) { kernel<<<1, 1>>>(Op<int>(1), x); return 28; }
"""


@pytest.mark.parametrize("number", [11, 12, 13, 14, 15, 16])
def test_a_member_function_of_the_gpus_alone_has_a_body_that_the_host_lacks(number):
    assert host(CLASS) == host(CLASS.replace(str(number), "99"))


@pytest.mark.parametrize("number", range(17, 29))
def test_other_member_functions_are_the_hosts_too(number):
    assert host(CLASS) != host(CLASS.replace(str(number), "99"))


@pytest.mark.parametrize(
    "member",
    [
        "int (*table[2])(int) = {nullptr, nullptr};",
        "function<int()> f = [] __device__ () { return 3; };",
        "Op() try : count(1) { } catch (...) { }",
        "template <int V = int{}> void odd();",
    ],
)
def test_members_of_other_kinds_are_the_hosts_beside_those_of_the_gpu(member):
    text = CLASS.replace(" private:", f"  {member}\n private:")
    assert member in text
    assert host(text) == host(text.replace("12", "99"))
    assert host(text) != host(text.replace(member, member.replace(")", ") /**/ 0", 1)))
    assert host(text) == host(text.replace("op.both()", "op.both() + 1"))


@pytest.mark.parametrize(
    "text",
    [
        "constexpr __device__ int f() { return 2; }",
        "__device__ auto f() { return 2; }",
        "HOST_TOO __device__ int f() { return 2; }",
        "__nv_both __device__ int f() { return 2; }",
        "#define both __host__\nboth __device__ int f() { return 2; }\n",
        "struct A { A(); int b; };\nA::A() : b(1) { b = 2; }\n",
        "template <class T, T V = T{2}> __global__ void k() {}\n",
        "auto f = [] __device__ (int n) { return 2; };\n",
        "struct A f() const { [] __device__ (int n) { return 2; }(1); }\n",
        "__device__ A::A(int n) : b{n} { b = 2; }\n",
        "static __device__ int table[] = {2};\n",
        "__device__ struct { int n; } value = {2};\n",
    ],
)
def test_a_body_in_doubt_counts_for_the_host(text):
    assert "2" in text
    assert host(text) != host(text.replace("2", "3"))


@pytest.mark.parametrize(
    "declared",
    [
        "__host__ __device__ int both(int);",
        "int both(int);",
        "struct A { __host__ __device__ int both(); };",
        "struct B { B() try {} catch (...) {} int both(); };",
        "template <class T> __host__ __device__ T both(T);",
    ],
)
def test_a_function_that_is_declared_for_the_host_too_is_for_both(declared):
    """Nvcc goes by the first declaration, which may be in a header."""
    defined = "__device__ int both(int x) { return x + 1; }\n"
    first = split.split(defined)
    said = split.split(f"{declared}\n")
    assert first is not None
    assert said is not None
    assert first.alone <= said.shared
    shared = frozenset({"both"})
    one, other = (split.split(text, shared=shared) for text in (defined, defined.replace("1", "2")))
    assert one is not None
    assert other is not None
    assert one.host != other.host


@pytest.mark.parametrize(
    "text",
    [
        "__global__ void k() {",
        "}",
        "#define OPEN {\n" + KERNEL,
        'const char* s = R"(})";\n' + KERNEL,
        "void f() <% %>",
        'auto s = "unfinished;\n',
    ],
)
def test_text_with_unmatched_brackets_is_not_split(text):
    assert split.split(text) is None
