# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.errors import NoVariantError, UsageError
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
