# SPDX-License-Identifier: Apache-2.0
"""The spare pytest of ``kernforge dev``: it does what a new one does, and is none that was used."""

import os
import signal
import sys
from pathlib import Path

import pytest

from kernforge.dev import warm_pytest_main
from kernforge.dev.warm_pytest import WarmPytest
from kernforge.system.environment import Environment
from kernforge.system.process import Command, kill_all, run

pytestmark = pytest.mark.native

TESTS = """import os
import sys
import warnings
from pathlib import Path

EARLY = "torch" in sys.modules

def test_place():
    here = Path(__file__).parents[1]
    assert Path.cwd() == here
    print(sys.path, sys.flags, __name__, sys.modules["__main__"].__file__)
    print([name for name in sys.modules if name.partition(".")[0] == "kernforge"])
    assert Path(sys.argv[0]).parts[-2:] == ("pytest", "__main__.py")
    assert os.environ["OF_THE_ROUND"] == "yes"
    assert "OF_ANOTHER" not in os.environ

def test_fresh():
    assert not hasattr(os, "used")
    os.used = True

def test_print():
    print("said", "early" if EARLY else "late")
    os.write(2, b"an error\\n")

def test_wrong():
    assert 1 == 2
"""
ARGUMENTS = ("-p", "no:cacheprovider", "-p", "no:kernforge", "-W", "error", "-s", "tests")


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)  # with it, the outer run's options
    (tmp_path / "project" / "tests").mkdir(parents=True)
    (tmp_path / "project" / "pyproject.toml").write_text("[tool.pytest]\n")
    (tmp_path / "project" / "tests" / "test_a.py").write_text(TESTS)
    return tmp_path / "project"


@pytest.fixture
def spare(project, tmp_path, monkeypatch):
    monkeypatch.setenv("OF_ANOTHER", "yes")
    with WarmPytest(project, tmp_path, Environment.read()) as one:
        yield one


def order(project):
    env = {name: value for name, value in os.environ.items() if name != "OF_ANOTHER"}
    env |= {"OF_THE_ROUND": "yes"}
    argv = (sys.executable, "-m", "pytest", *ARGUMENTS)
    return Command(argv=argv, cwd=project, env=env)


def outcome(done):
    """What it said but for its times."""
    lines = [line for line in done.stdout.splitlines() if " in " not in line]
    return done.returncode, [line.replace("early", "late") for line in lines], done.stderr


def test_it_does_what_a_new_one_does_each_time(project, spare, tmp_path):
    new = run(order(project))
    assert new.returncode == 1
    assert "3 passed" in new.stdout
    for _ in range(2):
        spare.prepare()
        done = spare.run(order(project))
        assert outcome(done) == outcome(new)
        assert "early" in done.stdout or "torch" not in sys.modules
    assert sorted(path.name for path in tmp_path.iterdir()) == ["project"]


def test_one_that_was_not_prepared_or_was_killed_is_started_anew(project, spare):
    assert "said late" in spare.run(order(project)).stdout
    spare.prepare()
    spare._next.result()
    kill_all()
    assert "said late" in spare.run(order(project)).stdout
    spare.prepare()
    spare._next.result()
    kill_all()
    spare.prepare()
    assert outcome(spare.run(order(project)))[0] == 1


def test_a_test_that_ends_the_process_is_reported(project, spare):
    crash = "import os\n\ndef test_crash():\n    os.kill(os.getpid(), 11)\n"
    (project / "tests" / "test_a.py").write_text(crash)
    spare.prepare()
    assert spare.run(order(project)).returncode == -signal.SIGSEGV
    assert run(order(project)).returncode == -signal.SIGSEGV


def test_another_program_is_none_of_its_business(project, spare):
    spare.prepare()
    done = spare.run(Command(argv=(sys.executable, "-c", "print(5)"), cwd=project))
    assert done.stdout == "5\n"


def test_a_file_of_the_projects_may_change(tmp_path):
    """A process that has imported one is not used."""
    installed = tmp_path / ".venv" / "lib" / "python3.12" / "site-packages"
    assert warm_pytest_main._may_change(tmp_path / "numpy.py", tmp_path)
    assert not warm_pytest_main._may_change(installed / "numpy.py", tmp_path)
    assert not warm_pytest_main._may_change(Path(os.__file__), tmp_path)


def test_a_process_that_has_imported_the_projects_own_files_is_not_used(project, spare):
    (project / "pluggy.py").write_text("from pluggy_of_old import *\n")
    spare.prepare()
    assert "pluggy_of_old" in spare.run(order(project)).stderr
