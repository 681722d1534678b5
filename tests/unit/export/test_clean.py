# SPDX-License-Identifier: Apache-2.0
"""``kernforge export --remove``: what an export wrote goes, and nothing else."""

import json

import pytest
from support import projects
from support.commands import call


@pytest.fixture
def project(tmp_path):
    return projects.write(tmp_path / "p")


def tree(root):
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


@pytest.fixture
def export(project, capsys):
    """Run the command on the project; returns the exit code and the document, or the error."""

    def start(*words):
        capsys.readouterr()
        code = call("export", str(project), *words, "--json")
        out, err = capsys.readouterr()
        return code, json.loads(out) if code == 0 else err

    return start


FILES = ("--only", "cmake", "--only", "python", "--only", "nix")


def test_a_project_is_as_it_was_before_the_export(project, export):
    before = tree(project)
    code, written = export(*FILES)
    assert code == 0
    assert tree(project) > before | {"cmake", "setup.py"}
    code, listed = export("--remove", "--dry-run")
    assert (code, set(listed["removed"])) == (0, set(written["files"]))
    assert tree(project) > before | {"cmake", "setup.py"}
    assert export("--remove") == (0, listed)
    assert tree(project) == before
    assert export("--remove") == (0, {"directory": str(project), "removed": [], "kept": []})


def test_a_dry_run_of_an_export_writes_nothing(project, export):
    before = tree(project)
    code, document = export(*FILES, "--dry-run")
    assert code == 0
    assert str(project / "CMakeLists.txt") in document["files"]
    assert tree(project) == before


def test_what_an_author_wrote_stays_unless_it_is_forced(project, export):
    export(*FILES)
    (project / "setup.py").write_text("# mine\n")
    (project / "cmake" / "mine.cmake").write_text("# mine\n")
    (project / "cmake" / "hipify.py").write_text("# of kernel-builder\n")
    document = export("--remove")[1]
    assert document["kept"] == [str(project / "cmake" / "hipify.py"), str(project / "setup.py")]
    assert (project / "setup.py").read_text() == "# mine\n"
    document = export("--remove", "--force")[1]
    assert len(document["removed"]) == 2
    assert {path for path in tree(project) if path.startswith("cmake")} == {
        "cmake",
        "cmake/mine.cmake",
    }


def test_one_kind_alone(project, export):
    export(*FILES)
    removed = export("--remove", "--only", "nix", "--dry-run")[1]["removed"]
    assert str(project / "flake.nix") in removed
    assert str(project / "CMakeLists.txt") not in removed


def test_a_source_that_the_manifest_names_stays(project, export):
    (project / "torch-ext").mkdir(exist_ok=True)
    (project / "torch-ext" / "registration.h").write_text("// mine\n")
    manifest = project / "build.toml"
    manifest.write_text(
        manifest.read_text().replace("src = [", 'src = ["torch-ext/registration.h", ', 1)
    )
    document = export("--remove", "--force")[1]
    assert document["removed"] == []
    assert (project / "torch-ext" / "registration.h").is_file()


def test_nothing_beyond_a_link_is_removed(project, export, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "utils.cmake").write_text("")
    (project / "cmake").symlink_to(tmp_path / "elsewhere")
    assert export("--remove", "--force")[1]["removed"] == []
    assert (tmp_path / "elsewhere" / "utils.cmake").is_file()


def test_a_directory_that_is_not_there_is_an_error(project, export):
    code, text = export("--remove", "--to", str(project / "none"))
    assert (code, "is not a directory" in text) == (2, True)
