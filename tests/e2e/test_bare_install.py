# SPDX-License-Identifier: Apache-2.0
"""``pip install kernforge`` and nothing else: what works, and what the rest says."""

import json
import tomllib

import pytest
from packaging.requirements import Requirement
from support.fresh_venv import ROOT
from support.programs import run

from kernforge.cli.table import COMMANDS


@pytest.fixture(scope="module")
def bare(fresh_venv, tmp_path_factory):
    """Run a command in an environment that has kernforge and what it requires."""
    venv = fresh_venv()
    venv.install("kernforge")
    home = tmp_path_factory.mktemp("bare")

    def call(*argv, expect=0):
        environ = venv.environ(
            KERNFORGE_HOME=str(home / "home"), KERNELS_CACHE=str(home / "kernels")
        )
        done = run(argv, cwd=home, env=environ, expect=expect)
        assert "Traceback" not in done.stderr
        return done

    return call


def test_a_fresh_environment_has_what_was_installed_and_nothing_else(bare):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    program = "import importlib.metadata as m; print(*sorted(d.name for d in m.distributions()))"
    named = [Requirement(text).name for text in project["dependencies"]]
    assert bare("python", "-c", program).stdout.split() == sorted(["kernforge", *named])


def test_every_command_shows_its_help(bare):
    program = (
        "from kernforge.cli import main\nfrom kernforge.cli.table import COMMANDS\n"
        "for command in COMMANDS:\n"
        "    try:\n        main.main([command, '--help'])\n"
        "    except SystemExit as end:\n        assert not end.code, command\n"
    )
    assert bare("python", "-c", program).stdout.count("example: kernforge") == len(COMMANDS)
    assert "this machine:" in bare("kernforge").stdout


@pytest.mark.parametrize("options", [(), ("--offline",)])
def test_the_doctor_works(bare, options):
    found = json.loads(bare("kernforge", "doctor", *options, "--json").stdout)["findings"]
    by_rule = {finding["rule"]: finding for finding in found}
    assert "kernforge[build]" in by_rule["extra-build"]["hint"]


def test_a_build_says_what_to_install(bare, tmp_path):
    bare("kernforge", "new", tmp_path / "my-kernel")
    said = bare("kernforge", "build", tmp_path / "my-kernel", expect=2).stderr
    assert "pip install 'kernforge[build]'" in said
