# SPDX-License-Identifier: Apache-2.0
"""``kernforge test``: on a built artifact, under its plain name, here and on a real worker."""

import json
import os
import subprocess
import sys

import pytest
from support import projects

from kernforge.errors import UsageError
from kernforge.testing import project_tests

pytestmark = [pytest.mark.native, pytest.mark.torch]

CPU = "torch-stable-abi210-cpu-x86_64-linux"
TESTS = """import torch
import times_two
from times_two._ops import ops

def test_it_is_the_build(kernel):
    assert times_two is kernel

def test_it_is_called():
    assert ops is times_two._ops.ops

def test_one_is_skipped():
    import pytest
    pytest.skip("for a reason")
"""


@pytest.fixture
def run_test(kernforge_cli, tmp_path):
    root = projects.write(tmp_path / "project")
    (root / "tests").mkdir(exist_ok=True)
    (root / "tests" / "test_it.py").write_text(TESTS)

    def call(*arguments, expect):
        asked = ("test", root, "--variant", CPU, *arguments, "--json")
        return json.loads(kernforge_cli(*asked, expect=expect).stdout)

    call.root = root
    return call


def test_tests_say_import_and_get_the_artifact(run_test):
    (told,) = run_test(expect=0)["variants"]
    assert told["variant"] == CPU
    # ``kernel`` is asked for on the CPU alone: this variant is not for a GPU.
    assert told["counts"] == {"passed": 2, "failed": 0, "error": 0, "skipped": 1}
    assert "for a reason" in {one["reason"].removeprefix("Skipped: ") for one in told["tests"]}


def test_a_failure_is_an_exit_code_and_its_reason_is_reported(run_test):
    (run_test.root / "tests" / "test_it.py").write_text("def test_wrong():\n    assert 1 == 2\n")
    (told,) = run_test(expect=6)["variants"]
    assert [(o["outcome"], "1 == 2" in o["reason"]) for o in told["tests"]] == [("failed", True)]


PUBLISHED = """
[general.hub]
repo-id = "me/times-two"
"""
BY_REPO_ID = """import kernforge
import kernels

def test_the_repo_id_is_the_build(kernel):
    assert kernforge.get_kernel("me/times-two", version=1) is kernel

def test_the_hubs_client_takes_the_build_too(kernel):
    found = kernels.get_kernel("me/times-two", version=1)
    assert found.__file__ == kernel.__file__
"""


def test_what_is_published_does_not_take_the_place_of_the_build(run_test):
    pytest.importorskip("kernels")
    with (run_test.root / "build.toml").open("a") as manifest:
        manifest.write(PUBLISHED)
    (run_test.root / "tests" / "test_it.py").write_text(BY_REPO_ID)
    (told,) = run_test(expect=0)["variants"]
    assert told["counts"]["passed"] == 2


def test_a_file_of_tests_that_cannot_be_imported_is_named(run_test):
    (run_test.root / "tests" / "test_bad.py").write_text("import nowhere_at_all\n")
    told = run_test(expect=2)
    assert told["message"].startswith("tests/test_bad.py cannot be read, so nothing was tested:")
    assert "No module named 'nowhere_at_all'" in told["message"]
    assert "test session starts" not in told["message"]
    assert "--ignore" in told["hint"]
    text = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
    (run_test.root / "tests" / "test_bad.py").write_text(text)
    assert run_test(expect=2)["hint"] == "pip install torch"


def test_a_wrong_argument_for_pytest_is_named(run_test):
    told = run_test("--pytest=--sideways", expect=2)
    assert told["message"] == "pytest refuses its arguments: unrecognized arguments: --sideways"


def test_a_run_in_which_all_is_skipped_says_why():
    def tested(*outcomes):
        rows = tuple({"test": "t", "outcome": o, "reason": r} for o, r in outcomes)
        return project_tests.Tested(variant="v", tests=rows, output="", wall_s=1.0)

    skipped = ("skipped", "Skipped: no NVIDIA GPU here")
    assert (
        tested(skipped, ("skipped", "Skipped: other"), skipped).skip_reason == "no NVIDIA GPU here"
    )
    assert not tested(skipped, ("passed", "")).skip_reason
    assert not tested().skip_reason


def test_a_run_that_tested_nothing_is_an_exit_code_of_its_own(run_test):
    skips = "import pytest\n\n@pytest.mark.parametrize('n', [1, 2])\ndef test_it(n):\n"
    (run_test.root / "tests" / "test_it.py").write_text(f"{skips}    pytest.skip('no such GPU')\n")
    told = run_test(expect=13)
    assert (told["ok"], told["variants"][0]["counts"]["skipped"]) == (False, 2)
    # One that ran is enough, also if it fails as expected, and one that fails is worse.
    xfails = "import pytest\n\n@pytest.mark.xfail(reason='known')\ndef test_more():\n    assert 0\n"
    (run_test.root / "tests" / "test_more.py").write_text(xfails)
    (told,) = run_test(expect=0)["variants"]
    assert told["counts"]["skipped"] == 3
    assert ("xfailed", "known") in {(one["outcome"], one["reason"]) for one in told["tests"]}
    (run_test.root / "tests" / "test_more.py").write_text("def test_more():\n    pass\n")
    assert run_test(expect=0)["ok"]
    (run_test.root / "tests" / "test_more.py").write_text("def test_more():\n    assert False\n")
    run_test(expect=6)


def test_a_project_that_cannot_be_built_is_reported_in_the_builds_words_and_code(run_test):
    source = run_test.root / "times_two.cpp"
    right = source.read_text()
    source.write_text(f"{right}\nint wrong = missing;\n")
    said = run_test(expect=5)
    assert "error: 'missing' was not declared" in said["failures"][0]["output"]
    source.write_text(right)
    (package,) = (run_test.root / "torch-ext").glob("*/__init__.py")
    package.write_text(f"{package.read_text()}\ndef broken(:\n")
    said = run_test(expect=6)
    assert any("it is not Python" in finding["message"] for finding in said["findings"])
    (run_test.root / "build.toml").write_text("[general\n")
    assert "build.toml:1" in run_test(expect=3)["message"]


def test_a_project_that_takes_no_files_gets_a_way_out(run_test, kept_home):
    root = run_test.root
    mount = f"mount --bind '{root}' '{root}' && mount -o remount,bind,ro '{root}'"
    tried = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*tried, mount], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no mount namespace")

    def told():
        test = f"{mount} && {sys.executable} -m kernforge test '{root}' --variant {CPU} --json"
        env = {**os.environ, "KERNFORGE_HOME": str(kept_home)}
        done = subprocess.run([*tried, test], capture_output=True, text=True, env=env, check=False)
        assert done.returncode == 11, done.stdout + done.stderr
        return json.loads(done.stdout)

    (root / "kernforge.lock").unlink(missing_ok=True)
    assert "`kernforge lock`" in told()["hint"]


def test_what_is_built_is_tested_without_building(run_test):
    build = run_test.root / "build"
    assert "is not a directory" in run_test("--build-dir", build, expect=2)["message"]
    run_test(expect=0)
    (run_test.root / "times_two.cpp").write_text("this is no C++")  # a build would fail
    (told,) = run_test("--build-dir", build, expect=0)["variants"]
    assert (told["variant"], told["counts"]["passed"]) == (CPU, 2)
    (told,) = run_test("--build-dir", build / CPU, expect=0)["variants"]
    assert told["variant"] == CPU
    with pytest.raises(UsageError, match=r"no variant \*-cu130-\*") as told:
        project_tests.built_in(build, ["*-cu130-*"])
    assert CPU in told.value.hint


def test_a_build_that_was_changed_is_refused_before_it_is_tested(run_test):
    run_test(expect=0)
    build = run_test.root / "build"
    with (build / CPU / "__init__.py").open("a") as file:
        file.write("# tampered")
    said = run_test("--build-dir", build, expect=9)
    assert "changed: __init__.py" in said["message"]
