# SPDX-License-Identifier: Apache-2.0

import tomllib

import pytest
from support import projects
from support.manifests import RICH

from kernforge.artifact.metadata import Metadata
from kernforge.errors import StorageError, UsageError
from kernforge.export import api as export
from kernforge.export import python
from kernforge.manifest.document import parse
from kernforge.project import api as project
from kernforge.project import source_files

NOARCH = """[general]
name = "my-kernel"
version = 1
edition = 5
license = "MIT"
backends = ["cuda", "cpu"]
python-depends = ["einops"]

[general.cuda]
python-depends = ["nvidia-cutlass-dsl"]
kernel-depends = [{ repo-id = "me/other", version = 1 }]

[torch-noarch]
cuda_capabilities = ["8.0", "9.0"]
"""


@pytest.fixture
def made(tmp_path):
    def call(**keywords):
        one = project.read_project(projects.write(tmp_path / "p", **keywords))
        return one, export.texts(one, source_files.read(one), export.KINDS)

    return call


def test_the_packages_metadata_are_the_manifests():
    document = tomllib.loads(python.pyproject(parse(RICH, source="build.toml")))
    assert document["project"]["dependencies"] == ["torch>=2.9", "einops"]
    assert document["project"]["optional-dependencies"] == {"cuda": ["nvidia-cutlass-dsl"]}
    assert document["project"]["version"] == "3.0.0"
    assert "cmake>=3.26" in document["build-system"]["requires"]


def write(one, texts, to, *, force=False):
    kept = export.kept(one, texts, to, force=force)
    return export.write(one, texts, to, kept), kept


def test_the_flake_names_the_builder_and_this_directory(made):
    _, texts = made()
    assert 'kernel-builder.url = "github:huggingface/kernels"' in texts["flake.nix"]
    assert "kernel-builder.lib.genKernelFlakeOutputs" in texts["flake.nix"]


def test_a_copy_has_everything_and_what_is_there_is_not_replaced(made, tmp_path):
    one, texts = made()
    to = tmp_path / "out"
    write(one, texts, to)
    assert (to / "torch-ext/registration.h").is_file()
    assert (to / "build.toml").read_bytes() == (one.root / "build.toml").read_bytes()
    write(one, texts, to)  # the same again is no conflict
    (to / "setup.py").write_text("mine")
    (to / "CMakeLists.txt").unlink()
    written, kept = write(one, texts, to)
    assert kept == {"setup.py"}
    assert (to / "setup.py").read_text() == "mine"
    assert (to / "CMakeLists.txt") in written
    (to / "times_two.h").write_text("// mine")
    with pytest.raises(UsageError, match=r"times_two\.h with another content"):
        write(one, texts, to)
    write(one, texts, to, force=True)
    assert (to / "setup.py").read_text() == texts["setup.py"]


def test_a_flake_that_is_there_stays_and_all_else_is_written_and_written_again(made):
    one, texts = made()
    (one.root / "flake.nix").write_text("{ }")
    written, kept = write(one, texts, one.root)
    assert kept == {"flake.nix"}
    assert {path.name for path in written} >= {"setup.py", "CMakeLists.txt", "MANIFEST.in"}
    assert (one.root / "flake.nix").read_text() == "{ }"
    # What an export wrote is replaced, here of other sources.
    other = {path: text.replace("times", "4 times") for path, text in texts.items()}
    assert write(one, other, one.root)[1] == {"flake.nix"}
    assert "4 times" in (one.root / "CMakeLists.txt").read_text()


def test_what_an_export_wrote_is_not_a_source_of_the_next(made):
    one, texts = made()
    before = source_files.read(one).brought
    write(one, texts, one.root)
    for name in ("compile_commands.json", "kernforge.lock"):
        (one.root / name).write_text("{}")
    again = project.read_project(one.root)
    assert source_files.read(again).brought == before  # builds as it did before
    assert export.texts(again, source_files.read(again), export.KINDS) == texts
    (one.root / "torch-ext/registration.h").write_text("// mine")
    again = project.read_project(one.root)
    changed = export.texts(again, source_files.read(again), export.KINDS)
    assert "torch-ext/registration.h" not in changed
    assert changed["CMakeLists.txt"] != texts["CMakeLists.txt"]


def test_headers_that_a_source_includes_are_written_and_named_for_kernel_builder(made, tmp_path):
    include = '#include "kernforge/elementwise.cuh"\n'
    one, texts = made(cu=include, backends=("cpu", "cuda"))
    wanted = [f"csrc/kernforge/{n}" for n in ("dtype.cuh", "dtype.h", "elementwise.cuh", "pdl.cuh")]
    assert sorted(path for path in texts if "kernforge/" in path) == wanted
    src = tomllib.loads(texts["build.toml"])["torch"]["src"]
    assert src == ["torch-ext/torch_binding.cpp", *wanted]
    parse(texts["build.toml"])
    assert all(f"include {path}\n" in texts["MANIFEST.in"] for path in wanted)
    assert write(one, texts, one.root)[1] == {"build.toml"}
    write(one, texts, one.root, force=True)
    again = project.read_project(one.root)
    left = export.texts(again, source_files.read(again), export.KINDS)
    assert "build.toml" not in left  # it names them now
    assert left == {path: text for path, text in texts.items() if path != "build.toml"}


def test_build_toml_is_rewritten_for_kernel_builder_alone(made):
    one, _ = made(cu='#include "kernforge/pdl.cuh"\n', backends=("cpu", "cuda"))
    texts = export.texts(one, source_files.read(one), ["cmake"])
    assert "csrc/kernforge/pdl.cuh" in texts
    assert "build.toml" not in texts


def test_an_edit_changes_the_op_namespace(made):
    _, before = made()
    _, after = made(cpp="// another\n")
    assert before["CMakeLists.txt"] != after["CMakeLists.txt"]


def test_each_backend_of_the_project_has_its_metadata_and_no_other(made):
    one, texts = made(backends=("cpu", "cuda"))
    found = {p: t for p, t in texts.items() if p.startswith("metadata-")}
    assert {*found} == {"metadata-cpu.json", "metadata-cuda.json"}
    for path, text in found.items():
        said = Metadata.from_json(text.encode())
        backend = path.removeprefix("metadata-").removesuffix(".json")
        assert (said.name, said.backend) == (one.manifest.general.name, backend)
        prefix, _, end = said.id.rpartition("_")
        assert prefix == f"_{one.manifest.general.python_name}_{backend}"
        assert end in texts["CMakeLists.txt"]
        assert said.digest is None
        assert said.archs is None
        assert said.provenance.builder_version.startswith("kernforge-")
    assert all(f"include {path}\n" in texts["MANIFEST.in"] for path in found)


def test_metadata_hold_what_is_the_backends_own(tmp_path):
    (tmp_path / "torch-ext/my_kernel").mkdir(parents=True)
    (tmp_path / "torch-ext/my_kernel/__init__.py").write_text("")
    (tmp_path / "build.toml").write_text(NOARCH)
    one = project.read_project(tmp_path)
    texts = export.texts(one, source_files.read(one), ["python"])
    cuda, cpu = (Metadata.from_json(texts[f"metadata-{b}.json"].encode()) for b in ("cuda", "cpu"))
    assert cuda.python_depends == ("einops", "nvidia-cutlass-dsl")
    assert cpu.python_depends == ("einops",)
    assert cuda.archs == ("8.0", "9.0")
    assert cpu.archs is None
    assert [d.repo_id for d in cuda.kernel_depends] == ["me/other"]
    assert (cuda.kernels_minver, cpu.kernels_minver) == ("0.17.0", "0.14.0")


def test_the_hubs_client_reads_the_metadata(made):
    theirs = pytest.importorskip("kernels._rust").Metadata
    _, texts = made()
    for path, text in texts.items():
        if path.startswith("metadata-"):
            assert theirs.from_bytes(text.encode()).id == Metadata.from_json(text.encode()).id


def test_a_new_directory_appears_whole_or_not_at_all(made, tmp_path, monkeypatch):
    one, texts = made()
    real, written = export.files.write_new, []

    def full(path, data):
        if len(written) == 3:
            raise StorageError("no space left")
        written.append(path)
        real(path, data)

    monkeypatch.setattr(export.files, "write_new", full)
    with pytest.raises(StorageError):
        write(one, texts, tmp_path / "deep/out")
    assert not list((tmp_path / "deep").iterdir())


def test_a_link_to_nothing_is_not_a_file_of_a_project(made):
    one, _ = made()
    (one.root / "nothing.h").symlink_to("nowhere")
    assert project.read_project(one.root).files == one.files


def test_patterns_are_written_out_for_kernel_builder(tmp_path):
    root = projects.write(tmp_path / "p", backends=("cpu", "cuda"))
    path = root / "build.toml"
    path.write_text(
        path.read_text().replace('src = ["times_two.cu", "times_two.h"]', 'src = ["*.cu"]')
    )
    one = project.read_project(root)
    texts = export.texts(one, source_files.read(one), export.KINDS)
    assert tomllib.loads(texts["build.toml"])["kernel"]["cuda"]["src"] == ["times_two.cu"]
    assert "times_two.cu" in texts["CMakeLists.txt"]
    assert "*.cu" not in texts["CMakeLists.txt"]
    assert write(one, texts, root)[1] == {"build.toml"}
