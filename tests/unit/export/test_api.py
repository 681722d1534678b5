# SPDX-License-Identifier: Apache-2.0

import tomllib

import pytest
from support import projects
from support.commands import call
from support.manifests import RICH

from kernforge.export import api as export, cmake
from kernforge.manifest.document import parse
from kernforge.project import api as project
from kernforge.project.units import Sources


@pytest.fixture
def made(tmp_path):
    def call(**keywords):
        one = project.read_project(projects.write(tmp_path / "p", **keywords))
        return one, export.texts(one, export.KINDS)

    return call


def test_pyproject_has_the_metadata_of_the_manifest():
    document = tomllib.loads(export.pyproject(parse(RICH, source="build.toml")))
    assert document["project"]["dependencies"] == ["torch>=2.9", "einops"]
    assert document["project"]["optional-dependencies"] == {"cuda": ["nvidia-cutlass-dsl"]}
    assert document["project"]["version"] == "3.0.0"
    assert "kernforge[build]" in document["build-system"]["requires"]


def test_cmake_lists_sources_by_cuda_version():
    text = cmake.text(Sources(manifest=parse(RICH), digests={}, texts={}, bundled={}))
    newest, rest = text.split("VERSION_GREATER_EQUAL 12.9)")
    newer, older = rest.split("VERSION_GREATER_EQUAL 12.8)")
    assert '"b.cu"' in newest
    assert '"b.cu"' in newer
    assert '"b.cu"' not in older
    assert "-gencode=arch=compute_80,code=sm_80;-gencode=arch=compute_90a,code=sm_90a" in older
    assert 'set(cutlass "3.8.0")' in text
    assert '-DQUOTE=\\"a b\\"' in text
    assert "@" not in text.replace("@OPS_NAME@", "").replace("@ONLY", "")


def test_export_does_not_replace_user_files(made, tmp_path):
    one, texts = made()
    to = tmp_path / "out"
    export.write(one, texts, to, tmp_path)
    assert (to / "torch-ext/registration.h").is_file()
    assert (to / "build.toml").read_bytes() == (one.root / "build.toml").read_bytes()
    export.write(one, texts, to, tmp_path)  # the same again is no conflict
    (to / "setup.py").write_text("mine")
    (to / "CMakeLists.txt").unlink()
    (to / "times_two.h").write_text("// mine")
    assert export.write(one, texts, to, tmp_path) == {"setup.py", "times_two.h"}
    assert (to / "setup.py").read_text() == "mine"
    assert (to / "CMakeLists.txt").is_file()
    export.write(one, texts, to, tmp_path, force=True)
    assert (to / "setup.py").read_text() == texts["setup.py"]


def test_exported_files_are_replaced_and_are_no_sources(made, tmp_path):
    one, texts = made()
    (one.root / "flake.nix").write_text("{ }")
    assert export.write(one, texts, one.root, tmp_path) == {"flake.nix"}
    assert all((one.root / name).is_file() for name in ("setup.py", "MANIFEST.in"))
    # What pip builds in place is no source either.
    (one.root / "torch-ext/times_two/_ops.py").write_text("")
    (one.root / "torch-ext/times_two/_times_two_cpu_1234567.abi3.so").write_text("")
    again = project.read_project(one.root)
    later = export.texts(again, ["cmake", "python"])
    assert later["CMakeLists.txt"] == texts["CMakeLists.txt"]
    (one.root / "times_two.cpp").write_text("// another\n")
    again = project.read_project(one.root)
    later = export.texts(again, ["cmake"])
    assert later["CMakeLists.txt"] != texts["CMakeLists.txt"]
    assert export.write(again, later, one.root, tmp_path) == set()
    with (one.root / "CMakeLists.txt").open("a") as file:
        file.write("# mine\n")
    assert export.write(one, texts, one.root, tmp_path) == {"flake.nix", "CMakeLists.txt"}


@pytest.mark.parametrize("link", ["csrc", "CMakeLists.txt", "setup.py"])
def test_nothing_is_written_through_a_link(tmp_path, capsys, link):
    root = projects.write(tmp_path / "p", cpp='#include "kernforge/elementwise.h"\n')
    out, outside = tmp_path / "out", tmp_path / "outside"
    out.mkdir()
    (out / link).symlink_to(outside)
    if link == "csrc":  # a directory on the way to a file
        outside.mkdir()
    else:
        outside.write_text("mine")
    words = ("--only", "cmake", "--only", "python", "--force")
    assert call("export", str(root), "--to", str(out), *words) != 0
    assert "a symbolic link" in capsys.readouterr().err
    assert not list(outside.iterdir()) if link == "csrc" else outside.read_text() == "mine"


def test_kernel_builder_manifest_lists_files_and_headers(made, tmp_path):
    include = '#include "kernforge/elementwise.cuh"\n'
    one, _ = made(cu=include, backends=("cpu", "cuda"))
    path = one.root / "build.toml"
    path.write_text(
        path.read_text().replace('src = ["times_two.cu", "times_two.h"]', 'src = ["*.cu"]')
    )
    one = project.read_project(one.root)
    texts = export.texts(one, export.KINDS)
    names = ("dtype.cuh", "dtype.h", "elementwise.cuh", "pdl.cuh", "strides.h")
    wanted = [f"csrc/kernforge/{name}" for name in names]
    assert sorted(path for path in texts if "kernforge/" in path) == wanted
    document = tomllib.loads(texts["build.toml"])
    assert document["torch"]["src"] == ["torch-ext/torch_binding.cpp", *wanted]
    assert document["kernel"]["cuda"]["src"] == ["times_two.cu"]
    assert "kernel-builder.lib.genKernelFlakeOutputs" in texts["flake.nix"]
    assert "times_two.cu" in texts["CMakeLists.txt"]
    assert "*.cu" not in texts["CMakeLists.txt"]
    assert export.write(one, texts, one.root, tmp_path) == {"build.toml"}
    assert "build.toml" not in export.texts(one, ["cmake"])
