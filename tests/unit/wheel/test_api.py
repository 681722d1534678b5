# SPDX-License-Identifier: Apache-2.0
import _bisect
import base64
import csv
import hashlib
import json
import os
import runpy
import shutil
import sys
import zipfile
from types import SimpleNamespace

import pytest
from support.commands import call

from kernforge.artifact.metadata import Metadata
from kernforge.errors import IntegrityError, RegistryError, UsageError
from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry
from kernforge.system.environment import Environment
from kernforge.wheel.api import from_directory, from_registry, make

REPO = "me/toy"


@pytest.fixture
def project(tmp_path, write_variant):
    """A project with two built variants, a card and a licence."""
    for variant in ("torch-cpu", "torch-cuda"):
        write_variant(tmp_path / "project" / "build", variant=variant)
    (tmp_path / "project" / "CARD.md").write_text("# Toy\n")
    (tmp_path / "project" / "LICENSE").write_bytes(b"\xa9 Do what you like.\n")
    return tmp_path / "project"


def names(made):
    return [one.path.name for one in made]


def test_every_variant_becomes_a_wheel(project, tmp_path):
    made = make(from_directory(project), tmp_path / "dist", tmp_path, version="1.4.0")
    expected = ["toy-1.4.0+cpu-py3-none-any.whl", "toy-1.4.0+cuda-py3-none-any.whl"]
    assert names(made) == expected
    assert sorted(path.name for path in (tmp_path / "dist").iterdir()) == expected
    made = make(from_directory(project), tmp_path, tmp_path, version="1.4.0", patterns=["*-cuda"])
    assert names(made) == expected[1:], "a wheel's name is independent of the selection"
    with pytest.raises(UsageError, match="no variant matches"):
        make(from_directory(project), tmp_path, tmp_path, patterns=["*-rocm"])


def test_record_has_every_file_with_its_hash(tmp_path, project, write_variant):
    files = {"__init__.py": "", "a,b.py": "", 'say "x".json': "{}"}
    write_variant(project / "build", variant="torch-cpu", files=files)
    wheel = make(from_directory(project), tmp_path, tmp_path, patterns=["*-cpu"])[0].path
    with zipfile.ZipFile(wheel) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    record = list(members)[-1]
    rows = {row[0]: row[1:] for row in csv.reader(members[record].decode().splitlines())}
    assert rows.pop(record) == ["", ""]
    assert set(rows) == set(members) - {record}
    for name, (digest, size) in rows.items():
        found = base64.urlsafe_b64encode(hashlib.sha256(members[name]).digest())
        assert (digest, int(size)) == (f"sha256={found.decode().rstrip('=')}", len(members[name]))
    assert members["toy-1.0.0+cpu.dist-info/licenses/LICENSE"] == b"\xa9 Do what you like.\n"
    # The variant is there byte for byte, so that its own digest can still be checked.
    kept = Metadata.from_json(members["toy/metadata.json"])
    for name, digest in kept.digest.files.items():
        assert base64.b64encode(hashlib.sha256(members[f"toy/{name}"]).digest()).decode() == digest


def test_wheels_are_reproducible(tmp_path, write_variant):
    wheels = []
    for place, umask, moment in (("a", 0o022, 1_000_000_000), ("deep/b", 0o077, 2_000_000_000)):
        before = os.umask(umask)
        try:
            variant = write_variant(tmp_path / place / "build")
            for path in variant.rglob("*"):
                os.utime(path, (moment, moment))
            made = make(from_directory(tmp_path / place), tmp_path / place / "dist", tmp_path)
        finally:
            os.umask(before)
        wheels.append(made[0].path.read_bytes())
    assert wheels[0] == wheels[1]


def test_members_have_the_given_time(project, tmp_path):
    wheel = make(from_directory(project), tmp_path, tmp_path, seconds=1_700_000_000)[0].path
    with zipfile.ZipFile(wheel) as archive:
        assert {one.date_time for one in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}
        assert {one.external_attr >> 16 for one in archive.infolist()} == {0o100644}


@pytest.mark.parametrize(
    ("cuda", "way"),
    [
        (None, "pip install 'toy==1.0.0+torchabi2.10.cpu'"),
        ("13.2", "pip install 'toy==1.0.0+torchabi2.10.cu130'"),
        ("11.8", "no wheel was made for that; install another torch"),
    ],
)
def test_a_wheel_of_another_backend_names_the_one_that_fits(
    tmp_path, write_variant, monkeypatch, cuda, way
):
    for backend in ("cpu", "cu126", "cu130", "rocm72"):
        kind = {"c": "cuda", "r": "rocm"}[backend[0]] if backend != "cpu" else "cpu"
        stated = {"backend": kind, "unique": "toy0001", "digest": False}
        name = f"torch-stable-abi210-{backend}-x86_64-linux"
        directory = write_variant(tmp_path / "build", variant=name, **stated)
        # Of another name: Python refuses it, as it refuses one whose libraries are missing.
        shutil.copy(_bisect.__file__, directory / f"_toy_{kind}_toy0001.cpython-311-x.so")
    made = make(from_directory(tmp_path), tmp_path, tmp_path, patterns=["*rocm72*"])
    with zipfile.ZipFile(made[0].path) as archive:
        archive.extractall(tmp_path / "site")
    torch = SimpleNamespace(__version__="2.13.0", version=SimpleNamespace(cuda=cuda, hip=None))
    with monkeypatch.context() as installed:
        installed.setitem(sys.modules, "torch", torch)
        with pytest.raises(ImportError, match="is built for rocm72, and torch") as caught:
            runpy.run_path(tmp_path / "site/toy/_toy_rocm_toy0001/__init__.py")
    assert str(caught.value).endswith(f"is installed: {way}")


def test_a_modified_variant_is_refused(project, tmp_path):
    (project / "build" / "torch-cuda" / "more.py").write_text("evil")
    with pytest.raises(IntegrityError):
        make(from_directory(project), tmp_path / "dist", tmp_path)
    assert not (tmp_path / "dist").exists()


def test_variants_of_two_versions_are_refused(project, tmp_path, write_variant):
    with pytest.raises(UsageError, match="does not begin with 1"):
        make(from_directory(project), tmp_path, tmp_path, version="2.0.0")
    write_variant(project / "build", variant="torch-rocm", version=2)
    with pytest.raises(RegistryError, match="torch-rocm is toy version 2"):
        make(from_directory(project), tmp_path, tmp_path)


def test_two_variants_of_one_wheel_name_are_refused(tmp_path, write_variant):
    for variant in ("torch212-cu130-x86_64-linux", "torch212-cxx11-cu130-x86_64-linux"):
        write_variant(tmp_path / "build", variant=variant, backend="cuda")
    with pytest.raises(UsageError, match="have the same name"):
        make(from_directory(tmp_path), tmp_path / "dist", tmp_path)


@pytest.mark.parametrize(
    ("asked", "version"),
    [((None, None), "1.0.1"), (("1.0.0", None), "1.0.0"), ((None, "v1.0.0"), "1.0.0")],
)
def test_a_published_kernel_has_wheels_of_its_version(
    project, tmp_path, write_variant, asked, version
):
    registry = DirectoryRegistry(tmp_path / "registry")
    publish(project / "build", registry, REPO, card="# Toy\n")
    write_variant(project / "build", variant="torch-cpu", unique="bbbbbbb")
    publish(project / "build", registry, REPO, card="# Toy\n")
    sources, found = from_registry(registry, REPO, *asked, Environment({}))
    assert found == version
    make(sources, tmp_path / "dist", tmp_path, version=found)
    wheel = tmp_path / "dist" / f"toy-{version}+cpu-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        assert "aaaaaaa" in archive.read("toy/metadata.json").decode() or version == "1.0.1"
        assert "# Toy" in archive.read(f"toy-{version}+cpu.dist-info/METADATA").decode()


def test_a_published_build_without_a_digest_is_refused(tmp_path, write_variant):
    snapshot = tmp_path / "kernels--me--toy" / "snapshots" / ("5" * 40)
    write_variant(snapshot / "build", digest=False)
    with pytest.raises(IntegrityError, match="no digest"):
        from_registry(DirectoryRegistry(tmp_path), REPO, None, "5" * 40, Environment({}))


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def wheel(tmp_path, capsys, monkeypatch):
    """A function that runs the command: its exit code, its document, what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)

    def run(*argv):
        code = call("wheel", *argv, "--json")
        said = capsys.readouterr()
        return code, json.loads(said.out), said.err

    return run


def test_wheels_of_a_directory_have_its_major_version_or_the_given_one(
    wheel, tmp_path, write_variant
):
    write_variant(tmp_path / "build", version=7)
    code, document, notes = wheel(".")
    assert code == 0
    (made,) = document["wheels"]
    assert (made["tag"], made["version"], made["requires"]) == ("py3-none-any", "7.0.0", ["torch"])
    assert (tmp_path / made["path"]).is_file()
    assert "the wheels get 7.0.0: there is no --as-version and no git tag vX.Y.Z" in notes
    _, document, notes = wheel(".", "--as-version", "7.2.1")
    assert [made["version"] for made in document["wheels"]] == ["7.2.1"]
    assert not notes


def test_a_commit_without_a_tag_needs_as_version(wheel, tmp_path, write_variant):
    snapshot = tmp_path / "r" / "kernels--me--toy" / "snapshots" / ("5" * 40)
    write_variant(snapshot / "build")
    asked = ("me/toy", "--version", "5" * 40, "--registry", tmp_path / "r")
    code, document, _ = wheel(*asked)
    assert code == 2
    assert "--as-version" in document["hint"]
    assert wheel(*asked, "--as-version", "1.0.7")[0] == 0


@pytest.fixture
def built(tmp_path, write_variant, monkeypatch):
    write_variant(tmp_path / "build")
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("build", "--version", "1"), 2, "is a directory"),
        (("me/toy", "--registry", "none"), 8, "none"),
        (("no/such/directory",), 2, "no/such/directory"),
        (("empty", "--torch", "2.11"), 2, "empty is not a setup.py project; --torch"),
        (("build",), 2, "SOURCE_DATE_EPOCH is 'yesterday'"),
    ],
)
def test_a_wrong_request_is_an_error_that_names_it(wheel, built, argv, code, message):
    status, document, _ = wheel(*argv)
    assert (status, message in document["message"]) == (code, True), document
