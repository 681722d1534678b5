# SPDX-License-Identifier: Apache-2.0
"""Jobs, image and container are valid for who reads them, and are there for what a project has."""

import json
import sys
from fnmatch import fnmatchcase

import pytest
from support.programs import output, program

from kernforge.project.scaffold import FORGES, ci_files

yaml = pytest.importorskip("yaml")

GITHUB, GITLAB = ".github/workflows/kernel.yml", ".gitlab-ci.yml"
BACKENDS = [("cpu", "cuda"), ("cpu",), ("cuda",), ("metal",)]


def written(tmp_path, forge, backends):
    files = ci_files(forge, "my-op", backends)
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return files


@pytest.mark.parametrize("backends", BACKENDS)
def test_the_workflow_passes_the_linter(tmp_path, backends):
    written(tmp_path, "github", backends)
    output((program("actionlint"), "-shellcheck=", tmp_path / GITHUB))


@pytest.mark.parametrize(
    ("forge", "path", "schema"),
    [("github", GITHUB, "github-workflows"), ("gitlab", GITLAB, "gitlab-ci")],
)
@pytest.mark.parametrize("backends", BACKENDS)
def test_the_jobs_have_the_forges_schema(tmp_path, forge, path, schema, backends):
    pytest.importorskip("check_jsonschema")
    written(tmp_path, forge, backends)
    program = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}")
    output((*program, tmp_path / path))


@pytest.mark.parametrize("forge", FORGES)
@pytest.mark.parametrize("backends", BACKENDS)
def test_there_is_a_job_for_what_the_project_has(forge, backends):
    files = ci_files(forge, "my-op", backends)
    document = yaml.safe_load(files[GITHUB if forge == "github" else GITLAB])
    jobs = document["jobs"] if forge == "github" else document
    assert ("test-cpu" in jobs) is ("cpu" in backends)
    assert ("test-gpu" in jobs) is ("cuda" in backends)
    if forge == "github":
        assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish"}
        assert jobs["publish"]["permissions"]["id-token"] == "write"
    assert not [path for path, text in files.items() if "__" in text or "# <" in text]


def test_the_patterns_of_the_matrix_divide_the_variants():
    document = yaml.safe_load(ci_files("github", "my-op", ("cpu", "cuda"))[GITHUB])
    rows = document["jobs"]["build"]["strategy"]["matrix"]["include"]
    patterns = {row["backend"]: row["variants"] for row in rows}
    for name, backend in {
        "torch-stable-abi210-cpu-x86_64-linux": "cpu",
        "torch213-cxx11-cpu-aarch64-linux": "cpu",
        "torch-stable-abi210-cu130-x86_64-linux": "cuda",
        "torch29-cxx11-cu126-x86_64-linux": "cuda",
        "tvm-ffi01-cu130-x86_64-linux": "cuda",
    }.items():
        assert [b for b, pattern in patterns.items() if fnmatchcase(name, pattern)] == [backend]


def test_the_container_is_json_and_keeps_the_store():
    document = json.loads(ci_files("github", "my-op", ("cpu",))[".devcontainer/devcontainer.json"])
    home = document["containerEnv"]["KERNFORGE_HOME"]
    assert any(f"target={home}," in mount for mount in document["mounts"])
    assert document["name"] == "my-op"
