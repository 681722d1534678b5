# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.errors import UsageError
from kernforge.setuptools import pip
from kernforge.system.environment import Environment


def test_options_of_kernforge_and_pip_are_separated():
    chosen, rest = pip.take_choices(
        ["install", "--torch", "2.11", "--no-deps", ".", "--cuda=cpu", "--python", "3.11"]
    )
    assert chosen == {"torch": "2.11", "cuda": "cpu", "python": "3.11"}
    assert rest == ("install", "--no-deps", ".")
    words = ("install", "-t", "out", "-e", "a", "--python-version", "3.9", "--", "-b", ".")
    assert pip.take_choices(words) == ({}, words)
    with pytest.raises(UsageError, match="--torch: expected one argument"):
        pip.take_choices(["install", "--torch"])


def test_another_python_is_refused():
    with pytest.raises(UsageError, match=r"cannot install for Python 3\.8"):
        pip.run_pip(["download", ".", "--python", "3.8"], Environment({}))


def test_what_pip_would_do_otherwise_is_said(tmp_path, monkeypatch, capsys):
    with pytest.raises(UsageError, match="--torch is for install, wheel, download"):
        pip.run_pip(["list", "--torch", "2.11"], Environment({}))
    (tmp_path / "my_ext").mkdir()
    (tmp_path / "my_ext/setup.py").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="cannot install"):
        pip.run_pip(["install", "my_ext", "--python", "3.8"], Environment({}))
    assert "./my_ext is the project there" in capsys.readouterr().err


def test_stubbed_build_requirements_are_not_fetched(tmp_path):
    about = tmp_path / "pyproject.toml"
    about.write_text(
        '[build-system]\nrequires = ["packaging", "Torch>=2.7", "ninja", "no-such-package", '
        "\"tomli; python_version < '3.0'\"]\n"
    )
    wanted = pip.build_requirements(tmp_path)
    assert [each.name for each in wanted] == ["packaging", "Torch", "ninja", "no-such-package"]
    assert [each.name for each in pip.missing(wanted)] == ["no-such-package"]
    about.unlink()
    assert [each.name for each in pip.build_requirements(tmp_path)] == ["setuptools"]
