# SPDX-License-Identifier: Apache-2.0
import io
import tarfile

import pytest

from kernforge.errors import IntegrityError, UsageError
from kernforge.setuptools import requirements


def archive(members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as opened:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            opened.addfile(info, io.BytesIO(text.encode()))
    return stream.getvalue()


def test_torch_and_ninja_are_not_fetched(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools<81", "Torch>=2.7,<2.8", "ninja", "packaging", '
        "\"tomli; python_version < '3.0'\"]\n"
    )
    assert requirements.of_project(tmp_path) == ("setuptools<81", "packaging")


def test_a_project_without_pyproject_needs_setuptools(tmp_path):
    (tmp_path / "setup.py").write_text("")
    assert requirements.of_project(tmp_path) == ("setuptools>=40.8.0", "wheel")


def test_what_is_not_a_project(tmp_path):
    with pytest.raises(UsageError, match=r"neither setup\.py nor pyproject\.toml"):
        requirements.of_project(tmp_path)
    for text, message in (
        ("[build-system\n", "is not valid TOML"),
        ("build-system = 1\n", "is not a list of texts"),
        ('[build-system]\nrequires = "setuptools"\n', "is not a list of texts"),
        ('[build-system]\nrequires = ["two words"]\n', "'two words' is not a requirement"),
    ):
        (tmp_path / "pyproject.toml").write_text(text)
        with pytest.raises(UsageError, match=message):
            requirements.of_project(tmp_path)


def test_a_source_distribution_is_unpacked_where_it_belongs(tmp_path):
    data = archive({"toy-1.0/setup.py": "x", "toy-1.0/csrc/a.cu": "y"})
    found = requirements.unpack("toy-1.0.tar.gz", data, tmp_path / "out")
    assert found == tmp_path / "out/toy-1.0"
    assert (found / "csrc/a.cu").read_text() == "y"


def test_a_source_distribution_has_one_directory_at_its_top(tmp_path):
    data = archive({"toy-1.0/setup.py": "x", "other/setup.py": "y"})
    with pytest.raises(UsageError, match="is not a source distribution"):
        requirements.unpack("toy-1.0.tar.gz", data, tmp_path / "out")


def test_what_is_not_an_archive(tmp_path):
    with pytest.raises(IntegrityError, match=r"toy\.tar\.gz cannot be unpacked"):
        requirements.unpack("toy.tar.gz", b"nothing", tmp_path)
