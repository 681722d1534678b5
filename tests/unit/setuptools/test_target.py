# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.artifact.version import Version2
from kernforge.errors import UsageError
from kernforge.setuptools import target
from kernforge.system.environment import Environment


def installed(tmp_path, version="2.13.0+cpu", cuda="None", name="site"):
    package = tmp_path / name / "torch"
    package.mkdir(parents=True)
    (package / "version.py").write_text(
        f"from typing import Optional\n__version__ = '{version}'\ncuda: Optional[str] = {cuda}\n"
    )
    return package


def test_installed_torch_is_read_without_import(tmp_path):
    package = installed(tmp_path, "2.11.0+cu130", "'13.0'")
    found = target.find_installed([str(tmp_path / "none"), str(package.parent)], "3.12")
    assert (found.installed, found.release) == (package, "2.11.0+cu130")
    assert str(found) == "torch 2.11, CUDA 13.0, Python 3.12"


def test_stub_is_not_an_installed_torch(tmp_path):
    package = installed(tmp_path, name="first")
    (package / target.STUB).write_text("{}")
    other = installed(tmp_path, "2.9.1", name="second")
    found = target.find_installed([str(package.parent), str(other.parent)], "3.12")
    assert found.release == "2.9.1"
    assert found.cuda is None


def test_variables_override_the_installed_torch():
    named = {"KERNFORGE_TORCH": "2.9", "KERNFORGE_CUDA": "cu130", "KERNFORGE_PYTHON": "3.13"}
    found = target.find_target(Environment(named))
    assert str(found) == "torch 2.9, CUDA 13.0, Python 3.13"
    assert found.release == "2.9.0+cu130"


def test_default_cuda_is_the_newest_of_the_release():
    assert target.named_target("2.11", None, "3.12").cuda == Version2(13, 0)
    assert target.named_target("2.11.0+cpu", None, "3.12").cuda is None


@pytest.mark.parametrize(
    ("torch", "cuda", "words"),
    [
        ("two", None, "not a release of torch"),
        ("2.11", "11.8", "was not published for CUDA 11.8"),
        ("2.11", "cuda", "not a CUDA version"),
    ],
)
def test_invalid_version_is_refused(torch, cuda, words):
    with pytest.raises(UsageError, match=words):
        target.named_target(torch, cuda, "3.12")


def test_python_tags():
    assert target.python_tag("3.14t") == ("cp314", "cp314t")
    with pytest.raises(UsageError, match="not a version of Python"):
        target.parse_python("py3")
