# SPDX-License-Identifier: Apache-2.0
"""``kernforge verify --rebuild``: identical, or the file and the action that differ."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support import projects
from support.projects import git

from kernforge.artifact import integrity
from kernforge.artifact.metadata import Metadata
from kernforge.binary import elf
from kernforge.builder import provenance

pytestmark = pytest.mark.native

CPU = "torch-stable-abi210-cpu-x86_64-linux"


@pytest.fixture(scope="module")
def first(kernforge_cli, tmp_path_factory):
    """A repository with a committed project in a folder, built."""
    top = tmp_path_factory.mktemp("first") / "repository"
    root = projects.write(top / "kernels" / "one")
    git(top, "init", "--quiet")
    kernforge_cli("lock", root)
    git(top, "add", ".")
    git(top, "commit", "--quiet", "-m", "first")
    kernforge_cli("build", root)
    return top


@pytest.fixture
def built(first, tmp_path):
    """The project in a repository of the test's own, and its built variant."""
    root = shutil.copytree(first, tmp_path / "repository") / "kernels" / "one"
    return root, shutil.copytree(root / "build" / CPU, tmp_path / "artifact" / CPU)


def seal(variant: Path, **changes) -> None:
    """Update the digest in the metadata, as an attacker would."""
    path = variant / "metadata.json"
    metadata = Metadata.from_json(path.read_bytes())
    metadata = replace(metadata, digest=integrity.digest_tree(variant), **changes)
    path.write_bytes(metadata.to_json())


@pytest.mark.road
def test_a_variant_is_rebuilt_from_its_commit_and_lock(kernforge_cli, built):
    root, artifact = built
    # Neither the sources nor the lock of the working tree are those of the build.
    (root / "times_two.cpp").write_text("#error edited since\n")
    (root / "kernforge.lock").unlink()
    git(root, "commit", "--quiet", "-am", "second")
    verdicts = json.loads(
        kernforge_cli("verify", "--rebuild", artifact, "--source", root, "--json").stdout
    )
    assert verdicts == [{"variant": CPU, "identical": True, "differences": {}, "notes": []}]


def test_a_variant_of_one_gpu_with_ptx_is_identical(kernforge_cli, tmp_path):
    root = projects.write(tmp_path / "project", backends=("cuda",))
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "first")
    kernforge_cli("build", root, "--arch", "9.0+PTX")
    done = kernforge_cli("verify", "--rebuild", root / "build", "--source", root)
    assert done.stdout.splitlines()[-1].endswith(": identical")


def test_a_changed_file_with_a_new_digest_is_found(kernforge_cli, built):
    root, artifact = built
    (artifact / "__init__.py").write_text("import os  # evil\n" + projects.PACKAGE)
    seal(artifact)
    done = kernforge_cli("verify", "--rebuild", artifact, "--source", root, "--json", expect=6)
    document = json.loads(done.stdout)
    assert set(document[0]["differences"]) == {"__init__.py", "metadata.json"}


def test_a_patched_binary_is_named(kernforge_cli, built):
    root, artifact = built
    (module,) = artifact.glob("*.so")
    data = bytearray(module.read_bytes())
    text = elf.section(bytes(data), ".text")
    at = bytes(data).index(text) + 40
    data[at] ^= 1
    module.write_bytes(data)
    seal(artifact)
    done = kernforge_cli("verify", "--rebuild", artifact, "--source", root, expect=6)
    assert module.name in done.stdout
    assert "changed after it was linked" in done.stdout


def test_the_differing_part_of_a_compiler_is_named(kernforge_cli, built):
    root, artifact = built
    path = artifact / provenance.FILE
    document = json.loads(path.read_text())
    lock = document["predicate"]["buildDefinition"]["internalParameters"]["lock"]
    lock["compilers"]["cxx"]["parts"]["as"] = "0" * 64
    path.write_text(json.dumps(document))
    seal(artifact)
    done = kernforge_cli("verify", "--rebuild", artifact, "--source", root, expect=4)
    assert "built with another compiler" in done.stderr
    assert "as differ here" in done.stderr


def test_unavailable_sources_are_an_error_with_their_commit(kernforge_cli, built, tmp_path):
    root, artifact = built
    assert (
        "names no source repository"
        in kernforge_cli("verify", "--rebuild", artifact, expect=2).stderr
    )
    other = projects.write(tmp_path / "other")
    git(other, "init", "--quiet")
    git(other, "add", ".")
    git(other, "commit", "--quiet", "-m", "unrelated")
    done = kernforge_cli("verify", "--rebuild", artifact, "--source", other, expect=2)
    assert f"has no commit {git(root, 'rev-parse', 'HEAD')}" in done.stderr


def test_uncommitted_changes_are_needed_again(kernforge_cli, built, tmp_path):
    root, _ = built
    (root / "times_two.cpp").write_text(projects.CPP + "// not committed\n")
    kernforge_cli("build", root, "--build-dir", tmp_path / "dirty")
    done = kernforge_cli("verify", "--rebuild", tmp_path / "dirty", expect=2)
    assert "not built from a commit alone" in done.stderr
    assert "changes that no commit holds" in done.stderr
    assert (
        "identical"
        in kernforge_cli("verify", "--rebuild", tmp_path / "dirty", "--source", root).stdout
    )
    (root / "times_two.cpp").write_text(projects.CPP)
    done = kernforge_cli("verify", "--rebuild", tmp_path / "dirty", "--source", root, expect=2)
    assert "does not hold the sources" in done.stderr


def test_a_published_kernel_is_rebuilt_by_its_repo_id(kernforge_cli, built, tmp_path):
    root, _ = built
    registry = tmp_path / "registry"
    kernforge_cli("publish", root, "--registry", registry, "--repo-id", "me/one")
    done = kernforge_cli("verify", "--rebuild", "me/one", "--registry", registry, "--source", root)
    assert f"{CPU}: identical" in done.stdout
