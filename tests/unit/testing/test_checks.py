# SPDX-License-Identifier: Apache-2.0

import types

import pytest

from kernforge.errors import UsageError
from kernforge.testing import checks


def test_an_operator_that_the_build_lacks_is_named():
    build = types.SimpleNamespace(relu=abs, ops=types.SimpleNamespace(gelu=sum), _own=1)
    assert checks._attribute(build, "ops.gelu") is sum
    with pytest.raises(UsageError, match=r"has no 'rleu'") as caught:
        checks._attribute(build, "rleu")
    assert caught.value.hint == "it has ops, relu"
