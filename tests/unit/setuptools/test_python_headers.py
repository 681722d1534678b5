# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.errors import ToolchainError
from kernforge.setuptools import python_headers


def headers(top, python, release):
    path = top / "include" / f"python{python}"
    path.mkdir(parents=True)
    (path / "Python.h").write_text("")
    (path / "patchlevel.h").write_text(f'#define PY_VERSION              "{release}"\n')


def test_interpreters_of_uv_and_pyenv_are_found(tmp_path):
    headers(tmp_path / "uv/cpython-3.18.2-linux-x86_64-gnu", "3.18", "3.18.2")
    headers(tmp_path / "pyenv/versions/3.19.0", "3.19", "3.19.0")
    variables = {
        "UV_PYTHON_INSTALL_DIR": str(tmp_path / "uv"),
        "PYENV_ROOT": str(tmp_path / "pyenv"),
    }
    found = python_headers.available(variables)
    assert (found["3.18"].release, found["3.19"].release) == ("3.18.2", "3.19.0")
    again = python_headers.find("3.18", variables).locked()
    assert again.digest != python_headers.find("3.19", variables).locked().digest


def test_free_threaded_interpreters_are_found(tmp_path):
    headers(tmp_path / "uv/cpython-3.18.2+freethreaded-linux-x86_64-gnu", "3.18t", "3.18.2")
    headers(tmp_path / "pyenv/versions/3.19.0t", "3.19t", "3.19.0")
    variables = {
        "UV_PYTHON_INSTALL_DIR": str(tmp_path / "uv"),
        "PYENV_ROOT": str(tmp_path / "pyenv"),
    }
    found = python_headers.available(variables)
    assert (found["3.18t"].release, found["3.19t"].release) == ("3.18.2", "3.19.0")
    assert not {"3.18", "3.19"} & found.keys()


def test_a_python_that_is_not_here_is_named_with_those_that_are(tmp_path):
    headers(tmp_path / "pyenv/versions/3.18.0", "3.18", "3.18.0")
    variables = {"PYENV_ROOT": str(tmp_path / "pyenv"), "UV_PYTHON_INSTALL_DIR": str(tmp_path)}
    with pytest.raises(
        ToolchainError, match=r"extensions for Python 3\.19 need its headers"
    ) as error:
        python_headers.find("3.19", variables)
    assert "3.18" in error.value.hint
    assert "uv python install 3.19" in error.value.hint
