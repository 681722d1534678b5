# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from pathlib import Path

import pytest
from support.locks import table, tree

from kernforge.artifact.version import Version2
from kernforge.errors import UsageError
from kernforge.setuptools import build, plan, target
from kernforge.setuptools.plan import ExtensionMachine, ExtensionRequest
from kernforge.toolchain.cuda_arch import Arch
from kernforge.toolchain.lockfile import Lock, LockedCompiler, LockedWheel


def lock():
    return Lock(
        platform="x86_64-linux",
        compilers={"cxx": LockedCompiler(identity="g++ 12", target="x86_64-linux-gnu")},
        trees=table(
            tree("cuda", "13.0"),
            tree("cuda-libraries", "13.0"),
            tree("python", digest="p312"),
            *(
                tree("torch", name, LockedWheel(file=name, sha256=name, record=name))
                for name in ("2.9", "2.11", "2.13")
            ),
        ),
    )


def machine(torch="2.11", python="3.12", **fields):
    wanted = target.named_target(torch, "13.0", python)
    sonames = ("libc10.so", "libtorch.so", "libtorch_cuda.so")
    given = {"lock": lock(), "cuda": Version2(13, 0), "runtime": "libcudart.so.13"} | fields
    archs = ("-gencode", "arch=compute_90,code=sm_90")
    return ExtensionMachine(target=wanted, cpu="x86_64", sonames=sonames, archs=archs, **given)


@pytest.fixture
def project(tmp_path):
    (tmp_path / "include").mkdir()
    (tmp_path / "include/launch.h").write_text("void launch();\n")
    (tmp_path / "k.cu").write_text('#include "launch.h"\nvoid launch() {}\n')
    (tmp_path / "b.cpp").write_text('#include <torch/extension.h>\n#include "launch.h"\n')
    return tmp_path


def request(**fields):
    given = {"name": "pkg.ops", "kind": "cuda", "sources": ("b.cpp", "k.cu"), "file": "ops.so"}
    return ExtensionRequest(**(given | {"includes": ("include",)} | fields))


def planned(project, where=None, **fields):
    read = build.read_sources(request(**fields), project, ("/usr",))
    made = plan.plan_extensions([read], where or machine())
    return {action.title: action for action in made.plan.actions}


def test_the_directory_of_a_project_changes_nothing(project, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    for path in project.rglob("*.*"):
        (other / path.relative_to(project)).parent.mkdir(exist_ok=True)
        (other / path.relative_to(project)).write_text(path.read_text())
    here = planned(project, macros=(f"-DROOT={project}/x",), cxx_args=(f"-I{project}/include",))
    there = planned(other, macros=(f"-DROOT={other}/x",), cxx_args=(f"-I{other}/include",))
    assert {a.key for a in here.values()} == {a.key for a in there.values()}


def test_device_code_without_torch_is_one_action_for_all(project):
    a, b = planned(project), planned(project, machine("2.13", "3.13"))
    assert a["k.cu"].key == b["k.cu"].key
    assert a["b.cpp"].key != b["b.cpp"].key
    assert not [name for name in a["k.cu"].trees if name.startswith(("torch", "python"))]


def test_arguments_reach_their_compilers(project):
    found = planned(
        project,
        macros=("-DA=1", "-UB"),
        cxx_args=("-O1", "-std=c++17"),
        nvcc_args=("--use_fast_math", "--threads", "4", "-t8"),
        nvcc_defaults=("--expt-relaxed-constexpr",),
        rpaths=("/opt/lib",),
        libraries=("cublas", "cuda", "z", "m"),
        link_args=("-lgomp", "-Wl,-O1"),
    )
    cxx, nvcc, link = found["b.cpp"].argv, found["k.cu"].argv, found["link ops.so"].argv
    assert {"-DA=1", "-UB", "-Isrc/include", "-O1", "-std=c++17"} <= set(cxx)
    assert "-DTORCH_API_INCLUDE_EXTENSION_H" in cxx
    assert "--use_fast_math" not in cxx
    assert {"-DA=1", "--use_fast_math", "--expt-relaxed-constexpr", "-std=c++20"} <= set(nvcc)
    assert [word for word in nvcc if "threads" in word or word.startswith("-t")] == [
        "--threads=%{threads}"
    ]
    assert {"-lz", "-Wl,-O1", "-Wl,-rpath,/opt/lib", "stubs/libcublas.so.13"} <= set(link)
    assert {"stubs/libcuda.so.1", "stubs/libtorch_python.so", "stubs/libcudart.so.13"} <= set(link)
    assert not {"-lgomp", "-lm", "-lcublas", "-lcuda"} & set(link)


def test_the_limited_api_needs_no_torch_python(project):
    found = planned(project, limited_api=True)
    assert "-DPy_LIMITED_API=0x030A0000" in found["b.cpp"].argv
    assert "stubs/libtorch_python.so" not in found["link ops.so"].argv


def test_device_code_is_linked_when_asked(project):
    found = planned(project, dlink_args=("-dlink", "-lcudadevrt"))
    device = found["device link ops.so"].argv
    assert "-dlink" in device
    assert any(word.endswith("libcudadevrt.a") for word in found["link ops.so"].argv)


def test_flags_that_name_gpus_are_kept_or_narrowed(project):
    both = (
        *("-gencode", "arch=compute_80,code=sm_80"),
        *("-gencode", "arch=compute_90,code=sm_90"),
    )
    found = planned(project, nvcc_args=both)["k.cu"].argv
    assert found.count("-gencode") == 2
    only = machine(only=(Arch(9, 0),))
    found = planned(project, only, nvcc_args=both)["k.cu"].argv
    assert [word for word in found if "sm_" in word] == ["arch=compute_90,code=sm_90"]
    assert plan.narrowed(both, [Arch(7, 5)]) == both


@pytest.mark.parametrize(
    ("flag", "added"),
    [
        ("arch=compute_90,code=sm_90", True),
        ("arch=compute_90,code=[sm_90,compute_90]", False),  # is there
        ("arch=compute_90a,code=sm_90a", False),  # PTX for 9.0 alone serves no newer GPU
    ],
)
def test_ptx_that_is_asked_for_is_added_to_the_flags_of_a_setup_py(flag, added):
    found = plan.narrowed(["-gencode", flag], [Arch(9, 0, ptx=True), Arch(9, 0, "a")])
    ptx = ("-gencode", "arch=compute_90,code=compute_90") if added else ()
    assert found == ("-gencode", flag, *ptx)


def test_debug_information_is_not_stripped(project):
    assert "-Wl,-s" in planned(project)["link ops.so"].argv
    assert "-Wl,-s" not in planned(project, cxx_args=("-g",))["link ops.so"].argv


def test_sources_above_setup_py(project):
    (project / "python").mkdir()
    read = build.read_sources(
        request(sources=("../b.cpp",), includes=("../include",)), project / "python"
    )
    (unit,) = read.units
    assert unit.path == "src/b.cpp"
    assert set(unit.texts) == {"src/b.cpp", "src/include/launch.h"}


def test_a_change_of_an_object_makes_another_link(project):
    (project / "more.o").write_bytes(b"1")
    first = planned(project, objects=("more.o",))["link ops.so"]
    (project / "more.o").write_bytes(b"2")
    assert first.key != planned(project, objects=("more.o",))["link ops.so"].key


def test_sources_in_other_languages(project):
    with pytest.raises(UsageError, match=r"ops: x\.pyx is not compiled here"):
        build.read_sources(request(name="ops", sources=("x.pyx",)), project)


def test_an_extension_without_torch(project):
    plain = replace(request(), kind="plain", sources=("k.cu",))
    made = plan.plan_extensions([build.read_sources(plain, Path(project))], machine())
    (link,) = made.links.values()
    assert not [word for word in link.argv if "torch" in word]


def test_torch_h_reads_python_too(project):
    (project / "b.cpp").write_text("#include <torch/torch.h>\n")
    assert "python" in planned(project)["b.cpp"].trees
    (project / "b.cpp").write_text("#include <torch/library.h>\n")
    assert "python" not in planned(project)["b.cpp"].trees
