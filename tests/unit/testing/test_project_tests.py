# SPDX-License-Identifier: Apache-2.0
import pytest
from support.variants import write_variant

from kernforge.errors import CheckError, NoVariantError, UsageError
from kernforge.system.environment import Environment
from kernforge.system.process import Completed
from kernforge.testing.project_tests import chosen, run_variant


@pytest.mark.parametrize(
    ("backends", "hint"),
    [(("cu130",), "add sources for the CPU"), (("cu130", "cpu"), "name one with --variant")],
)
def test_variants_for_other_machines_are_counted_and_named(backends, hint):
    names = [f"torch2{n}-cxx11-{b}-aarch64-linux" for b in backends for n in range(10, 15)]
    with pytest.raises(NoVariantError, match=rf"the project's {len(names)} variants") as raised:
        chosen(names)
    assert names[0] in raised.value.message
    assert names[-1] not in raised.value.message
    assert raised.value.hint.startswith(hint)


def test_a_pytest_that_does_not_start_is_a_usage_error(tmp_path):
    def runner(command):
        return Completed(returncode=1, stdout="", stderr="oh", wall_s=0.1)

    environment = Environment({"KERNFORGE_HOME": str(tmp_path)})
    with pytest.raises(UsageError, match="pytest ended with status 1"):
        run_variant(tmp_path, tmp_path, (), environment=environment, runner=runner)


def test_a_crash_names_its_test_and_the_likely_cause(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import os\ndef test_fine(): pass\ndef test_bad(): os.abort()\n"
    )
    environment = Environment({"KERNFORGE_HOME": str(tmp_path / "home")})
    with pytest.raises(CheckError, match=r"test_it.py::test_bad crashed.* signal 6.* wrote beyond"):
        run_variant(
            tmp_path,
            write_variant(tmp_path / "out"),
            ("-p", "no:faulthandler"),
            environment=environment,
        )


def test_equal_failures_are_shown_once(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.parametrize('n', range(3))\ndef test_it(n): assert 1 == 2\n"
    )
    environment = Environment({"KERNFORGE_HOME": str(tmp_path / "home")})
    tested = run_variant(tmp_path, write_variant(tmp_path / "out"), (), environment=environment)
    assert tested.counts["failed"] == 3
    assert tested.output.count(">   def test_it(n): assert 1 == 2") == 1
    assert "the same as test_it.py::test_it[0]" in tested.output
