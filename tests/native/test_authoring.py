# SPDX-License-Identifier: Apache-2.0
"""What ``new`` and ``init`` write builds and passes its own tests."""

import json

import pytest

pytestmark = [pytest.mark.native, pytest.mark.torch]
pytest.importorskip("torch")


def counted(kernforge_cli, project, *arguments):
    """Counts of a project's tests on the CPU, and the names of those that passed."""
    done = kernforge_cli("test", project, "--json", *arguments, cwd=project)
    (variant,) = json.loads(done.stdout)["variants"]
    return variant["counts"], [
        test["test"].rpartition("::")[2].partition("[")[0]
        for test in variant["tests"]
        if test["outcome"] == "passed"
    ]


@pytest.mark.parametrize("layout", ["minimal", "gradient"])
def test_each_layout_builds_and_passes_its_tests(tmp_path, kernforge_cli, layout):
    kernforge_cli("new", "my-op", f"--{layout}", "--backends", "cpu", cwd=tmp_path)
    counts, names = counted(kernforge_cli, tmp_path / "my-op")
    assert counts["passed"] >= 20
    assert counts["failed"] + counts["error"] == 0
    assert ("test_gradients" in names) is (layout == "gradient")


@pytest.mark.road
def test_an_existing_directory_builds_beside_what_is_in_it(tmp_path, kernforge_cli):
    project = tmp_path / "My_Op"
    (project / "tests").mkdir(parents=True)
    (project / "tests" / "test_mine.py").write_text("def test_mine(kernel):\n    kernel.my_op\n")
    kernforge_cli("new", "--here", "--backends", "cpu", "--minimal", cwd=project)
    counts, names = counted(kernforge_cli, project, "--pytest=-k", "--pytest=mine or determinism")
    assert counts["passed"] >= 2
    assert "test_mine" in names
