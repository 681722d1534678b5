# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.errors import ToolchainError
from kernforge.setuptools.python_headers import available, find


def headers(top, python, release):
    path = top / "include" / f"python{python}"
    path.mkdir(parents=True)
    (path / "Python.h").write_text("")
    (path / "patchlevel.h").write_text(f'#define PY_VERSION              "{release}"\n')


@pytest.mark.parametrize(("mark", "suffix"), [("", ""), ("+freethreaded", "t")])
def test_headers_of_uv_and_pyenv_are_found(tmp_path, mark, suffix):
    names = (f"3.18{suffix}", f"3.19{suffix}")
    headers(tmp_path / f"uv/cpython-3.18.2{mark}-linux-x86_64-gnu", names[0], "3.18.2")
    headers(tmp_path / f"pyenv/versions/3.19.0{suffix}", names[1], "3.19.0")
    variables = {
        "UV_PYTHON_INSTALL_DIR": str(tmp_path / "uv"),
        "PYENV_ROOT": str(tmp_path / "pyenv"),
    }
    found = available(variables)
    assert {each for each in found if each.startswith(("3.18", "3.19"))} == {*names}
    locked = [find(name, variables).locked for name in names]
    assert [each.release for each in locked] == ["3.18.2", "3.19.0"]
    assert locked[0].digest != locked[1].digest


def test_missing_headers_error_lists_available_pythons(tmp_path):
    headers(tmp_path / "pyenv/versions/3.18.0", "3.18", "3.18.0")
    variables = {"PYENV_ROOT": str(tmp_path / "pyenv"), "UV_PYTHON_INSTALL_DIR": str(tmp_path)}
    with pytest.raises(
        ToolchainError, match=r"extensions for Python 3\.19 need its headers"
    ) as error:
        find("3.19", variables)
    assert "3.18" in error.value.hint
    assert "uv python install 3.19" in error.value.hint
