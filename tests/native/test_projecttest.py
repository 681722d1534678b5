# SPDX-License-Identifier: Apache-2.0
"""``kernforge test``: a built artifact, imported under its plain name."""

import json

import pytest
from support import projects

pytestmark = [pytest.mark.native, pytest.mark.torch]

CPU = "torch-stable-abi210-cpu-x86_64-linux"
TESTS = """import torch
import times_two
from times_two._ops import ops

def test_import_gives_the_kernel_fixture(kernel):
    assert times_two is kernel

def test_a_submodule_is_imported():
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


def test_import_in_a_test_gives_the_tested_build(run_test):
    (result,) = run_test(expect=0)["variants"]
    assert result["variant"] == CPU
    # ``kernel`` is asked for on the CPU alone: this variant is not for a GPU.
    assert result["counts"] == {"passed": 2, "failed": 0, "error": 0, "skipped": 1}
    assert "for a reason" in {one["reason"].removeprefix("Skipped: ") for one in result["tests"]}


def test_a_failed_test_has_an_exit_code_and_a_reason(run_test):
    (run_test.root / "tests" / "test_it.py").write_text("def test_wrong():\n    assert 1 == 2\n")
    (result,) = run_test(expect=6)["variants"]
    assert [(o["outcome"], "1 == 2" in o["reason"]) for o in result["tests"]] == [("failed", True)]


PUBLISHED = """
[general.hub]
repo-id = "me/times-two"
"""
BY_REPO_ID = """import kernforge
import kernels

def test_get_kernel_gives_the_build(kernel):
    assert kernforge.get_kernel("me/times-two", version=1) is kernel

def test_the_hub_client_gives_the_build(kernel):
    found = kernels.get_kernel("me/times-two", version=1)
    assert found.__file__ == kernel.__file__
"""


def test_get_kernel_in_a_test_gives_the_build(run_test):
    pytest.importorskip("kernels")
    with (run_test.root / "build.toml").open("a") as manifest:
        manifest.write(PUBLISHED)
    (run_test.root / "tests" / "test_it.py").write_text(BY_REPO_ID)
    (result,) = run_test(expect=0)["variants"]
    assert result["counts"]["passed"] == 2


def test_an_import_error_in_a_test_file_is_reported(run_test):
    (run_test.root / "tests" / "test_bad.py").write_text("import nowhere_at_all\n")
    result = run_test(expect=2)
    assert result["message"].startswith("tests/test_bad.py cannot be read, so nothing was tested:")
    assert "No module named 'nowhere_at_all'" in result["message"]
    assert "test session starts" not in result["message"]
    assert "--ignore" in result["hint"]
    text = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
    (run_test.root / "tests" / "test_bad.py").write_text(text)
    assert run_test(expect=2)["hint"] == "pip install torch"


def test_an_unknown_pytest_argument_is_reported(run_test):
    result = run_test("--pytest=--sideways", expect=2)
    assert "unrecognized arguments: --sideways" in result["message"]


def test_a_run_of_skipped_tests_has_an_exit_code(run_test):
    skips = "import pytest\n\n@pytest.mark.parametrize('n', [1, 2])\ndef test_it(n):\n"
    (run_test.root / "tests" / "test_it.py").write_text(f"{skips}    pytest.skip('no such GPU')\n")
    result = run_test(expect=13)
    assert (result["ok"], result["variants"][0]["counts"]["skipped"]) == (False, 2)
    assert "every test was skipped on" in result["message"]
    assert "no such GPU" in result["message"]
    # One that ran is enough, also if it fails as expected, and one that fails is worse.
    xfails = "import pytest\n\n@pytest.mark.xfail(reason='known')\ndef test_more():\n    assert 0\n"
    (run_test.root / "tests" / "test_more.py").write_text(xfails)
    (result,) = run_test(expect=0)["variants"]
    assert result["counts"]["skipped"] == 3
    assert ("xfailed", "known") in {(one["outcome"], one["reason"]) for one in result["tests"]}
    (run_test.root / "tests" / "test_more.py").write_text("def test_more():\n    pass\n")
    assert run_test(expect=0)["ok"]
    (run_test.root / "tests" / "test_more.py").write_text("def test_more():\n    assert False\n")
    run_test(expect=6)


def test_a_build_error_keeps_its_message_and_exit_code(run_test):
    source = run_test.root / "times_two.cpp"
    right = source.read_text()
    source.write_text(f"{right}\nint wrong = missing;\n")
    result = run_test(expect=5)
    assert "error: 'missing' was not declared" in result["failures"][0]["output"]
    source.write_text(right)
    (package,) = (run_test.root / "torch-ext").glob("*/__init__.py")
    package.write_text(f"{package.read_text()}\ndef broken(:\n")
    result = run_test(expect=6)
    assert any("it is not Python" in finding["message"] for finding in result["findings"])
    (run_test.root / "build.toml").write_text("[general\n")
    assert "build.toml:1" in run_test(expect=3)["message"]


def test_build_dir_is_tested_without_a_build(run_test):
    build = run_test.root / "build"
    assert "is not a directory" in run_test("--build-dir", build, expect=2)["message"]
    run_test(expect=0)
    (run_test.root / "times_two.cpp").write_text("this is no C++")  # a build would fail
    (result,) = run_test("--build-dir", build, expect=0)["variants"]
    assert (result["variant"], result["counts"]["passed"]) == (CPU, 2)
    (result,) = run_test("--build-dir", build / CPU, expect=0)["variants"]
    assert result["variant"] == CPU


def test_a_modified_build_is_refused_before_its_tests(run_test):
    run_test(expect=0)
    build = run_test.root / "build"
    with (build / CPU / "__init__.py").open("a") as file:
        file.write("# tampered")
    result = run_test("--build-dir", build, expect=9)
    assert "changed: __init__.py" in result["message"]


def test_sources_of_another_backend_are_compiled_first(run_test, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    root = projects.write(run_test.root, backends=("cpu", "cuda"))
    assert run_test(expect=0)["uncompiled"] == {}
    source = root / "times_two.cu"
    source.write_text(source.read_text().replace("y[i] =", "z[i] ="))
    result = run_test(expect=5)
    (failure,) = result["failures"]
    assert failure["action"].startswith("times_two.cu")
    assert 'identifier "z" is undefined' in failure["output"]
    assert [name.split("-")[3] for name in result["left_out"]] == ["cu130"]
