# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.errors import NoVariantError
from kernforge.testing.project_tests import chosen


@pytest.mark.parametrize(
    ("backends", "hint"),
    [(("cu130",), "add sources for the CPU"), (("cu130", "cpu"), "name one with --variant")],
)
def test_variants_for_other_machines_are_counted_and_the_first_named(backends, hint):
    names = [f"torch2{n}-cxx11-{b}-aarch64-linux" for b in backends for n in range(10, 15)]
    with pytest.raises(NoVariantError, match=rf"the project's {len(names)} variants") as raised:
        chosen(names, ())
    assert names[0] in raised.value.message
    assert names[-1] not in raised.value.message
    assert raised.value.hint.startswith(hint)
