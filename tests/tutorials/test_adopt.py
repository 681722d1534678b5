# SPDX-License-Identifier: Apache-2.0
"""B, C and D of the tutorials become kernel projects that build, and their operators load.

CUDA is compiled for one architecture. Where there is no GPU, torch has none of the libraries that
such a build names; empty ones stand in for them, so that its operators can be registered.
"""

import json
import shutil
import sys
from pathlib import Path

import pytest
from support.programs import output
from support.tutorials import ADOPTED, BUILT

pytestmark = [pytest.mark.native, pytest.mark.torch]
torch = pytest.importorskip("torch")

HERE = Path(__file__).parent
# What a kernel of a project shall do, on tensors x and y of the GPU.
USES = {
    "my_extension": "assert torch.equal(kernel.fused_relu_scale(x, 2.0), torch.relu(x) * 2)",
    "cuda_ops_project": "assert torch.equal(kernel.relu.forward(x), torch.relu(x))\n"
    "assert torch.equal(kernel.vector_add.forward(x, y), x + y)",
    "custom_ops": "x.requires_grad_()\nout = kernel.add(x, y)\nassert torch.equal(out, x + y)\n"
    "out.sum().backward()\nassert torch.equal(x.grad, torch.ones_like(x))",
}
USE = """
import sys
import torch
import kernforge
kernel = kernforge.get_local_kernel(sys.argv[1])
x, y = torch.randn(2, 64, 64, device="cuda")
"""
LIBRARIES = ("libc10_cuda.so", "libtorch_cuda.so")
SCHEMAS = """
import sys
from pathlib import Path
import torch
(library,) = Path(sys.argv[1]).glob("build/*/*.so")
torch.ops.load_library(library)
namespace = getattr(torch.ops, library.name.partition(".")[0])
for name in sys.argv[2:]:
    print(getattr(namespace, name).default._schema)
"""
TORCH = "torch{}{}".format(*torch.__version__.split(".")[:2])
CPU = """#include <torch/extension.h>

torch::Tensor scaled(torch::Tensor x, float scale, int shift) { return x * scale + shift; }

static std::tuple<torch::Tensor, int> halves(const torch::Tensor& x) { return {x / 2, 2}; }

void fill(torch::Tensor x, double value) { x.fill_(value); }

struct Options {
  int size;
};

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "CPU operators";
  m.def("scaled", &scaled, "x * scale + shift", py::arg("x"), py::arg("scale") = 2.0,
        py::arg("shift") = 1);
  m.def("fill", &fill, py::call_guard<py::gil_scoped_release>());
  m.def("total", [](const std::vector<torch::Tensor>& xs) -> torch::Tensor {
    return torch::stack(xs).sum(0);
  });
  py::class_<Options>(m, "Options").def_readwrite("size", &Options::size);
}
"""


@pytest.fixture
def adopted(tmp_path, kernforge_cli):
    """A function that adopts a copy of a project and returns what the command said."""

    def adopt(source):
        copy = tmp_path / "old"
        named = copy
        if source.is_dir():
            shutil.copytree(source, copy)
        else:
            copy.mkdir()
            named = Path(shutil.copy(source, copy))
        before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
        done = kernforge_cli("adopt", named, "--out", tmp_path / "new", "--json", cwd=tmp_path)
        assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
        return json.loads(done.stdout)

    return adopt


def registered(project, *names):
    """The schemas that a CUDA build registers, without the namespace."""
    stubs = project.parent / "stubs"
    stubs.mkdir()
    for name in LIBRARIES:
        if not torch.cuda.is_available():
            output(("gcc", "-shared", "-x", "c", "/dev/null", "-o", stubs / name))
    argv = (sys.executable, "-c", SCHEMAS, project, *names)
    printed = output(argv, LD_LIBRARY_PATH=stubs)
    return [line.partition("::")[2] for line in printed.splitlines()]


@pytest.mark.parametrize(
    ("project", "schemas"),
    [
        ("my_extension", {"fused_relu_scale": "(Tensor input, float scale) -> Tensor"}),
        (
            "cuda_ops_project",
            {
                "relu_forward": "(Tensor a) -> Tensor",
                "vector_add_forward": "(Tensor a, Tensor b) -> Tensor",
            },
        ),
        ("custom_ops_jit/inline_add.py", {"add_cuda": "(Tensor a, Tensor b) -> Tensor"}),
    ],
)
def test_an_adopted_tutorial_builds_and_its_operators_load(
    tmp_path, kernforge_cli, adopted, project, schemas
):
    told = adopted(HERE / project)
    assert [remark for remark in told["remarks"] if remark["kind"] == "left"] == []
    build = ("--arch", "9.0", "--variant", f"{TORCH}-*-cu130-*")
    kernforge_cli("build", "new", *build, cwd=tmp_path)
    found = registered(tmp_path / "new", *schemas)
    assert found == [f"{name}{rest}" for name, rest in schemas.items()]


def test_autograd_in_a_cu_file_is_translated(adopted):
    told = adopted(HERE / "custom_ops")
    assert told["operators"] == {"add": "add(Tensor a, Tensor b) -> Tensor"}
    text = (Path(told["project"]) / "vector_add.cu").read_text()
    assert 'ops.def("add(Tensor a, Tensor b) -> Tensor", &vector_add);' in text
    assert "#include <torch/all.h>" in text


def test_an_adopted_project_passes_its_tests(tmp_path, kernforge_cli, adopted):
    old = tmp_path / "cpu"
    old.mkdir()
    (old / "ops.cpp").write_text(CPU)
    (old / "setup.py").write_text(
        "from setuptools import setup\n"
        "from torch.utils.cpp_extension import BuildExtension, CppExtension\n"
        "setup(name='cpu_ops', ext_modules=[CppExtension('cpu_ops', ['ops.cpp'])])\n"
    )
    told = adopted(old)
    assert told["operators"] == {
        "scaled": "scaled(Tensor x, float scale=2.0, int shift=1) -> Tensor",
        "fill": "fill(Tensor(a!) x, float value) -> ()",
    }
    left = [(r["path"], r["line"]) for r in told["remarks"] if r["kind"] == "left"]
    assert left == [("ops.cpp", 18), ("ops.cpp", 21)]
    done = kernforge_cli("test", "new", "--variant", f"{TORCH}-*-cpu-*", "--json", cwd=tmp_path)
    (variant,) = json.loads(done.stdout)["variants"]
    assert variant["counts"]["passed"] == 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
@pytest.mark.parametrize("folder", ADOPTED)
def test_adopted_tutorial_runs_on_a_gpu(forked, folder):
    built = BUILT / f"adopted-{folder}"
    assert built.is_dir(), "build it before: python -m support.tutorials"
    forked("-c", USE + USES[folder], built)
