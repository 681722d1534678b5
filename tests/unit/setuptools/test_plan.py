# SPDX-License-Identifier: Apache-2.0
import pytest
import setuptools
from support.locks import table, tree

from kernforge.artifact.gpu import Arch
from kernforge.artifact.version import Version2
from kernforge.errors import ToolchainError, UsageError
from kernforge.extension import flags, plan
from kernforge.extension.plan import ExtensionMachine
from kernforge.extension.request import read_extension
from kernforge.setuptools import build, extension
from kernforge.setuptools.extension import CUDAExtension as Extension
from kernforge.system.console import Console
from kernforge.system.environment import Environment
from kernforge.toolchain import front_end
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


def machine(torch="2.11", **fields):
    version = Version2.parse(torch)
    given = {
        "torch": version,
        "torch_cuda": Version2(13, 0),
        "cpu": "x86_64",
        "lock": lock(),
        "cuda": Version2(13, 0),
        "archs": ("-gencode", "arch=compute_90,code=sm_90"),
        "sonames": ("libc10.so", "libtorch.so", "libtorch_cuda.so"),
        "portable": True,
    }
    return ExtensionMachine(**(given | fields))


@pytest.fixture
def project(tmp_path):
    (tmp_path / "include").mkdir()
    (tmp_path / "include/launch.h").write_text("void launch();\n")
    (tmp_path / "k.cu").write_text('#include "launch.h"\nvoid launch() {}\n')
    (tmp_path / "b.cpp").write_text('#include <torch/extension.h>\n#include "launch.h"\n')
    return tmp_path


def read(project, **given):
    """An extension of a project as its setup.py says it."""
    wanted = Extension(**({"name": "pkg.ops", "sources": ["b.cpp", "k.cu"]} | given))
    return read_request(extension.extension_request(wanted, "ops.so", project))


def read_request(request):
    return read_extension(request, build.project_tree(request, ("/usr",)))


def planned(project, where=None, **given):
    given = {"include_dirs": ["include"]} | given
    (made,) = plan.plan_extensions([read(project, **given)], where or machine())
    return {action.title: action for action in made.plan.actions}


def test_action_keys_do_not_depend_on_the_project_directory(project, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    for path in project.rglob("*.*"):
        (other / path.relative_to(project)).parent.mkdir(exist_ok=True)
        (other / path.relative_to(project)).write_text(path.read_text())
    here = planned(project, extra_compile_args=[f"-DROOT={project}/x", f"-I{project}/include"])
    there = planned(other, extra_compile_args=[f"-DROOT={other}/x", f"-I{other}/include"])
    assert {a.key for a in here.values()} == {a.key for a in there.values()}


def test_device_code_without_torch_is_shared_across_torch_versions(project):
    a, b = planned(project), planned(project, machine("2.13"))
    assert a["k.cu"].key == b["k.cu"].key
    assert a["b.cpp"].key != b["b.cpp"].key
    assert not [name for name in a["k.cu"].trees if name.startswith(("torch", "python"))]


def test_arguments_reach_their_compilers(project):
    found = planned(
        project,
        define_macros=[("A", "1")],
        undef_macros=["B"],
        extra_compile_args={
            "cxx": ["-O1", "-std=c++17"],
            "nvcc": ["--use_fast_math", "--threads", "4", "-t8"],
        },
        runtime_library_dirs=["/opt/lib"],
        libraries=["cublas", "cuda", "z", "m"],
        extra_link_args=["-lgomp", "-Wl,-O1"],
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
    found = planned(project, py_limited_api=True)
    assert "-DPy_LIMITED_API=0x030A0000" in found["b.cpp"].argv
    assert "stubs/libtorch_python.so" not in found["link ops.so"].argv


def test_device_code_is_linked_when_asked(project):
    found = planned(project, dlink=True, dlink_libraries=["cudadevrt"])
    device = found["device link ops.so"].argv
    assert "-dlink" in device
    assert any(word.endswith("libcudadevrt.a") for word in found["link ops.so"].argv)


def test_arch_list_narrows_gencode_flags(project):
    both = (
        *("-gencode", "arch=compute_80,code=sm_80"),
        *("-gencode", "arch=compute_90,code=sm_90"),
    )
    found = planned(project, extra_compile_args={"nvcc": both})["k.cu"].argv
    assert found.count("-gencode") == 2
    only = machine(only=(Arch(9, 0),))
    found = planned(project, only, extra_compile_args={"nvcc": both})["k.cu"].argv
    assert [word for word in found if "sm_" in word] == ["-gencode=arch=compute_90,code=sm_90"]
    assert flags.narrowed(both, [Arch(7, 5)]) == both


def test_sources_may_lie_above_setup_py(project):
    (project / "python").mkdir()
    found = read(project / "python", sources=["../b.cpp"], include_dirs=["../include"])
    (unit,) = found.units
    assert unit.path == "src/b.cpp"
    assert set(unit.texts) == {"src/b.cpp", "src/include/launch.h"}


def test_changed_extra_object_relinks(project):
    (project / "more.o").write_bytes(b"1")
    first = planned(project, extra_objects=["more.o"])["link ops.so"]
    (project / "more.o").write_bytes(b"2")
    assert first.key != planned(project, extra_objects=["more.o"])["link ops.so"].key


def test_plain_extension_links_no_torch(project):
    plain = setuptools.Extension("ops", ["k.cu"], include_dirs=["include"])
    found = read_request(extension.extension_request(plain, "ops.so", project))
    (made,) = plan.plan_extensions([found], machine())
    assert not [word for word in made.link.argv if "torch" in word]


def test_environment_flags_are_split_as_in_a_shell(project):
    variables = {"CFLAGS": "-O1 '-DA=b c'", "CPPFLAGS": "-g", "LDFLAGS": "-Wl,-O1"}
    asked = extension.extension_request(Extension("ops", ["b.cpp"]), "ops.so", project)
    found = build.with_variables(asked, variables)
    assert (found.cflags, found.ldflags) == (("-g", "-O1", "-DA=b c"), ("-Wl,-O1",))
    with pytest.raises(UsageError, match="cannot be read: No closing quotation"):
        build.with_variables(asked, {"CFLAGS": "-DA='b"})


def test_include_path_of_cflags_is_searched(project):
    asked = extension.extension_request(Extension("ops", ["k.cu"]), "ops.so", project)
    variables = {"CFLAGS": f"-I{project}/include"}
    found = read_request(build.with_variables(asked, variables))
    assert found.includes == ("src/include",)
    assert "src/include/launch.h" in found.units[0].texts


def test_archs_that_the_toolkit_lacks_are_left_out_with_a_word(capsys):
    asked = Environment({"TORCH_CUDA_ARCH_LIST": "3.7+PTX;7.5;9.0"})
    archs = build.find_archs(Version2(13, 0), asked, Console())
    assert [str(each) for each in archs] == ["7.5+PTX", "9.0"]
    assert "CUDA 13.0 does not compile for 3.7+PTX" in capsys.readouterr().err
    with pytest.raises(ToolchainError, match=r"CUDA 13.0 has no code for GPUs .* 5.2, 7.7"):
        front_end.require(tree("cuda", "13.0"), [Arch(5, 2), Arch(7, 7), Arch(9, 0)])
