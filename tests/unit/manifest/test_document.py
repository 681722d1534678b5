# SPDX-License-Identifier: Apache-2.0
"""Reading build.toml: values, defaults, and one line for each mistake."""

from pathlib import Path

import pytest

from kernforge.artifact.version import Version2
from kernforge.errors import ManifestError
from kernforge.manifest.document import parse
from kernforge.manifest.model import CudaKernel, RocmKernel, Torch
from kernforge.manifest.sources import check_files, expanded

CASES = sorted((Path(__file__).parents[2] / "data" / "manifests").glob("*.toml"))
MINIMAL = """\
[general]
name = "my-kernel"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]

[torch]
"""


def _text(path):
    return path.read_bytes().decode()


def _good(name):
    path = next(path for path in CASES if path.stem == f"good-{name}")
    return parse(_text(path), source=path.name)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_file_has_exactly_its_expected_mistakes(path):
    lines = _text(path).splitlines()
    mistakes = [line.removeprefix("# expect: ") for line in lines if line.startswith("# expect: ")]
    hints = [line.removeprefix("# hint: ") for line in lines if line.startswith("# hint: ")]
    if path.stem.startswith(("good-", "older-")):
        assert not mistakes
        parse(_text(path), source=path.name)
        return
    with pytest.raises(ManifestError) as caught:
        parse(_text(path), source=path.name)
    assert caught.value.message.splitlines() == mistakes
    assert not hints or caught.value.hint.splitlines() == hints


def test_every_key_has_its_value():
    manifest = _good("every-key")
    general, torch = manifest.general, manifest.framework
    assert (general.name, general.python_name, general.version) == ("every-key2", "every_key2", 3)
    assert general.upstream == ("https://example.com/a/b.git",)
    assert general.source == "git@example.com:a/b.git"
    assert (general.cuda.minver, general.cuda.maxver) == (Version2(12, 8), Version2(13, 0))
    assert (general.hub.repo_id, general.hub.branch) == ("o/every-key2", "next")
    assert isinstance(torch, Torch)
    assert (torch.minver, torch.maxver) == (Version2(2, 9), Version2(2, 10))
    assert (torch.src, torch.include) == (("torch-ext/torch_binding.cpp",), (".",))
    assert (torch.cxx_flags, torch.data_extensions) == (("-O3",), ("json",))
    cuda, rocm = manifest.kernels["on_cuda"], manifest.kernels["on-rocm"]
    assert isinstance(cuda, CudaKernel)
    assert cuda.cuda_capabilities == ("9.0a", "10.0+PTX")
    assert (cuda.cuda_flags, cuda.cuda_minver) == (("-lineinfo",), Version2(12, 8))
    assert isinstance(rocm, RocmKernel)
    assert (rocm.rocm_archs, rocm.hip_flags) == (("gfx942",), ("-O3",))
    assert manifest.notes == ()


def test_dependencies_of_a_backend_follow_the_general_ones():
    general = _good("every-key").general
    named = {
        backend: [item.repo_id for item in general.kernel_depends_for(backend)][2:]
        for backend in general.backends
    }
    assert {key: value for key, value in named.items() if value} == {
        "cuda": ["o/cuda-only"],
        "neuron": ["o/neuron-only"],
        "xpu": ["o/xpu-only"],
    }
    assert general.python_depends_for("cuda") == ("einops", "nvidia-cutlass-dsl")
    # kernel-builder reads those of neuron and uses them nowhere.
    assert general.python_depends_for("neuron") == ("einops",)


def test_edition_6_leaves_languages_without_a_compiler_out():
    manifest = _good("edition-6")
    assert {name: kernel.backend for name, kernel in manifest.kernels.items()} == {
        "toy": "cuda",
        "toy_rocm": "rocm",
    }
    assert manifest.other_languages == {"toy_rust": "rust-cpu"}
    assert len(manifest.general.upstream) == 2


@pytest.mark.parametrize(
    ("stable_abi", "cuda", "cpu"),
    [
        ("", None, None),
        ('stable-abi = "2.11"', (2, 11), (2, 11)),
        ('stable-abi = { cuda = "2.10" }', (2, 10), None),
        ("stable-abi = {}", None, None),
    ],
)
def test_the_stable_abi_holds_for_all_or_for_listed_backends(stable_abi, cuda, cpu):
    torch = parse(MINIMAL + stable_abi).framework
    assert (torch.stable_abi_for("cuda"), torch.stable_abi_for("cpu")) == (cuda, cpu)


def test_sections_are_found_by_backend_in_the_order_of_the_file():
    text = MINIMAL + "".join(
        f'[kernel.{name}]\nbackend = "{backend}"\ndepends = []\nsrc = []\n'
        for name, backend in [("z", "cuda"), ("m", "cpu"), ("a", "cuda")]
    )
    manifest = parse(text)
    assert list(manifest.sections("cuda")) == ["z", "a"]
    assert list(manifest.sections("metal")) == []


def test_a_missing_source_is_named_with_a_suggestion():
    text = MINIMAL + 'src = ["torch-ext/binding.cpp", "./b.h"]\n'
    text += '[kernel.x]\nbackend = "cpu"\ndepends = []\nsrc = ["csrc/../csrc/reul.cpp"]\n'
    files = {"torch-ext/binding.cpp", "csrc/relu.cpp", "b.h"}
    (found,) = check_files(parse(text), files)
    assert (found.path, found.problem) == (
        ("kernel", "x", "src", 0),
        "no such file; did you mean 'csrc/relu.cpp'?",
    )
    assert check_files(parse(text), files | {"csrc/reul.cpp"}) == []


SOURCES = {"a.cu", "csrc/b.cu", "csrc/b.cuh", "csrc/deep/c.cu", "csrc/deep/er/d.cu"}


@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        ("*.cu", ["a.cu"]),
        ("csrc/*.cu", ["csrc/b.cu"]),
        ("./csrc/b.*", ["csrc/b.cu", "csrc/b.cuh"]),
        ("csrc/?.cu", ["csrc/b.cu"]),
        ("csrc/**/*.cu", ["csrc/b.cu", "csrc/deep/c.cu", "csrc/deep/er/d.cu"]),
        ("csrc/deep/**", ["csrc/deep/c.cu", "csrc/deep/er/d.cu"]),
        ("a.cu", ["a.cu"]),
    ],
)
def test_a_pattern_is_expanded_to_its_files(pattern, files):
    text = f'{MINIMAL}[kernel.x]\nbackend = "cuda"\ndepends = []\nsrc = ["{pattern}"]\n'
    manifest = parse(text)
    assert check_files(manifest, SOURCES) == []
    assert expanded(manifest, SOURCES).kernels["x"].src == tuple(files)


@pytest.mark.parametrize(
    ("src", "problem"),
    [
        ("*.hip", "no file matches"),
        ("/home/me/a.cu", "an absolute path; sources are named relative to"),
        ("../a.cu", "outside of the project"),
    ],
)
def test_an_impossible_source_has_a_reason(src, problem):
    text = f'{MINIMAL}[kernel.x]\nbackend = "cuda"\ndepends = []\nsrc = ["a.cu", "{src}"]\n'
    (found,) = check_files(parse(text), SOURCES)
    assert found.path == ("kernel", "x", "src", 1)
    assert found.problem.startswith(problem)
